"""What a run will cost, before it is started: memory, bytes, CPU time, wall time.

The data is loaded and cut as the run does it; then the method's real set-up and a few rounds run in a process of their
own, watched; what was measured there is carried over to the rounds, seeds and clients that were not.

* ``probe``: that process; ``meter`` watches one seed in it.
* ``trials``: which trials are made, and what they found.
* ``estimate``: from these to the whole run.
* ``plan``: what a plan says; ``lines``: bandwidth and latency.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import graphsilo.errors
from graphsilo.errors import GraphsiloError, RunError
from graphsilo.experiments.config import RunConfig
from graphsilo.planning.connection import Connection
from graphsilo.planning.estimate import plan_of
from graphsilo.planning.plan import Plan
from graphsilo.planning.trials import Trial, Tried
from graphsilo.runtime.machine import memory

__all__ = ["Connection", "Plan", "plan"]


def plan(
    config: RunConfig,
    *,
    seconds: float = 10.0,
    line: Connection | None = None,
    out: Path | None = None,
    finish: str = "",
) -> Plan:
    """Estimate what a run will cost, by trying it for a little while.

    Args:
        config: The run.
        seconds: CPU seconds that a trial aims at, up to three times as many where set-up or two rounds take longer.
            Most plans need one trial, hard ones two or three.
        line: Joins the sites with the coordinator, for a run between machines.
        out: Where results will be written; None writes none.
        finish: ``module:function`` that the run calls with its folder at the end.

    Raises:
        GraphsiloError: As the run itself would: its data, its settings, or a step of its method.
    """
    machine = memory()
    return plan_of(config, try_out(config, seconds, line, finish), machine=machine, line=line, out=out)


def try_out(config: RunConfig, seconds: float, line: Connection | None, finish: str) -> Tried:
    """Have another process prepare the data and try the method.

    Raises:
        GraphsiloError: As the run itself would.
    """
    with tempfile.TemporaryDirectory(prefix="graphsilo-plan-") as name:
        folder = Path(name)
        path = folder / "config.json"
        path.write_text(json.dumps(config.complete(), default=str), encoding="utf-8")
        order = {
            "config": str(path), "explicit": sorted(config.explicit), "seconds": seconds, "finish": finish,
            "line": None if line is None else asdict(line),
        }  # fmt: skip
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TMPDIR": name,
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for a GPU must not spoil it for the forks
        }  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-m", "graphsilo.planning.probe", json.dumps(order), name],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                _, said = process.communicate()
            finally:  # whatever ends the plan ends the trial that is going on, too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        found = folder / "tried.json"
        tree: dict[str, Any] = json.loads(found.read_bytes()) if process.returncode == 0 and found.exists() else {}
    if "kind" in tree:
        raise _error(tree)
    if not tree:
        raise _gone(process.returncode, said.decode(errors="replace"))
    trials = [Trial(**trial) for trial in tree["trials"]]
    if "error" in trials[0].events:
        raise _error(trials[0].events["error"])
    return Tried(tree["facts"], tree["started"], trials)


def _gone(code: int, said: str) -> RunError:
    lines = said.strip().splitlines()
    if code == -signal.SIGKILL or "MemoryError" in said[-500:]:
        return RunError(
            "memory ran out while the data was loaded and cut: the machine has too little for this data set."
        )
    error = RunError(
        f"the process that tries the method went away{f': {lines[-1]}' if lines else ''}. Without a trial there is no "
        f"plan."
    )
    error.add_note("\n".join(lines[-20:]))
    return error


def _error(event: Mapping[str, Any]) -> GraphsiloError:
    """What went wrong there, as the same class of error here."""
    kind = getattr(graphsilo.errors, event["kind"], None)
    if isinstance(kind, type) and issubclass(kind, GraphsiloError):
        error = kind(event["text"])
    else:
        error = RunError(f"the trial of the method failed as the run would: {event['kind']}: {event['text']}.")
    error.add_note(event["trace"])
    return error
