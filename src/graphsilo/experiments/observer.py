"""What a run reports while it goes on, and to whom.

The order of events of a run is::

    on_start
      on_seed_start  on_set_up  on_progress on_progress ...  on_seed_end      for each seed
      on_start ... on_end                                                     for each reference row, labelled
    on_end

with ``on_work`` and ``on_warning`` in between. A run that resumes begins with ``on_start`` again: each of its seeds
says where it goes on, and which rounds it brings with it. Rounds that came after the last checkpoint come again, with
the same scores and bytes; ``graphsilo.experiments.tracking.Tracker`` is for stores that are to have each round once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.experiments.storage.records import Seed
    from graphsilo.experiments.storage.results import Result


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """What is run.

    Attributes:
        label: Empty; of a reference row its name, e.g. "local".
        method, title: Name of the method, and how it is written.
        data: Name and counts of the data.
        clients: How many there are.
        names: What they are called, where they have names.
        rule: How the data was cut.
        bounds: Of a split by time, up to when items are trained on, validated and tested on; else empty.
        models: Backbones.
        seeds: Seeds of training.
        rounds: How many each has.
        workers: Processes that share the clients.
        config: Every setting, by section, as config.yaml has it.
        fingerprint: sha256 of configuration, data and partition.
        out: Folder of the run, or None.
        resumed: Whether it goes on from checkpoints.
        is_finished: Whether it was finished before: nothing is trained, and its seeds are only announced again.
    """

    label: str = ""
    method: str
    title: str
    data: Mapping[str, Any]
    clients: int
    names: Mapping[ClientId, str] = field(default_factory=dict)
    rule: str
    bounds: str = ""
    models: Sequence[str]
    seeds: Sequence[int]
    rounds: int
    workers: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    out: Path | None = None
    resumed: bool = False
    is_finished: bool = False

    @cached_property
    def identity(self) -> str:
        """A name that no other run has; all who hear of this run find the same one."""
        return secrets.token_hex(6)


@dataclass(frozen=True)
class SeedEvent:
    """Something of one seed.

    Attributes:
        seed: Seed of training.
        index, seeds: Which of how many seeds this is, from 1.
        label: As of RunStarted.
    """

    seed: int
    index: int
    seeds: int
    label: str = field(default="", kw_only=True)


@dataclass(frozen=True, kw_only=True)
class SeedStarted(SeedEvent):
    """A seed begins, or goes on.

    Attributes:
        rounds: How many rounds it has at most.
        setup: What its set-up came to, as result.json holds it; None where that is still to come.
        rows: The rounds that it goes on from, as result.json holds them: those of its checkpoint.
    """

    rounds: int
    setup: Mapping[str, Any] | None = None
    rows: Sequence[Mapping[str, Any]] = ()

    @property
    def round(self) -> int:
        """Number of the last round that is done, 0 where none is."""
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class SetUp(SeedEvent):
    """What comes before round 1 is done; ``row`` is what result.json holds of it."""

    row: Mapping[str, Any]


@dataclass(frozen=True)
class ClientRound:
    """What one client had to do with a round.

    Attributes:
        client: Its number.
        upload_bytes, download_bytes: Of the method's messages in this round.
        cpu_seconds: Of its steps, without evaluation.
        validation, test: The score that picks the best round, where it was evaluated and is seen; else None.
        is_failed: Whether a step of it failed.
    """

    client: ClientId
    upload_bytes: int
    download_bytes: int
    cpu_seconds: float
    validation: float | None
    test: float | None
    is_failed: bool


@dataclass(frozen=True)
class Progress(SeedEvent):
    """A round has ended.

    Attributes:
        round, rounds: Which of how many rounds.
        validation, test: This round's scores of the view that validation prefers so far, or None when it was not
            evaluated.
        best: Best validation score so far, and its round.
        upload_bytes, download_bytes: So far, set-up included.
        seconds: Wall time of this seed so far in this process.
        row: The round as result.json holds it: scores of all views, bytes, seconds, failures.
        each_client: Computes ``clients``, when it is asked for.
    """

    round: int
    rounds: int
    validation: Mapping[str, float | None] | None
    test: Mapping[str, float | None] | None
    best: tuple[float, int] | None
    upload_bytes: int
    download_bytes: int
    seconds: float
    row: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    each_client: Callable[[], Sequence[ClientRound]] = field(default=tuple, kw_only=True, repr=False, compare=False)

    @cached_property
    def clients(self) -> Sequence[ClientRound]:
        """The clients that were asked in this round, by number."""
        return self.each_client()


@dataclass(frozen=True)
class Working(SeedEvent):
    """The server is at a long piece of work, in set-up or in a round.

    Attributes:
        name: Of the work.
        step, steps: Steps taken, of how many.
        seconds: Wall time of this seed so far in this process.
    """

    name: str
    step: int
    steps: int
    seconds: float

    def __str__(self) -> str:
        return f"server: {self.name}, {self.step} of {self.steps} steps"


@dataclass(frozen=True, kw_only=True)
class SeedEnded(SeedEvent):
    """A seed is done; ``result`` is what result.json holds of it."""

    result: Seed


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """A run is over: it has a result, which is on disk, or it ended with an error.

    Attributes:
        label: As of RunStarted.
        result: Of the run.
        error: What ended it; KeyboardInterrupt where somebody stopped it.
    """

    label: str = ""
    result: Result | None = None
    error: BaseException | None = None


class Observer:
    """Hears what happens in a run. Override what is of interest; it changes no number.

    Events come one after the other, in the process of the run, outside of the times that the result records. An
    exception ends the run, which can be resumed from its last checkpoint: so a search gives up a run that does badly.
    """

    def on_start(self, run: RunStarted) -> None:
        """The data is ready; training begins."""

    def on_seed_start(self, event: SeedStarted) -> None:
        """A seed begins; or goes on from a checkpoint, after a resume or after a worker process was lost."""

    def on_set_up(self, event: SetUp) -> None:
        """What a seed does before round 1 is done."""

    def on_progress(self, progress: Progress) -> None:
        """A round has ended, and its checkpoint, where one is due, is written."""

    def on_work(self, working: Working) -> None:
        """A step of a long piece of the server's work has ended; called a few times a second."""

    def on_warning(self, text: str) -> None:
        """Something a person should know."""

    def on_seed_end(self, event: SeedEnded) -> None:
        """A seed is done."""

    def on_end(self, event: RunEnded) -> None:
        """The run is over, and everything is written; or it failed after it had started."""


def _to_all(event: str) -> Any:
    """A method that has every observer hear of an event."""

    def tell(self: Several, what: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(what)

    return tell


class Several(Observer):
    """Passes everything on to several observers, in their order."""

    def __init__(self, *observers: Observer):
        self.observers = observers

    on_start, on_seed_start = map(_to_all, ("on_start", "on_seed_start"))
    on_set_up, on_progress, on_work = map(_to_all, ("on_set_up", "on_progress", "on_work"))
    on_warning, on_seed_end, on_end = map(_to_all, ("on_warning", "on_seed_end", "on_end"))


class Beside(Several):
    """Of reference rows: what the run has been warned of is not said again for each of them."""

    def __init__(self, observer: Observer, said: Iterable[str]):
        super().__init__(observer)
        self.said = set(said)

    def on_warning(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            super().on_warning(text)
