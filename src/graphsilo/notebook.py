"""Small tables for notebooks: plain HTML that takes its colours from the page around it, light or dark."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape

LONGEST = 12
"""Rows that a table has before the rest is only counted."""
_CELL = "padding:0.15em 0.8em;border:0;background:none;color:inherit;white-space:nowrap;text-align:"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """A table with a title. The first column is names, the others are numbers; None is left empty.

    Example:
        >>> "<td" in table("One", ["client", "nodes"], [["<north>", 3]])
        True
        >>> "<north>" in table("One", ["client", "nodes"], [["<north>", 3]])
        False
    """
    if len(rows) > LONGEST:
        more = f"… and {len(rows) - LONGEST + 1} more"
        rows = [*rows[: LONGEST - 1], [more, *[None] * (len(head) - 1)]]
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    below = "".join(f'<div style="opacity:0.75">{escape(text)}</div>' for text in notes)
    return (
        f'<div style="color:inherit;overflow-x:auto"><b>{escape(title)}</b>'
        f'<table style="border-collapse:collapse;margin:0.4em 0;color:inherit">'
        f'<thead style="border-bottom:1px solid currentColor"><tr>{_cells(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table>{below}</div>"
    )


def _cells(row: Sequence[object], tag: str) -> str:
    sides = ["left", *["right"] * (len(row) - 1)]
    return "".join(
        f'<{tag} style="{_CELL}{side}">{"" if value is None else escape(_text(value))}</{tag}>'
        for side, value in zip(sides, row, strict=True)
    )


def _text(value: object) -> str:
    """Whole numbers from 10 000 on with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) and value >= 10_000 else str(value)


def is_notebook() -> bool:
    """Whether what is printed goes into a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
