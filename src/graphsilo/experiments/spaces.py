"""What tuning tries of each method where nobody says otherwise: ``Method.space``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphsilo.federation import registry
from graphsilo.federation.settings import LocalTrainingConfig

RATES = (
    {"optimizer": ["adam"], "lr": [0.001, 0.003, 0.01, 0.03]},
    {"optimizer": ["sgd"], "lr": [0.05, 0.2, 0.5, 1.0]},
)
"""For a method that has nothing else to tune."""
FEWER_RATES = (
    {"optimizer": ["adam"], "lr": [0.003, 0.01, 0.03]},
    {"optimizer": ["sgd"], "lr": [0.2, 0.5, 1.0]},
)
"""Beside settings of its own."""


def default_spaces(method: str) -> list[dict[str, list[Any]]]:
    """A method's tables of settings and their values, of which one is drawn at a time; none for a method that has none.

    One that says nothing and trains locally has the learning rates.

    Args:
        method: Its name, as the registry spells it.
    """
    found = registry.listing(method)
    if found is None:
        return []
    tables: Any = found.space
    if isinstance(tables, Mapping):
        tables = [{**rates, **tables} for rates in FEWER_RATES]
    elif not tables and issubclass(registry.load(method).config, LocalTrainingConfig):
        tables = RATES
    return [{f"method.{name}": list(values) for name, values in table.items()} for table in tables]
