"""A method is one file, besides its page and its tests: one that nothing else knows of passes what is asked of all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SUITES = (
    "tests/methods/test_choices.py", "tests/methods/test_conformance.py", "tests/methods/test_every_backbone.py",
    "tests/methods/test_every_setting.py", "tests/methods/test_lies.py", "tests/docs/test_reference.py",
    "tests/experiments/test_spaces.py", "tests/runtime/test_dispatch.py", "tests/runtime/test_secure.py",
)  # fmt: skip


@pytest.mark.slow
def test_a_method_touches_one_file(tmp_path):
    shutil.copy(CHECKOUT / "examples" / "feddyn.py", tmp_path)
    # Worker processes do not know the method.
    places = [str(CHECKOUT / "tests"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "kit.held_out", "-k", "(feddyn or navigation) and not workers", *SUITES],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={**os.environ, "HELD_OUT": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, places))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(".") >= 25
