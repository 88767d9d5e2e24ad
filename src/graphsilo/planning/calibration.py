"""Trials in a process of their own: which are made, for how long, and what they told."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import graphsilo.errors
from graphsilo.errors import GraphsiloError, RunError
from graphsilo.experiments.config import RunConfig
from graphsilo.runtime.machine import Memory, memory, resident

SAMPLE = 8
"""So many clients stand for all where these are too many to be tried; half of them tell how costs grow with clients."""
KINDS = 4
"""So many kinds of repetitions are tried one by one."""
TRIES = 3
"""Trials for one kind, each longer than the one before, until it is long enough."""
PART = 0.9
"""Of the memory that is free, what a trial may take before it is ended."""
SLOW = 20
"""Wall seconds per CPU second that a trial is waited for."""

End = Literal["complete", "late", "memory", "error"]


@dataclass
class Trial:
    """One trial and what it told.

    Attributes:
        clients: Who took part.
        settings: Repetitions (epochs, steps) that were shortened, and to what; none for the real settings.
        more: Those of them that are longer than in the shortest trial, and how often the difference is still missing.
        stretches: Set-up, rounds, evaluations as they were measured.
        partial: The stretch in which it was ended, if any.
        told: Other events by name; checkpoints in the order they came.
        end: How it ended.
        most: Most memory it took, in bytes.
        error: What ended it, where something did.
    """

    clients: tuple[int, ...]
    settings: Mapping[str, int] = field(default_factory=dict)
    more: tuple[tuple[str, ...], float] = ((), 0.0)
    stretches: list[dict[str, Any]] = field(default_factory=list)
    partial: dict[str, Any] | None = None
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    end: End = "late"
    most: int = 0
    error: GraphsiloError | None = None

    @property
    def rounds(self) -> int:
        """Rounds that were finished."""
        return sum(stretch["phase"] == "round" for stretch in self.stretches)

    @property
    def is_set_up(self) -> bool:
        """Whether set-up came to its end."""
        return any(stretch["phase"] == "setup" for stretch in self.stretches)

    def hear(self, event: dict[str, Any]) -> None:
        """Take an event."""
        name = event["event"]
        self.most = max(self.most, event.get("most", 0))
        if name == "stretch":
            self.stretches.append(event)
            self.partial = None
        elif name == "partial":
            self.partial = event
        elif name == "checkpoint":
            self.checkpoints.append(event)
        else:
            self.told[name] = event


@dataclass(frozen=True)
class Calibration:
    """What was found out before a run.

    Attributes:
        facts: Of the data and its preparation, as the probe told them.
        start: CPU seconds and memory of a process that has imported what a run needs.
        trials: The first with real settings and all clients.
        memory: Of the machine when the trials began.
        rounds: Of the run, as the server says.
    """

    facts: Mapping[str, Any]
    start: Mapping[str, Any]
    trials: Sequence[Trial]
    memory: Memory | None
    rounds: int

    @property
    def silos(self) -> list[dict[str, int]]:
        """Sizes of every client's data."""
        found: list[dict[str, int]] = self.facts["silos"]
        return found


def calibrate(config: RunConfig, *, seconds: float, finish: str) -> Calibration:
    """Prepare the data and try the method.

    Args:
        config: The run.
        seconds: CPU seconds for each trial.
        finish: ``module:function`` that a run calls with its folder at the end, such as the drawing of the report;
            empty for none.

    Raises:
        GraphsiloError: As the run itself would: its data, its settings, or a step of its method.
    """
    with _Probe(config) as probe:
        start, facts = probe.prepare()
        silos = facts["silos"]
        everyone = tuple(silo["client"] for silo in silos)
        whole = probe.trial(Trial(everyone), seconds, finish)
        if whole.error is not None:
            raise whole.error
        rounds = int(whole.told.get("rounds", {}).get("rounds", facts["rounds"]))
        trials = [whole]
        if whole.end == "late" and not _is_enough(whole, rounds):
            if len(everyone) > 2 * SAMPLE:
                trials += _sampled(probe, facts, seconds)
            if not any(_is_enough(trial, rounds) for trial in trials) and facts["repeats"]:
                trials += _shortened(probe, everyone, facts["repeats"], seconds, finish)
        return Calibration(facts, start, trials, probe.memory, rounds)


def _is_enough(trial: Trial, rounds: int) -> bool:
    return trial.end == "complete" or (trial.is_set_up and trial.rounds >= min(2, rounds))


def _sampled(probe: _Probe, facts: Mapping[str, Any], seconds: float) -> list[Trial]:
    """Trials with some clients, from the smallest to the largest."""
    order = [silo["client"] for silo in sorted(facts["silos"], key=lambda silo: (silo["work"], silo["client"]))]
    last = len(order) - 1
    chosen = [order[round(place * last / (SAMPLE - 1))] for place in range(SAMPLE)]
    some = [probe.trial(Trial(tuple(sorted(clients))), seconds, "") for clients in (chosen, chosen[::2])]
    return [trial for trial in some if trial.error is None]


def _shortened(
    probe: _Probe, everyone: tuple[int, ...], repeats: Mapping[str, int], seconds: float, finish: str
) -> list[Trial]:
    """Trials with few repetitions of all kinds, then with more of each kind; of all together where there are many."""
    few = {name: max(1, round(value / max(repeats.values()))) for name, value in repeats.items()}
    base = probe.trial(Trial(everyone, few), seconds, finish)
    if base.error is not None or not base.is_set_up or base.rounds < 1:
        return []
    done = [base]
    for names in [(name,) for name in repeats] if len(repeats) <= KINDS else [tuple(repeats)]:
        found = base
        for _ in range(TRIES):
            # A longer way is measured better, where it is affordable.
            times = min(max(2.0, 0.4 * seconds / max(_setup_seconds(found), 1e-3)), 8.0)
            more = {
                name: min(repeats[name], max(found.settings[name] + 1, round(times * found.settings[name])))
                for name in names
            }
            left = [(repeats[name] - few[name]) / (more[name] - few[name]) for name in names]
            trial = Trial(everyone, {**few, **more}, (names, sum(left) / len(left)))
            probe.trial(trial, seconds, "")
            if trial.error is not None or not trial.is_set_up or trial.rounds < 1:
                break
            found = trial
            if _setup_seconds(found) > 0.25 * seconds or all(more[name] == repeats[name] for name in names):
                break
        if found is base:
            return [base]
        done.append(found)
    return done


def _setup_seconds(trial: Trial) -> float:
    return float(sum(stretch["cpu"] for stretch in trial.stretches if stretch["phase"] != "evaluation"))


class _Probe:
    """The other process, and what it says."""

    def __init__(self, config: RunConfig):
        self.config = config
        self.memory = memory()
        self._folder = tempfile.TemporaryDirectory(prefix="graphsilo-plan-")
        self._buffer = b""

    def __enter__(self) -> _Probe:
        folder = Path(self._folder.name)
        self._log = (folder / "log").open("w+b")  # as long as the process lives
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TMPDIR": str(folder),
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for a GPU must not spoil it for the forks
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "graphsilo.planning.probe"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._log.close()
        self._folder.cleanup()

    def prepare(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Load and cut the data; what a started process takes, and what is known of the data."""
        path = Path(self._folder.name) / "config.json"
        path.write_text(json.dumps(self.config.complete(), default=str), encoding="utf-8")
        self._order({"config": str(path), "explicit": sorted(self.config.explicit)})
        start: dict[str, Any] = {}
        for event in self._events(self._process.pid):
            if event["event"] == "started":
                start = event
            elif event["event"] == "prepared":
                return start, event
            elif event["event"] == "error":
                raise _error(event)
            elif event["event"] == "memory":
                raise RunError(
                    "memory ran out while the data was loaded and cut: the machine has too little for this data set."
                )
        raise self._gone()

    def trial(self, trial: Trial, seconds: float, finish: str) -> Trial:
        """Make a trial and wait for its end."""
        process = 0
        order = {"clients": list(trial.clients), "settings": dict(trial.settings), "seconds": seconds, "finish": finish}
        self._order(order)
        until = time.monotonic() + 60 + SLOW * seconds
        for event in self._events(None, until):
            name = event["event"]
            if name == "forked":
                process = self._watched = event["process"]
            elif name in ("memory", "slow"):
                trial.end = "memory" if name == "memory" else trial.end
                trial.most = max(trial.most, event.get("now", 0))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            elif name == "error":
                trial.error, trial.end = _error(event), "error"
            elif name == "ended":
                self._watched = None
                if "trained" in trial.told:
                    trial.end = "complete"
                return trial
            else:
                trial.hear(event)
        raise self._gone()

    def _order(self, order: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(json.dumps(order).encode() + b"\n")
                stdin.flush()
        except OSError:
            raise self._gone() from None

    def _events(self, process: int | None, until: float | None = None) -> Iterator[dict[str, Any]]:
        """Events as they come, with ``memory`` and ``slow`` in between when a limit is passed."""
        self._watched = process
        limit = None if self.memory is None else PART * self.memory.free
        stdout = self._process.stdout
        if stdout is None:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._buffer:
                    line, _, self._buffer = self._buffer.partition(b"\n")
                    yield json.loads(line)
                if selector.select(0.2):
                    more = os.read(stdout.fileno(), 1 << 16)
                    if not more:
                        return
                    self._buffer += more
                if self._watched:
                    now = resident(self._watched).now
                    if limit is not None and now > limit:
                        yield {"event": "memory", "now": now}
                    elif until is not None and time.monotonic() > until:
                        yield {"event": "slow"}

    def _gone(self) -> RunError:
        self._log.seek(0)
        told = self._log.read()[-2000:].decode(errors="replace").strip().splitlines()
        code = self._process.poll()
        why = ", perhaps because memory ran out" if code == -signal.SIGKILL else f": {told[-1]}" if told else ""
        error = RunError(f"the process that tries the method went away{why}. Without a trial there is no plan.")
        error.add_note("\n".join(told))
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
