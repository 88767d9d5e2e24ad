"""The command line on a system without Unix's locks, signals and sockets, as Windows is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import os, signal, socket, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # importing it fails
import subprocess  # which needs some of the names below on this system
for module, names in ((os, "fork geteuid getuid killpg setsid"), (signal, "SIGHUP SIGKILL SIGUSR1 SIGXCPU")):
    for name in names.split():
        delattr(module, name)
del socket.AF_UNIX
from graphsilo.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_unix(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GRAPHSILO_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_and_its_report_need_no_unix(tmp_path: Path, small: list[str]) -> None:
    done = without_unix(
        tmp_path, "run", *small, "--rounds", "2", "--out", "run", "--set", "run.resident_clients=1", "-q"
    )
    assert (done.returncode, done.stdout) == (0, "run\n"), done.stderr
    assert (tmp_path / "run" / "report.html").exists()
    told = without_unix(tmp_path, "silo", "check", str(Path(__file__).parents[2] / "examples" / "tables" / "silo.yaml"))
    assert "The silo can take part." in told.stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("run", "--workers", "2", "--out", "run"), "run.workers above 1"),
        (("plan",), "graphsilo plan"),
        (("serve", "kit"), "graphsilo serve"),
        (("join", "kit", "--silo", "silo.yaml"), "graphsilo join"),
    ],
)
@pytest.mark.slow
def test_what_does_is_refused(tmp_path: Path, small: list[str], arguments: tuple[str, ...], what: str) -> None:
    more = small if arguments[0] in ("run", "plan") else []
    done = without_unix(tmp_path, *arguments, *more)
    assert done.returncode == 2
    assert (
        f"graphsilo: {what} needs Linux or macOS. On Windows, install graphsilo in the Windows Subsystem" in done.stderr
    )
    assert not (tmp_path / "run").exists()
