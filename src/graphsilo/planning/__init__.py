"""What a run will cost, before it is started: memory, bytes, CPU time, wall time.

The first seed of the run is made in a process of its own (``probe``) in which ``meter`` watches every step, and ended
after a few rounds. ``estimate`` carries what was measured over to the other rounds, seeds and clients; ``plan`` is what
comes of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import graphsilo.errors
from graphsilo import loading
from graphsilo.errors import ConfigError, GraphsiloError, RunError
from graphsilo.experiments.check_own import check_findable
from graphsilo.experiments.config import RunConfig
from graphsilo.federation import registry
from graphsilo.federation.trust import list_allowed
from graphsilo.planning.estimate import Trial, plan_of
from graphsilo.planning.plan import Connection, Plan
from graphsilo.runtime.machine import memory, memory_use, require_unix

__all__ = ["Connection", "Plan", "plan"]

SHARE = 0.9
"""Of the memory that is free, what a trial may take before it is ended."""


def plan(
    config: RunConfig,
    *,
    seconds: float = 10.0,
    line: Connection | None = None,
    out: Path | None = None,
    finish: str = "",
) -> Plan:
    """Estimate what a run will cost, by making a little of it; ``graphsilo.plan`` says what the arguments are.

    Args:
        config, seconds, line, out: As there.
        finish: ``module:function`` that the run calls with its folder at the end.

    Raises:
        ConfigError: ``seconds`` is no time above 0.
        GraphsiloError: As the run itself would: its data, its settings, or a step of its method.
    """
    if not 0 < seconds < math.inf:
        raise ConfigError(f"seconds must be a finite number above 0; got {seconds:g}.")
    require_unix("graphsilo plan")
    check_findable(config, registry.load(config.method.name), "a plan")
    machine = memory()
    with tempfile.TemporaryDirectory(prefix="graphsilo-plan-") as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config.complete(), default=str), encoding="utf-8")
        order = {
            "explicit": sorted(config.explicit), "seconds": seconds, "finish": finish, "writes": out is not None,
            "line": None if line is None else asdict(line), "allowed": list_allowed(),
            "rows": [] if line is not None else _choose_rows(config),
        }  # fmt: skip
        trial = _run_trial(order, folder, None if machine is None else SHARE * machine.free)
    return plan_of(config, trial, machine=machine, line=line, out=out)


def _choose_rows(config: RunConfig) -> list[str] | None:
    """Reference rows that the trial makes whole: of named ones those that are made once, whatever the seeds; None where
    nobody said which, and the data decides."""
    if "references" not in config.run.model_fields_set:
        return None
    found = map(registry.listing, config.run.references)
    return [row.name for row in found if row is not None and row.seedless]


def _run_trial(order: Mapping[str, Any], folder: Path, limit: float | None) -> Trial:
    """The trial, ended when it takes more memory than the limit once its data is loaded."""
    trial, events, errors = Trial(), folder / "events.jsonl", folder / "errors.txt"
    path = os.pathsep.join(sys.path)
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TMPDIR": str(folder), "PYTHONPATH": path
    }  # fmt: skip
    events.touch()
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, *loading.command("graphsilo.planning.probe", json.dumps(order), str(folder))],
            env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            while process.poll() is None:
                used = memory_use(process.pid).now
                if limit is not None and used > limit and b'"loaded"' in events.read_bytes():
                    trial.out_of_memory, trial.peak = True, used
                    break
                time.sleep(0.02)
        finally:  # whatever ends the plan ends the trial that is going on, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    trial.read(events)
    if "error" in trial.events:
        raise _error(trial.events["error"])
    code = process.returncode
    if "loaded" not in trial.events or code not in (0, -signal.SIGXCPU, -signal.SIGKILL):
        raise _explain_exit(code, errors.read_text(errors="replace"))
    trial.out_of_memory |= code == -signal.SIGKILL
    return trial


def _explain_exit(code: int, said: str) -> RunError:
    lines = said.strip().splitlines()
    if code == -signal.SIGKILL or "MemoryError" in said[-500:]:
        return RunError(
            "memory ran out while the data was loaded and cut: the machine has too little for this data set."
        )
    last = f": {lines[-1]}" if lines else ""
    error = RunError(f"the process that tries the method went away{last}. Without a trial there is no plan.")
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
