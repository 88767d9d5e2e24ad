"""What trials of a run found, and which of them are needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SAMPLE = 8
"""So many clients stand for all where these are too many to be tried."""
SHORTEST = 4
"""A setting of fewer repetitions than this is left as it is when a trial is shortened."""
REPEATED = ("epoch", "step")
"""Whole-numbered settings whose names hold one of these say how often something is repeated."""

End = Literal["complete", "late", "memory", "error"]


@dataclass
class Trial:
    """One trial and what it found.

    Attributes:
        clients: Who took part.
        settings: Repetitions (epochs, steps) that were shortened, and to what; none for the real settings.
        steps: Set-up, rounds, evaluations as they were measured.
        partial: The step in which it was ended, if any.
        events: Other events by name.
        checkpoints: In the order they came.
        end: How it ended.
        peak: Most memory it took, in bytes.
    """

    clients: tuple[int, ...]
    settings: Mapping[str, int] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    partial: dict[str, Any] | None = None
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    end: End = "late"
    peak: int = 0

    @property
    def rounds(self) -> int:
        """Rounds that were finished."""
        return sum(step["phase"] == "round" for step in self.steps)

    @property
    def is_set_up(self) -> bool:
        """Whether set-up came to its end."""
        return any(step["phase"] == "setup" for step in self.steps)

    def is_enough(self, rounds: int) -> bool:
        """Whether it says what a run of so many rounds costs."""
        return self.end == "complete" or (self.is_set_up and self.rounds >= min(2, rounds))

    def read(self, path: Path) -> None:
        """Take the events of a file, a JSON object per line; the last may have been cut off with its process."""
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                break
            name = event["event"]
            self.peak = max(self.peak, event.get("peak", 0))
            if name == "step":
                self.steps.append(event)
                self.partial = None
            elif name == "partial":
                self.partial = event
            elif name == "checkpoint":
                self.checkpoints.append(event)
            else:
                self.events[name] = event
        if "error" in self.events:
            self.end = "error"
        elif "trained" in self.events and self.end != "memory":
            self.end = "complete"


def tried(facts: Mapping[str, Any], attempt: Callable[[Trial], Trial]) -> list[Trial]:
    """The trials that a plan needs.

    The first has all clients and the real settings. Where it did not come through set-up and two rounds, the largest to
    the smallest of a few clients stand for many, else two trials with fewer repetitions for all of them.

    Args:
        facts: Of the data and the settings.
        attempt: Makes a trial.
    """
    everyone = tuple(silo["client"] for silo in facts["silos"])
    first = attempt(Trial(everyone))
    rounds = first.events.get("rounds", facts)["rounds"]
    if first.end in ("error", "memory") or first.is_enough(rounds):
        return [first]
    if len(everyone) > 2 * SAMPLE:
        order = [silo["client"] for silo in sorted(facts["silos"], key=lambda silo: (silo["work"], silo["client"]))]
        chosen = sorted(order[round(place * (len(order) - 1) / (SAMPLE - 1))] for place in range(SAMPLE))
        sample = attempt(Trial(tuple(chosen)))
        if sample.is_enough(rounds):
            return [first, sample]
    if facts["repeats"]:
        few = {name: max(1, round(value / max(facts["repeats"].values()))) for name, value in facts["repeats"].items()}
        more = {name: min(2 * value, facts["repeats"][name]) for name, value in few.items()}
        short = [attempt(Trial(everyone, settings)) for settings in (few, more)]
        if all(trial.is_set_up and trial.rounds for trial in short):
            return [first, *short]
    return [first]


def repeats(settings: Mapping[str, Any]) -> dict[str, int]:
    """Settings of a method that say how often something is repeated, those that are large.

    Example:
        >>> repeats({"rounds": 100, "generator_epochs": 20, "local_epochs": 3, "lr": 0.1, "step_lr": 8.0})
        {'generator_epochs': 20}
    """
    return {
        name: value
        for name, value in settings.items()
        if type(value) is int and value >= SHORTEST and any(word in name for word in REPEATED)
    }


@dataclass(frozen=True)
class Tried:
    """What was found out before a run.

    Attributes:
        facts: Of the data and its preparation: sizes of every client's data, CPU seconds, memory.
        started: CPU seconds and memory of a process that has imported what a run needs.
        trials: The first with real settings and all clients.
    """

    facts: Mapping[str, Any]
    started: Mapping[str, Any]
    trials: Sequence[Trial]

    @property
    def silos(self) -> list[dict[str, int]]:
        """Sizes of every client's data."""
        found: list[dict[str, int]] = self.facts["silos"]
        return found

    @property
    def rounds(self) -> int:
        """Of the run, as the server says."""
        return int(self.trials[0].events.get("rounds", self.facts)["rounds"])
