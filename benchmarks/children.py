"""Processes that benchmarks measure: started with one thread each, waited for, and their own costs told apart.

A measured program runs in a process of its own, so that what was imported or cached before changes nothing. It prints
one JSON object on the last line of its output.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".benchmarks"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ChildFailed(Exception):
    """A measured process did not come to its end; the text says why, in a line."""


class ChildStopped(ChildFailed):
    """It was stopped from outside: by its time limit, or by a signal. Tried again, it may well come to its end."""


@dataclass(frozen=True)
class Ended:
    """A process that came to its end.

    Attributes:
        output: What it printed.
        wall_seconds, cpu_seconds: From its start; CPU of its own children included.
        peak: Most bytes of memory that it had.
    """

    output: str
    wall_seconds: float
    cpu_seconds: float
    peak: int = 0

    def json(self) -> dict[str, Any]:
        """The object on the last line of its output."""
        return dict(json.loads(self.output.splitlines()[-1]))


def data_root() -> str:
    """The folder with PyG's raw files: GRAPHSILO_DATA, else ../shared/data beside the checkout."""
    return os.environ.get("GRAPHSILO_DATA", str(ROOT.parent / "shared" / "data"))


def commit() -> str:
    """The commit the code is at, shortened."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout.strip() or "unknown"


def execute(command: Sequence[str], *, limit: float | None = None, **environment: str) -> Ended:
    """Run a command with one thread and wait for it.

    Args:
        command: Program and arguments.
        limit: Seconds after which it is stopped.
        environment: Further variables.

    Raises:
        ChildStopped: It took too long, or ended by a signal.
        ChildFailed: It did not end with exit code 0.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            list(command), stdout=output, stderr=errors, env={**os.environ, **ONE_THREAD, **environment}
        )
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            process.kill()

        timer = threading.Timer(limit or 0.0, stop)
        if limit is not None:
            timer.start()
        try:
            # wait4 tells the costs of this process alone, where RUSAGE_CHILDREN adds up all that ever ended.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            timer.cancel()
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if stopped.is_set():
            raise ChildStopped(f"stopped after {limit:.0f} s")
        if process.returncode:
            lines = errors.read().decode(errors="replace").strip().splitlines()
            if process.returncode < 0:
                raise ChildStopped(lines[-1] if lines else f"signal {-process.returncode}")
            raise ChildFailed(lines[-1] if lines else f"exit code {process.returncode}")
        return Ended(
            output.read().decode(errors="replace"), wall, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss
        )


def memory(field: str = "VmRSS", process: int | str = "self") -> int:
    """Bytes of a process, 0 where it has gone; ``VmHWM`` is the most since the mark was reset."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """Begin the high-water mark anew; where the system does not allow it, peaks are those of the whole process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def run_code(code: str, *arguments: str, limit: float | None = None) -> dict[str, Any]:
    """Run Python code in a process of its own and take the object that it prints last.

    Raises:
        ChildFailed: As ``execute``.
    """
    return execute([sys.executable, "-c", code, *arguments], limit=limit).json()


def write_json(path: Path, tree: Any) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
