"""A backbone is its class, its settings and its entry: one that no test names passes what is asked of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_backbone_is_listed_nowhere_else():
    places = [str(CHECKOUT / "tests"), str(CHECKOUT / "examples"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "kit.held_out_model", "-k", "graphconv", "tests/models"],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(".") >= 20
