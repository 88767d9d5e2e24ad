"""What stands in a feature's place where a cell is empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.empty import Rule, Word
from graphsilo.errors import ConfigError, DataError, nearest, several

ESTIMATES: tuple[Rule, ...] = ("mean", "median", "indicator")
"""Rules by which other rows decide what an empty cell becomes; beside an indicator it is their mean."""
EMPTY_WORDS = ("na", "n/a", "#n/a", "nan", "null", "none")
"""What stands for an empty cell in columns of numbers, truth values and dates, in any case."""
UNLABELLED = (*EMPTY_WORDS, "unknown", "?", "-")
"""What stands for no class in a column of labels, in any case, unless it is declared to be one."""
INDICATOR = ":missing"
"""What the name of an indicator's column adds to the column's own."""
_FAR = 10.0
"""How many ranges of all other values a value must lie beyond them to be far from all."""
_ENOUGH = 5
"""Distinct values of a column from which some of them can be far from the others."""
_AT_EACH_END = 3
"""Most distinct values at one end of a column that are looked at as far from the others."""


def unlabelled_note(column: str, counts: Mapping[str, int], todo: str, what: str = "nodes") -> str:
    """Says which words of a column of labels stand for none, and what to do where one is a class."""
    listed = several((f"'{word}' ({count})" for word, count in counts.items()), 3)
    return f"{column}: {what} with {listed} count as unlabelled; where such a word is a class, {todo}"


@dataclass(frozen=True)
class Missing:
    """Which rule holds for which column.

    Attributes:
        rules: By name of a column, by the beginning of names with ``*`` behind it, or by ``*`` for all others.
    """

    rules: Mapping[str, Rule]

    @classmethod
    def parse(cls, value: Word | Mapping[str, Rule] | None) -> Missing:
        """The rules that a setting of type ``Rules`` holds; none refuses every empty cell."""
        return cls({} if value is None else dict(value) if isinstance(value, Mapping) else {"*": value})

    def of(self, *column: str) -> Rule:
        """The rule of a column, by all that it is called: of a name, else of the longest beginning, else of ``*``."""
        for name in column:
            if name in self.rules:
                return self.rules[name]
        begins = [key for key in self.rules if key.endswith("*") and any(name.startswith(key[:-1]) for name in column)]
        return self.rules[max(begins, key=len)] if begins else "refuse"

    def check(self, columns: Iterable[str], where: str) -> None:
        """Refuses a rule for a column that is no feature.

        Raises:
            ConfigError: Names it.
        """
        known = list(columns)
        for key in self.rules:
            if key == "*" or key in known:
                continue
            if not (key.endswith("*") and any(column.startswith(key[:-1]) for column in known)):
                raise ConfigError(f"{where}: '{key}' is no column of features; {nearest(key, known)}")


REFUSE = Missing({})


def fill_value(rule: Rule, values: NDArray[np.float64], where: str) -> float:
    """What an empty cell of a column of numbers becomes.

    Raises:
        DataError: There is no number to go by.
    """
    if not isinstance(rule, str):
        return rule
    if not len(values):
        raise DataError(
            f"{where} is empty in every row that counts, so that there is no "
            f"{'median' if rule == 'median' else 'mean'} to fill it with. Say which number to take (missing: {{COLUMN: "
            f"1.5}}), or leave the column out here and at every other silo."
        )
    return float(np.median(values) if rule == "median" else values.mean())


def flat_notes(values: NDArray[np.floating], names: Sequence[str]) -> list[str]:
    """A sentence about the columns of one value alone.

    Args:
        values: [n, d].
        names: Of the columns; those without one are passed over.
    """
    if len(values) < 2:
        return []
    flat = [f"'{name}'" for place, name in enumerate(names) if name and (values[:, place] == values[0, place]).all()]
    return [f"{several(flat, 3)}: constant, the same value in every row, which tells nothing"] if flat else []


def far_notes(values: NDArray[np.floating], names: Sequence[str], fills: Mapping[str, float]) -> list[str]:
    """A sentence for each column with a slip of the keyboard, or a code for an empty cell.

    Args:
        values: [n, d].
        names: Of the columns; those without one are passed over.
        fills: What stands for an empty cell already.
    """
    said = []
    for place, name in enumerate(names):
        found = far_value(values[:, place]) if name else None
        if found is not None and found[0] != fills.get(name):
            value, low, high = found
            rows = int((values[:, place] == value).sum())
            where = "one row" if rows == 1 else f"{rows} rows"
            said.append(
                f"'{name}': {value:g} in {where}, far from all others ({low:g} to {high:g}): a slip, or a code for an "
                f"empty cell? List such codes in nodes.empty"
            )
    return said


def far_value(values: NDArray[np.floating]) -> tuple[float, float, float] | None:
    """A value that is far from all others, if there is one: at either end, beside at most two others of that end.

    Laboratory values are skewed, so that a large one is not yet far. It is where it lies ten ranges of the others
    beyond them and, where it and they are above 0, further in logarithms, too, than they lie apart. A code for an empty
    cell may be nearer: -9, -99, -999 and so on are far where nothing else is below 0, as is -1 where it is the
    commonest value; so are 99, -99 and the like where they are the commonest, at an end, and apart from the others.

    Args:
        values: [n] of one column.

    Returns:
        The value, and the least and the greatest of the others.

    Example:
        >>> far_value(np.array([20.0, 35.0, 41.0, 58.0, 77.0, 90.0, -99.0]))
        (-99.0, 20.0, 90.0)
        >>> far_value(np.array([1.0, 2.0, 5.0, 20.0, 120.0, 900.0])) is None
        True
    """
    known, times = np.unique(values.astype(np.float64), return_counts=True)
    if len(known) <= _ENOUGH:
        return None
    for place, rest in ((0, known[1:]), (-1, known[:-1])):
        value, common = known[place], times[place] == times.max() > 1
        signed, apart = value < 0 <= rest[0], np.abs(rest - value).min() > np.diff(rest).max()
        nines = set(f"{abs(value):g}") == {"9"}
        if (nines and (signed or (common and apart))) or (value == -1 and signed and common):
            return float(value), float(rest[0]), float(rest[-1])
    for ends in range(1, 2 * _AT_EACH_END + 1):
        for above in range(min(ends, _AT_EACH_END), -1, -1):
            below = ends - above
            rest = known[below : len(known) - above]
            if below > _AT_EACH_END or len(rest) < _ENOUGH:
                continue
            nearest = [*known[:below][-1:], *known[len(known) - above :][:1]]
            if all(_is_far(value, rest) for value in nearest):
                return float(known[-1] if above else known[0]), float(rest[0]), float(rest[-1])
    return None


def _is_far(value: float, rest: NDArray[np.float64]) -> bool:
    """Whether a value lies far outside ascending others."""
    gap = value - rest[-1] if value > rest[-1] else rest[0] - value
    if gap <= _FAR * (rest[-1] - rest[0]):
        return False
    positive = rest[rest > 0]
    if value < rest[-1] or not len(positive):
        return True
    return bool(value / positive[-1] > positive[-1] / positive[0])
