"""What stands in a feature's place where a cell is empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from graphsilo.errors import ConfigError, DataError, nearest
from graphsilo.settings import wanted

Word: TypeAlias = Literal["refuse", "mean", "median", "indicator"]
Rule: TypeAlias = "Word | float"
"""What to do: a word, or the number itself that stands in an empty cell's place."""


def _by_column(value: Any) -> Any:
    """Names of columns as text; a number stands for one column's cells."""
    rules = {str(key): rule for key, rule in value.items()} if isinstance(value, dict) else value
    if type(rules.get("*") if isinstance(rules, dict) else rules) in (int, float):
        raise wanted(f"a number column by column, as in {{age: 60}}, or one of {', '.join(get_args(Word))} for all")
    return rules


Rules: TypeAlias = Annotated[Word | dict[str, Word | float], BeforeValidator(_by_column)]
"""Type of a setting that says the rules: one for all columns, or one per column."""
ESTIMATES: tuple[Rule, ...] = ("mean", "median", "indicator")
"""Rules by which other rows decide what an empty cell becomes; beside an indicator it is their mean."""
EMPTY_WORDS = ("NA", "N/A", "#N/A", "NaN", "null", "none")
"""What stands for an empty cell in columns of numbers, truth values and dates, in any case."""
UNLABELLED = (*EMPTY_WORDS, "unknown", "?", "-")
"""What stands for no class in a column of labels, in any case, unless it is declared to be one."""
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
    def said(cls, value: Word | Mapping[str, Rule] | None) -> Missing:
        """The rules that a setting of type ``Rules`` holds; none refuses every empty cell."""
        return cls({} if value is None else dict(value) if isinstance(value, Mapping) else {"*": value})

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
