"""Tables for other programs, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""With what a cell begins that a spreadsheet computes; some take signs of double width for the same."""


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would compute gets an apostrophe before it; numbers are as they are.

    Example:
        >>> print(csv_text([["=1+1", "-0.5", -2, "a,b", None]]), end="")
        '=1+1,-0.5,-2,"a,b",
    """
    lines: list[str] = []
    # With this end of a line the writer quotes cells that hold either of its signs; lines end in one all the same.
    kept = SimpleNamespace(write=lambda line: lines.append(f"{line[:-2]}\n"))
    csv.writer(kept, lineterminator="\r\n").writerows([_plain(cell) for cell in row] for row in rows)
    return "".join(lines)


def _plain(cell: Any) -> Any:
    if not isinstance(cell, str) or not (cell.startswith(_FORMULA) or cell.lstrip().startswith(_FORMULA)):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
