"""What tuning tries of each method where nobody says otherwise: ``spaces.yaml``."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from graphsilo import documents


def default_spaces(method: str) -> list[dict[str, list[Any]]]:
    """A method's tables of settings and their values, of which one is drawn at a time; none for a method that has none.

    Args:
        method: Its name, as the registry spells it.
    """
    return [dict(table) for table in _every().get(method, [])]


@cache
def _every() -> dict[str, list[dict[str, list[Any]]]]:
    with resources.as_file(resources.files("graphsilo.experiments") / "spaces.yaml") as path:
        return dict(documents.read(path, "the spaces of methods", references=50))
