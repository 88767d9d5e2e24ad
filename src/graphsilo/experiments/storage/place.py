"""Where a run writes, if it writes: no stage of the run has to ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.participants import Participants
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.federation.ledger import Ledger

if TYPE_CHECKING:
    from graphsilo.experiments.storage.checkpoint import Checkpoints


class Place:
    """Nowhere: the run keeps nothing. A ``Folder`` does at each stage what is said here.

    Args:
        resume: Whether the run goes on.

    Attributes:
        path: The folder, if there is one.
        checkpoints: Of the run, once ``open`` has looked at them.
    """

    path: Path | None = None
    checkpoints: Checkpoints | None = None

    def __init__(self, *, resume: bool = False):
        self.resume = resume

    @staticmethod
    def of(path: str | Path | None, *, resume: bool) -> Place:
        """The folder of this path; None keeps nothing."""
        if path is None:
            return Place(resume=resume)
        from graphsilo.experiments.storage.folder import Folder

        return Folder(path, resume=resume)

    def reference(self, name: str) -> Place:
        """The place of a reference row."""
        return Place()

    def hold(self) -> AbstractContextManager[None]:
        """Keep others out."""
        return nullcontext()

    def adopt(self, config: RunConfig, own: Path | None, simulation: Participants) -> RunConfig:
        """The configuration with what was given in memory at its place here."""
        return config

    def open(
        self, config: RunConfig, simulation: Participants, fingerprint: str, settings: Mapping[str, Any]
    ) -> RunRecord | None:
        """The result that is here already, if it is finished."""
        return None

    def begin(self, settings: Mapping[str, Any], simulation: Participants) -> None:
        """Write what the run is made of."""

    def write(self, record: RunRecord, ledgers: list[tuple[int, Ledger]] | None = None) -> None:
        """Tables and result; without ledgers the result alone."""

    def draw(self, report: Callable[[Path], Any] | None, *, again: bool = True) -> None:
        """Have the report drawn, if somebody draws; ``again``: also where it is there."""
