"""Whatever is drawn, every door gives the same run: scores, references, warnings, models, bit for bit.

``GRAPHSILO_DRAWS=3000 pytest tests/experiments/test_doors_property.py`` draws more, those that take long among them;
``GRAPHSILO_FIRST_DRAW`` says where to begin.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.draws import DOORS, Belongings, Draw, Told, attempt, belongings, call, drawn

USUAL, QUICK = 300, 80
"""Draws where nobody asks for more, and those of them that are no slow tests."""
DRAWS = int(os.environ.get("GRAPHSILO_DRAWS") or USUAL)
FIRST = int(os.environ.get("GRAPHSILO_FIRST_DRAW", "0"))
TOGETHER = 20
IDLE = "would have no effect"


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Belongings:
    return belongings(tmp_path_factory.mktemp("mine"))


def chosen(number: int, draw: Draw) -> list[str]:
    """Two doors, others from draw to draw; those that take long now and then."""
    fits = [name for name, door in DOORS.items() if door.every == 1 and door.fits(draw)]
    now = [name for name, door in DOORS.items() if door.every > 1 and number % door.every == 0 and door.fits(draw)]
    return [fits[number % len(fits)], *now] if DRAWS <= USUAL else [*fits, *now]


def differences(draw: Draw, first: Told, name: str, other: Told) -> list[str]:
    """What a door made otherwise."""
    door = DOORS[name]
    if first.refused:
        # What a file says for several runs and is idle in this one is remarked on, and what a call says is refused.
        if not door.refuses and IDLE in first.refused:
            return []
        kind, _, text = first.refused.partition(": ")
        ours = other.refused.partition(": ")[2]
        return [] if other.refused and (ours == text or not door.refuses) else [f"{kind} {text} / {other.refused}"]
    if other.refused:
        return [other.refused]
    return [part for part in door.same if getattr(first, part) != getattr(other, part)]


def starts() -> list[Any]:
    """The first draw of each test."""
    return [
        pytest.param(start, marks=[pytest.mark.slow] if start >= FIRST + QUICK else [])
        for start in range(FIRST, FIRST + DRAWS, TOGETHER)
    ]


@pytest.mark.parametrize("start", starts())
def test_every_door_gives_the_same_run(start: int, mine: Belongings, tmp_path: Path) -> None:
    wrong, ran = [], 0
    for number in range(start, min(start + TOGETHER, FIRST + DRAWS)):
        draw = drawn(number, mine, long=DRAWS > USUAL)
        place = tmp_path / str(number)
        place.mkdir()
        first = attempt(call, draw, place / "first", place)
        ran += not first.refused
        for name in chosen(number, draw):
            if first.refused and name == "its own configuration":
                continue
            other = attempt(DOORS[name].carry_out, draw, place / name.replace(" ", "-"), place / "first")
            wrong += [f"{draw}\n  {name}: {text}" for text in differences(draw, first, name, other)]
        shutil.rmtree(place)
    assert not wrong, "\n".join(wrong)
    assert ran, "every draw was refused"
