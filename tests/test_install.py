"""`make install` says what it does and how long it has been at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "install"
PIP = "#!/bin/sh\ncase $2 in pip) echo '  Downloading torch-2.whl (190 MB)'; sleep 2.2; exit $(cat fails);; esac\n"
"""In place of an environment's Python: as ``-m pip`` it takes two seconds."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("scripts", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(PIP)
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("fails", ["0", "1"])
def test_a_terminal_shows_the_time(tree: Path, fails: str) -> None:
    (tree / "fails").write_text(fails)
    ours, theirs = os.openpty()
    done = subprocess.run([tree / "scripts" / "install", "runtime"], stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == int(fails)
    assert re.search(r"\r\x1b\[K  \d s, \d+ MB: +Downloading torch-2\.whl", said)
    assert ("installed in" in said) == (fails == "0")
    assert (b"Downloading" in done.stderr) == (fails == "1")
