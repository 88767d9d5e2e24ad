"""What all trackers share: each round once, and a store that fails does not end the run."""

from __future__ import annotations

import math
import time
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from graphsilo.errors import ConfigError, one_line
from graphsilo.experiments.observer import (
    ClientRound,
    Observer,
    Progress,
    RunEnded,
    RunStarted,
    SeedEnded,
    SeedStarted,
    SetUp,
)
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.records import reported_scores

RETRY_SECONDS = 30.0
"""Least time between two tries of a store that has failed."""


class Tracker(Observer):
    """Keeps runs in a store. Every round is kept once, whatever was killed and resumed: the store is asked what it has.

    A run that resumes brings the rounds of its checkpoint with it, so that a tracker also receives those that were
    trained before it was there, or while its store could not be reached. What a store raises is said once; what could
    not be kept waits in memory, is tried again now and then, and a last time when the run ends.

    Args:
        clients: Whether what each client did is kept with every round.

    Attributes:
        say: Receives what a person should know of the store.
    """

    kind: ClassVar[str]
    """What the command line calls it."""

    def __init__(self, *, clients: bool = False):
        self.clients = clients
        self.say: Callable[[str], None] = lambda text: warnings.warn(text, RuntimeWarning, stacklevel=2)
        self.runs: dict[str, RunStarted] = {}  # by label
        self._going = 0
        self.ids: dict[str, str] = {}
        self._kept: dict[tuple[str, int], set[int]] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._retry_at = 0.0
        self._has_failed = False

    # -- what a store does ----------------------------------------------------------------------------------------

    def locate(self) -> None:
        """Decide where to write, now that the run's folder is known; what this raises ends the run."""

    def open(self, run: RunStarted) -> None:
        """A run begins, or goes on; ``self.ids[run.label]`` is its name, the same after a resume."""

    @abstractmethod
    def find_rounds(self, label: str, seed: int) -> Collection[int]:
        """Numbers of the rounds of a seed that the store has; 0 is the set-up."""

    @abstractmethod
    def keep(self, label: str, seed: int, number: int, row: Mapping[str, Any], clients: Sequence[ClientRound]) -> None:
        """One round; its set-up is number 0."""

    def note(self, text: str) -> None:
        """A warning."""

    def close_seed(self, event: SeedEnded) -> None:
        """A seed is done."""

    def close(self, run: RunStarted, event: RunEnded) -> None:
        """A run is over."""

    # -- events ---------------------------------------------------------------------------------------------------

    def on_start(self, run: RunStarted) -> None:
        if not self._going:
            self.runs, self._kept = {}, {}
        self._going += 1
        self.runs[run.label] = run
        self.locate()
        self.ids[run.label] = _identity(run)
        self._do(lambda: self.open(run))

    def on_seed_start(self, event: SeedStarted) -> None:
        place = (event.label, event.seed)

        def take_up() -> None:
            self._kept[place] = {*self.find_rounds(*place), *self._kept.get(place, ())}
            rows = [(0, event.setup)] if event.setup is not None else []
            for number, row in [*rows, *((row["round"], row) for row in event.rows)]:
                self._keep(place, number, row)

        self._do(take_up)

    def on_set_up(self, event: SetUp) -> None:
        self._do(lambda: self._keep((event.label, event.seed), 0, event.row))

    def on_progress(self, progress: Progress) -> None:
        clients = progress.clients if self.clients else ()
        self._do(lambda: self._keep((progress.label, progress.seed), progress.round, progress.row, clients))

    def on_warning(self, text: str) -> None:
        self._do(lambda: self.note(text))

    def on_seed_end(self, event: SeedEnded) -> None:
        self._do(lambda: self.close_seed(event))

    def on_end(self, event: RunEnded) -> None:
        run = self.runs[event.label]
        self._going -= 1
        self._do(lambda: self.close(run, event))
        if not self._going and self._waiting:
            self._retry_at = 0.0
            self._drain()
            if self._waiting:
                self.say(f"{self.kind}: {len(self._waiting)} events of the run could not be kept; the run's own "
                         f"folder has them all, and resuming it sends what is missing.")  # fmt: skip
                self._waiting.clear()

    @property
    def home(self) -> Path | None:
        """Folder of the run that reference rows belong to."""
        return next(iter(self.runs.values())).out if self.runs else None

    def place(self, given: str | Path | None, name: str) -> Path:
        """Where files go: where it was said, else into the run's folder.

        Raises:
            ConfigError: There is neither.
        """
        if given is not None:
            return Path(given).expanduser().resolve()
        if self.home is None:
            raise ConfigError(f"{self.kind} writes into the folder of the run, and this run has none: give it a place.")
        return self.home / name

    def _keep(
        self, place: tuple[str, int], number: int, row: Mapping[str, Any], clients: Sequence[ClientRound] = ()
    ) -> None:
        kept = self._kept[place]
        if number not in kept:
            self.keep(*place, number, _as_reported(row), clients)
            kept.add(number)

    def _do(self, action: Callable[[], None]) -> None:
        """Have the store do something, after what it still has to do."""
        self._waiting.append(action)
        if time.monotonic() >= self._retry_at:
            self._drain()

    def _drain(self) -> None:
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:
                self._retry_at = time.monotonic() + RETRY_SECONDS
                if not self._has_failed:
                    self._has_failed = True
                    reason = one_line(f"{type(error).__name__}: {error}", 160)
                    self.say(f"{self.kind} could not keep what the run reports ({reason}). The run goes on; this is "
                             f"tried again now and then.")  # fmt: skip
                return
            self._waiting.popleft()


def _as_reported(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A round's row with the scores of the mode that was reported as things stood; those of the first are a mode's."""
    if row.get("reported") is None:
        return row
    both = ("validation", "test")
    modes = {"first": {name: row[name] for name in both}, **row["modes"]}
    return {**row, **{name: reported_scores(row)[name] for name in both}, "modes": modes}


def _identity(run: RunStarted) -> str:
    """Its name in stores: kept in its folder, so that a run that is resumed finds itself again."""
    path = None if run.out is None else run.out / "tracking.json"
    if path is not None and run.resumed and path.exists():
        return str(disk.read_json(path, "the run's name in trackers")["run"])
    if path is not None:
        disk.write_json(path, {"run": run.identity})
    return run.identity


def numbers(
    row: Mapping[str, Any], clients: Sequence[ClientRound] = (), names: Mapping[int, str] | None = None
) -> dict[str, float]:
    """The finite numbers of a round under names with slashes, as trackers group them.

    Example:
        >>> numbers({"round": 3, "validation": {"accuracy": 0.5, "auc": None}, "upload_bytes": 8})
        {'validation/accuracy': 0.5, 'upload_bytes': 8}
    """
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found.update({f"{name}/{inner}": each for inner, each in numbers(value).items()})
        elif name != "round" and isinstance(value, int | float) and math.isfinite(value):
            found[name] = value
    for one in clients:
        who = f"client/{(names or {}).get(one.client, one.client)}"
        each = {"validation": one.validation, "test": one.test, "upload_bytes": one.upload_bytes,
                "download_bytes": one.download_bytes, "cpu_seconds": one.cpu_seconds}  # fmt: skip
        found.update({f"{who}/{name}": value for name, value in each.items() if value is not None})
    return found


def artefacts(run: RunStarted) -> list[Path]:
    """Files of a finished run that say what it was and what it came to."""
    names = ("config.yaml", "result.json", "report.html")
    return [] if run.out is None else [path for name in names if (path := run.out / name).exists()]
