"""A backbone is one file, besides its tests: one that nothing else knows of passes what is asked of all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_backbone_touches_one_file(tmp_path):
    shutil.copy(CHECKOUT / "examples" / "own_model.py", tmp_path / "graphconv.py")
    places = [str(CHECKOUT / "tests"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "kit.held_out_model", "-k", "graphconv", "tests/models"],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={**os.environ, "HELD_OUT": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, places))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(".") >= 20
