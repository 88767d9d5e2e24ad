"""What is said of known methods that are not here: ``Method.near``."""

from __future__ import annotations

from graphsilo.federation.registry import listings, plain_name


def missing(name: str) -> str:
    """That a known method is not here, and which is the nearest in kind; empty for any other name."""
    found = ((text, each) for each in listings() for text in each.near if plain_name(text) == plain_name(name))
    return next(
        (f"{text} is not in graphsilo; nearest in kind: {each.title} ({each.name})." for text, each in found), ""
    )
