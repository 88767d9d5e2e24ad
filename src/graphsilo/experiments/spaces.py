"""What tuning tries of each method where nobody says otherwise: ``spaces.yaml``."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from graphsilo import documents
from graphsilo.federation import registry
from graphsilo.federation.settings import LocalTrainingConfig


def default_spaces(method: str) -> list[dict[str, list[Any]]]:
    """A method's tables of settings and their values, of which one is drawn at a time; none for a method that has none.

    One that is not listed and trains locally, such as a person's own, has the learning rates of FedAvg.

    Args:
        method: Its name, as the registry spells it.
    """
    found = _every().get(method, [])
    if not found and method in {*registry.names(), *registry.registered()}:
        found = _every()["fedavg"] if issubclass(registry.load(method).config, LocalTrainingConfig) else []
    return [dict(table) for table in found]


@cache
def _every() -> dict[str, list[dict[str, list[Any]]]]:
    with resources.as_file(resources.files("graphsilo.experiments") / "spaces.yaml") as path:
        return dict(documents.read(path, "the spaces of methods", references=50))
