"""What the tests of the documentation share."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


def script(name: str) -> ModuleType:
    """A module of ``scripts``."""
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """``scripts/docs_reference.py``, which makes tables from the code."""
    return script("docs_reference")


@pytest.fixture(scope="session")
def formulas() -> ModuleType:
    """``scripts/docs_math.py``, which draws formulas."""
    return script("docs_math")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built documentation."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
