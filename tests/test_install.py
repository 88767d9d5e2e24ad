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


def install(tree: Path, fails: str = "0", **environment: str) -> tuple[subprocess.CompletedProcess[bytes], str]:
    (tree / "fails").write_text(fails)
    ours, theirs = os.openpty()
    command, env = [tree / "scripts" / "install", "runtime"], os.environ | environment
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=env, check=False)
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    return done, said


@pytest.mark.parametrize("fails", ["0", "1"])
def test_a_terminal_shows_the_time(tree: Path, fails: str) -> None:
    done, said = install(tree, fails)
    assert done.returncode == int(fails)
    assert re.search(r"\r\x1b\[K  \d s, \d+ MB: +Downloading torch-2\.whl", said)
    assert ("installed in" in said) == (fails == "0")
    assert (b"Downloading" in done.stderr) == (fails == "1")


def test_a_file_that_vanishes_ends_nothing(tree: Path) -> None:
    """pip renames files while their sizes are added up: du then fails, half-way through and at the end."""
    du = tree / "bin" / "du"
    du.parent.mkdir()
    du.write_text("#!/bin/sh\necho 5 .venv; echo cannot access a file >&2; exit 1\n")
    du.chmod(0o755)
    done, said = install(tree, PATH=f"{du.parent}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (0, b"")
    assert said.count("s, 5") >= 3
