"""What a run reports while it goes on, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """What an observer is sent after each round.

    Attributes:
        seed: Seed of training.
        index, seeds: Which of how many seeds this is, from 1.
        round, rounds: Which of how many rounds; 0 is the set-up.
        validation, test: The first view's scores of this round, or None when it was not evaluated.
        best: Best validation score so far, and its round.
        upload_bytes, download_bytes: So far, set-up included.
        seconds: Wall time of this seed so far in this process.
    """

    seed: int
    index: int
    seeds: int
    round: int
    rounds: int
    validation: Mapping[str, float | None] | None
    test: Mapping[str, float | None] | None
    best: tuple[float, int] | None
    upload_bytes: int
    download_bytes: int
    seconds: float
    label: str = ""


@dataclass(frozen=True)
class Working:
    """What an observer is sent now and then while the server is at a long piece of work.

    Attributes:
        seed: Seed of training.
        index, seeds: Which of how many seeds this is, from 1.
        name: Of the work.
        step, steps: Steps taken, of how many.
        seconds: Wall time of this seed so far in this process.
        label: As of Progress.
    """

    seed: int
    index: int
    seeds: int
    name: str
    step: int
    steps: int
    seconds: float
    label: str = ""

    def __str__(self) -> str:
        return f"server: {self.name}, {self.step} of {self.steps} steps"


class Observer:
    """Receives the progress of a run, and ignores it unless a method is overridden. It changes no number."""

    def started(self, description: Mapping[str, Any]) -> None:
        """The data is ready; training begins."""

    def progressed(self, progress: Progress) -> None:
        """A round has ended."""

    def worked(self, working: Working) -> None:
        """A step of a long piece of the server's work has ended; called a few times a second."""

    def warned(self, text: str) -> None:
        """Something a person should know."""
