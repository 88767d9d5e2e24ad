"""A long piece of work in steps: reported while it goes on, drawn as a curve, and continued where it was stopped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

MAX_POINTS = 100
"""Values of a curve that are kept, the last step's beside them."""


class Work:
    """The steps that one piece of work still has to take: ``for step in work``.

    Args:
        name: What a person reads.
        steps: How many there are, those that were taken before included.
        state: Everything that the next step depends on, tensors and plain values; None where that is not the server's
            alone, so that it cannot be stopped within.
        after: Called after each step.

    Attributes:
        done: Steps taken.
        curves: By name, [step, value] of the steps that are noted, steps counted from 1.
    """

    def __init__(
        self, name: str, steps: int, state: Callable[[], Mapping[str, Any]] | None, after: Callable[[Work], None]
    ):
        self.name, self.steps, self.done = name, steps, 0
        self.curves: dict[str, list[list[float | None]]] = {}
        self._state, self._after = state, after

    def __iter__(self) -> Iterator[int]:
        while self.done < self.steps:
            yield self.done
            self.done += 1
            self._after(self)

    @property
    def is_noted(self) -> bool:
        """Whether the values of the step that is being taken are kept; which are does not depend on time."""
        every = math.ceil(self.steps / MAX_POINTS)
        return self.done % every == 0 or self.done == self.steps - 1

    def note(self, **values: float) -> None:
        """Keep values of a step for the report, if it is one whose values are kept."""
        if self.is_noted:
            for name, value in values.items():
                # A number that is not finite is missing, as everywhere in the result.
                found = float(value) if math.isfinite(value) else None
                self.curves.setdefault(name, []).append([self.done + 1, found])

    def state(self) -> dict[str, Any] | None:
        """What ``load_state`` takes back; None where it cannot be stopped within."""
        if self._state is None:
            return None
        return {"name": self.name, "done": self.done, "curves": self.curves, "state": dict(self._state())}

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Go on after these steps; the work itself takes back its state."""
        self.done, self.curves = saved["done"], {name: list(points) for name, points in saved["curves"].items()}


Begin: TypeAlias = Callable[[int, Callable[[], Mapping[str, Any]], Callable[[Mapping[str, Any]], None]], Work]
"""Begins a piece of work whose name is known, of so many steps: a server's ``work``."""
