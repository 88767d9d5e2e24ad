"""Sheets of Excel files (.xlsx) as tables, their numbers, truth values and dates typed as Excel has them."""

from __future__ import annotations

import datetime
import re
import string
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphsilo.data.sources.arrow import pa
from graphsilo.errors import DataError, installing

MOST_CELLS = 50_000_000
"""Of a sheet, empty ones included: all of them are in memory at once."""


def read_sheet(path: Path, sheet: str | None, part: str) -> tuple[Any, list[int]]:
    """One sheet of a file.

    Args:
        path: The file.
        sheet: Its name; None where the file has one sheet only.
        part: ``nodes`` or ``edges``, for what an error advises.

    Returns:
        A pyarrow table, and the number that Excel gives to each of its rows. The first row that is not empty is the
        header; empty rows are no rows. A cell with an error (#N/A) is empty, as is a formula that was never computed.

    Raises:
        DataError: The package is missing, the file cannot be read, or there is no such sheet or header.
    """
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise DataError(
            f"the table {path} is an Excel file, which needs the package python-calamine; it is not installed. "
            f"{installing('excel')}"
        ) from error
    try:
        book = calamine.CalamineWorkbook.from_path(path)
        names = book.sheet_names
        chosen = _choose_sheet(path, sheet, names, part)
        _check_reach(path)
        rows = book.get_sheet_by_name(chosen).to_python(skip_empty_area=False)
    except calamine.PasswordError as error:
        raise DataError(f"the table {path} is protected by a password; save it without one.") from error
    except (calamine.CalamineError, zipfile.BadZipFile, zlib.error, OSError, ValueError) as error:
        raise DataError(
            f"the table {path} cannot be read as an Excel file ({str(error).strip().rstrip('.')})."
        ) from error
    filled = [(number, row) for number, row in enumerate(rows, start=1) if any(cell != "" for cell in row)]
    if not filled:
        raise DataError(f"the table {path} is empty; it needs a header and rows.")
    (line, header), *below = filled
    used = [place for place in range(len(header)) if header[place] != "" or any(row[place] != "" for _, row in below)]
    bare = next((place for place in used if header[place] == ""), None)
    if bare is not None:
        raise DataError(
            f"{path}: column {_letters(bare)} holds values but has no name in the header (row {line}). Name it, or "
            f"empty it; the header must be the first row that is not empty."
        )
    columns = [_column([row[place] for _, row in below]) for place in used]
    named = [_text(header[place]).strip() for place in used]
    return pa.Table.from_arrays(columns, names=named), [number for number, _ in below]


def _check_reach(path: Path) -> None:
    """Refuses a file one of whose sheets reaches too far, before its cells are read: the reader makes room for all of
    them up to the last row and column, and a process that has not so much memory ends there."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():  # any of them may be a sheet
            row = column = unplaced = rows = 0
            with archive.open(name) as lines:
                rest = b""
                while block := lines.read(1 << 20):
                    whole, sign, end = (rest + block).rpartition(b"<")  # no element is cut in two
                    rest = sign + end
                    places = _PLACE.findall(whole)
                    letters = [place.rstrip(_DIGITS) for place in places]
                    row = max([row, *map(int, {place.lstrip(_LETTERS) for place in places})])
                    column = max([column, *map(_number, set(letters))])
                    rows += len(_ROW.findall(whole))
                    unplaced += len(_CELL.findall(whole)) - len(letters) + letters.count(b"")
            # A row or cell that does not say where it is comes after the one before.
            row, column = row + rows, column + max(unplaced, 0)
            if row * column > MOST_CELLS:
                raise DataError(
                    f"the table {path} ({name}) reaches to row {row} and column {_letters(column - 1)}: "
                    f"{row * column:,} cells, where {MOST_CELLS:,} are read. Remove cells far out, or save it as CSV."
                )


_PLACE = re.compile(rb"""r\s*=\s*["']([A-Za-z]{0,3}[0-9]{1,9})""")
_LETTERS, _DIGITS = string.ascii_letters.encode(), string.digits.encode()
_CELL = re.compile(rb"[<:]c[\s/>]")
_ROW = re.compile(rb"[<:]row(?![^>]*\br\s*=)[\s/>]")


def _number(letters: bytes) -> int:
    """Number of a column from 1, by Excel's name; 0 without one."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - ord("A") + 1
    return number


def _choose_sheet(path: Path, sheet: str | None, names: Sequence[str], part: str) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    if sheet is None and len(names) != 1:
        raise DataError(f"{path} has the sheets {listed}: say which one to read, as {part}.sheet.")
    if sheet is not None and sheet not in names:
        raise DataError(f"{path} has no sheet '{sheet}' ({part}.sheet); it has {listed}.")
    return sheet or names[0]


def _column(cells: Sequence[Any]) -> Any:
    """One column, of the type that its cells have; text where they differ."""
    values = [None if cell == "" else cell for cell in cells]
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds <= {datetime.date, datetime.datetime}:
        moments = [None if value is None else _moment(value) for value in values]
        return pa.array(moments, pa.timestamp("us"))
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _moment(day: datetime.date) -> datetime.datetime:
    return day if isinstance(day, datetime.datetime) else datetime.datetime.combine(day, datetime.time())


def _text(cell: Any) -> str:
    """As a person reads the cell: Excel keeps the whole number 7 as 7.0."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def _letters(column: int) -> str:
    """Excel's name of a column, counted from 0.

    Example:
        >>> _letters(0), _letters(25), _letters(26)
        ('A', 'Z', 'AA')
    """
    name = ""
    while column >= 0:
        name = chr(ord("A") + column % 26) + name
        column = column // 26 - 1
    return name
