"""What a person may say of empty cells; what is done to them stands in :mod:`graphsilo.data.sources.missing`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BeforeValidator

from graphsilo.settings import must_be

Word: TypeAlias = Literal["refuse", "mean", "median", "indicator"]
Rule: TypeAlias = "Word | float"
"""What to do: a word, or the number itself that stands in an empty cell's place."""


def _by_column(value: Any) -> Any:
    """Names of columns as text; a number stands for one column's cells."""
    rules = {str(key): rule for key, rule in value.items()} if isinstance(value, dict) else value
    if type(rules.get("*") if isinstance(rules, dict) else rules) in (int, float):
        raise must_be(f"a number column by column, as in {{age: 60}}, or one of {', '.join(get_args(Word))} for all")
    return rules


Rules: TypeAlias = Annotated[Word | dict[str, Word | float], BeforeValidator(_by_column)]
"""Type of a setting that says the rules: one for all columns, or one per column."""
