"""Tables for other programs, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""With what a cell begins that a spreadsheet computes; some take signs of double width for the same."""


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would compute gets an apostrophe before it; numbers are as they are.

    Example:
        >>> csv_text([["=1+1", "-0.5", -2, "a,b", None]])
        "'=1+1,-0.5,-2,\\"a,b\\",\\n"
    """
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([[_plain(cell) for cell in row] for row in rows])
    return file.getvalue()


def _plain(cell: Any) -> Any:
    if not isinstance(cell, str) or not (cell.startswith(_FORMULA) or cell.lstrip().startswith(_FORMULA)):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
