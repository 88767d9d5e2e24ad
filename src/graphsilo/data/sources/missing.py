"""What stands in a feature's place where a cell is empty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import ConfigError, DataError, nearest, shown

Word: TypeAlias = Literal["refuse", "mean", "median", "indicator"]
Rule: TypeAlias = "Word | float"
"""What to do: a word, or the number itself that stands in an empty cell's place."""

INDICATOR = ":missing"
"""What the name of an indicator's column adds to the column's own."""


@dataclass(frozen=True)
class Missing:
    """Which rule holds for which column.

    Attributes:
        rules: By name of a column, by the beginning of names with ``*`` behind it, or by ``*`` for all others.
    """

    rules: Mapping[str, Rule]

    @classmethod
    def parse(cls, value: Any, where: str) -> Missing:
        """The rules that a person wrote: one for all columns, or one per column.

        Args:
            value: As written.
            where: What errors call the place.

        Raises:
            ConfigError: A rule is none.
        """
        given = value if isinstance(value, Mapping) else {"*": value}
        rules: dict[str, Rule] = {}
        for column, rule in given.items():
            if isinstance(rule, int | float) and not isinstance(rule, bool) and math.isfinite(rule):
                if column == "*":
                    raise ConfigError(
                        f"{where}: {rule} cannot stand for every column's empty cells. Give a number column by column, "
                        f"as in {{age: 60}}, or one of {', '.join(get_args(Word))} for all."
                    )
                rules[str(column)] = float(rule)
                continue
            known = [word for word in get_args(Word) if word == rule]
            if not known:
                place = f"{where}.{column}" if isinstance(value, Mapping) else where
                raise ConfigError(
                    f"{place} must be one of {', '.join(get_args(Word))}{' or a number' if column != '*' else ''}, or "
                    f"{'' if isinstance(value, Mapping) else 'a mapping of columns to those; '}got {shown(rule)}. "
                    f"{nearest(str(rule), get_args(Word))}"
                )
            rules[str(column)] = known[0]
        return cls(rules)

    def of(self, column: str) -> Rule:
        """The rule of a column: that of its name, else of the longest beginning, else of ``*``."""
        if column in self.rules:
            return self.rules[column]
        begins = [key for key in self.rules if key.endswith("*") and column.startswith(key[:-1])]
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

    Args:
        rule: Any but ``refuse``.
        values: The numbers of the rows that count.
        where: What an error calls the column.

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
