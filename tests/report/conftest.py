"""Sample run folders, made once per test run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    """The generator of run folders, ``sample.make_run``."""
    path = Path(__file__).with_name("sample.py")
    spec = importlib.util.spec_from_file_location("report_sample", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def runs(sample: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three comparable runs of seven seeds, enough for two corrected comparisons; read only."""
    root = tmp_path_factory.mktemp("runs")
    make = {"seeds": 7, "rounds": 12}
    return {
        "fedavg": sample.make_run(root / "fedavg", **make),
        "fedprox": sample.make_run(root / "fedprox", method="fedprox", title="FedProx", level=0.815, **make),
        "local": sample.make_run(root / "local", method="local", title="Local", level=0.70, payload=1, **make),
    }
