"""Tables in memory, from files or databases, and the words that place a fault: file, column, row, line and value."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.arrow import pa, pc
from graphsilo.data.sources.description import Character, Description, Encoding, Name
from graphsilo.data.sources.faults import Faults, lookalike
from graphsilo.errors import ConfigError, DataError, nearest
from graphsilo.settings import setting

_LARGEST_WHOLE = 2.0**63
Lines: TypeAlias = "Callable[[Sequence[int]], Sequence[int | None]]"
"""Numbers of rows, from 0 and ascending, to numbers of lines as the program of such files counts them."""
SHOWN_ROWS = 3
"""Offending rows that an error lists before it only counts."""


@dataclass(frozen=True)
class TableFile:
    """A table in a file.

    Attributes:
        path: Absolute.
        said: What the description says of such files.
    """

    path: Path
    said: TableSource

    @property
    def delimiter(self) -> str:
        """Between the columns of a CSV."""
        return "\t" if self.said.delimiter == "," and ".tsv" in self.path.name.lower()[-7:] else self.said.delimiter

    @property
    def address(self) -> tuple[Path, str]:
        """The file, and what of it."""
        return self.path, self.said.sheet or ""

    def __str__(self) -> str:
        return str(self.path) if self.said.sheet is None else f"{self.path}, sheet '{self.said.sheet}'"


_PLACES = frozenset({"dbname", "host", "hostaddr", "options", "port", "service"})
"""Options of an address that say which database it is."""


@dataclass(frozen=True)
class Query:
    """A table that a database is asked for.

    Attributes:
        text: One SELECT.
        connection: A URL of SQLAlchemy, or ``env:NAME`` for a variable that holds one; as written, hence maybe with a
            password.
        part: ``nodes`` or ``edges``.
        file: The description it stands in.
    """

    text: str
    connection: str
    part: str
    file: Path

    def __repr__(self) -> str:
        return f"Query({self.where})"

    @property
    def where(self) -> str:
        """What an error calls it."""
        return f"{self.short} ({self.file})"

    @property
    def short(self) -> str:
        return f"{self.part}.query"

    @property
    def address(self) -> tuple[Path | str, str]:
        """The database as it is named, without user and password, and what it is asked."""
        kind, _, place = self.connection.strip().partition("://")
        asked = " ".join(self.text.split()).rstrip("; ")
        if kind.lower().startswith("sqlite"):
            return self.file.parent / Path(place[1:].partition("?")[0]).expanduser(), asked
        server, _, database = re.sub(r"^[^:/]*(:[^@]*)?@", "", place).partition("/")
        name, _, options = database.partition("?")
        told = sorted(one for one in options.split("&") if one.partition("=")[0].lower() in _PLACES)
        return "/".join([re.sub(r":5432$", "", server.lower()), name, *told]) if place else kind, asked


@dataclass(frozen=True)
class Format:
    """A kind of file that holds a table.

    Attributes:
        name: For people.
        endings: Of the names of such files.
        read: (file, part of the description) -> the table as pyarrow, and where its rows are in the file, if known.
        options: Keys of a description that belong to such files alone.
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[TableFile, str], tuple[Any, Lines | None]]
    options: tuple[str, ...] = ()


class Table:
    """One table in memory. CSV columns stay text until it is known what they should be.

    Args:
        where, short: What errors call it.
        data: As pyarrow.
        faults: Takes what is wrong with values.
        lines: Says where rows are in the file.

    Raises:
        DataError: Two columns have one name.
    """

    def __init__(self, where: str, short: str, data: Any, faults: Faults, lines: Lines | None = None) -> None:
        self.where = where
        self.short = short
        self._data = data
        self.faults = faults
        self._lines = lines
        self.rows: int = data.num_rows
        self.names: list[str] = data.column_names
        self._places = {column: place for place, column in enumerate(self.names)}  # of wide tables at once
        double = next((column for place, column in enumerate(self.names) if self._places[column] != place), None)
        if double is not None:
            raise DataError(f"the table {where} has two columns called '{double}'; rename one.")

    @classmethod
    def of(cls, source: TableFile | Query, part: str, fetched: Mapping[Query, Any], faults: Faults) -> Table:
        """The table behind a part of the description, ``nodes`` or ``edges``.

        Raises:
            DataError: It is not there or cannot be read.
        """
        if isinstance(source, Query):
            return cls(source.where, source.short, fetched[source], faults)
        path = source.path
        if not path.is_file():
            there = path.parent.iterdir() if path.parent.is_dir() else ()
            near = lookalike(path.name, (each.name for each in there))
            hint = f"Did you mean '{near}'? Otherwise correct" if near else "Correct"
            raise DataError(
                f"the table {path} does not exist ({faults.where}: {part}.path). {hint} the path, which is relative to "
                f"the description's folder, or put the file there."
            )
        if path.stat().st_size == 0:
            raise DataError(f"the table {path} is empty; it needs a header and rows.")
        kind = format_of(path)
        if kind is None:
            raise DataError(f"the table {path} must be a file that ends in {ENDINGS}; save it as one of them.")
        try:
            data, lines = kind.read(source, part)
        except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
            raise DataError(f"the table {path} cannot be read: {str(error).strip().rstrip('.')}.") from error
        return cls(str(source), path.name, data, faults, lines)

    def rename(self, names: Mapping[str, str], *, key: str) -> bool:
        """Gives columns other names.

        Args:
            names: New names, with those that the table has.
            key: Where the YAML file says so.

        Returns:
            Whether it could be done; why not is noted as a fault.
        """
        before = len(self.faults.found)
        for new, old in names.items():
            with self.faults.collect():
                self.column(old, key=f"{key}.{new}")
                if new in self.names and new not in names.values():
                    raise DataError(f"{self.where} has a column '{new}' already: call '{old}' otherwise in {key}.")
        if len(self.faults.found) > before:
            return False
        called = {old: new for new, old in names.items()}
        self.names = [called.get(name, name) for name in self.names]
        self._places = {column: place for place, column in enumerate(self.names)}
        self._data = self._data.rename_columns(self.names)
        return True

    def replace_words(self, name: str, words: Mapping[str, str], *, key: str) -> None:
        """Has other words in place of some in a column, which is text from then on."""
        text = self.text(name, key=key)
        place = pc.index_in(text, value_set=pa.array([*words], pa.string()))
        known = pa.array([*words.values()], pa.string()).take(place)
        self._data = self._data.set_column(self._places[name], name, pc.if_else(pc.is_valid(known), known, text))

    def sort(self, name: str, *, key: str) -> None:
        """Puts the rows in the order of a column."""
        if not pa.types.is_null(self.column(name, key=key).type):
            self._data = self._data.sort_by(name)

    def column(self, name: str, *, key: str) -> Any:
        """A column as one pyarrow array; ``key`` is where the YAML file asked for it."""
        place = self._places.get(name)
        if place is None:
            raise DataError(f"{self.where} has no column '{name}' ({key}); {nearest(name, self.names)}")
        column = self._data.column(place)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.string())
        if str(column.type) == "extension<arrow.uuid>":
            column = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
        return column

    def text(self, name: str, *, key: str) -> Any:
        """A column of strings or whole numbers as stripped text; missing and blank cells are null."""
        column = self.column(name, key=key)
        if pa.types.is_floating(column.type):
            # pandas stores whole numbers with gaps as floats.
            column = column.cast(pa.float64())
            whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), _LARGEST_WHOLE))
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
            self._refuse_fractions(name, ~mask(pc.fill_null(whole, True)) & ~mask(pc.is_null(column)), column)
            column = column.cast(pa.int64())
        elif pa.types.is_decimal(column.type):
            self._refuse_fractions(name, ~mask(pc.fill_null(pc.equal(column, pc.round(column)), True)), column)
            column = column.cast(pa.decimal256(76, 0))
        elif not (
            pa.types.is_integer(column.type)
            or is_text(column.type)
            or pa.types.is_boolean(column.type)
            or pa.types.is_null(column.type)
        ):
            raise DataError(
                f"{self.where}: column '{name}' ({key}) holds {column.type}; wanted words or whole numbers."
            )
        words = pc.utf8_trim_whitespace(column.cast(pa.string()))
        return pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.string()), words)

    def _refuse_fractions(self, name: str, bad: NDArray[np.bool_], values: Any) -> None:
        """As :meth:`refuse`, at once: nothing can be read of such a column."""
        self.refuse(
            name, bad, "the value is neither a word nor a whole number of 64 bits", values=values,
            todo="Ids and classes must be one of the two; what is measured is cut into classes first.",
        )  # fmt: skip
        if bad.any():
            raise self.faults.found.pop()

    def refuse(self, name: str, bad: NDArray[np.bool_], fault: str, *, values: Any = None, todo: str = "") -> None:
        """Notes a fault that lists the first rows where ``bad`` holds; does nothing where there are none."""
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        lines = [None] * len(rows) if self._lines is None else self._lines(rows[:SHOWN_ROWS].tolist())
        shown = []
        for row, line in zip(rows[:SHOWN_ROWS].tolist(), lines, strict=False):
            place = f"row {row + 1}" if line is None else f"row {row + 1} (line {line})"
            value = None if values is None else values[row].as_py()
            shown.append(place if value is None else f"{place}: {value!r}")
        more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
        count = "one value" if len(rows) == 1 else f"{len(rows)} values"
        what = f"{self.where}: column '{name}' has {count} where {fault}: {'; '.join(shown)}{more}."
        self.faults.found.append(DataError(f"{what} {todo}".rstrip()))

    def unknown(
        self, name: str, bad: NDArray[np.bool_], fault: str, *, values: Any, known: Sequence[str], todo: str
    ) -> None:
        """As :meth:`refuse`, for words that are not among those declared; says which ones may be meant."""
        words = dict.fromkeys(values[row].as_py() for row in np.flatnonzero(bad)[:SHOWN_ROWS].tolist())
        meant = {word: lookalike(word, known) for word in words}
        pairs = [f"'{other}' where it says '{word}'" for word, other in meant.items() if other is not None]
        hint = f"Did you mean {' and '.join(pairs)}? Otherwise " if pairs else ""
        advice = f"{hint}{todo[0].lower()}{todo[1:]}" if hint else todo
        self.refuse(name, bad, fault, values=values, todo=advice)


# -- Formats -------------------------------------------------------------------------------------------------------


def _read_csv(source: TableFile, part: str) -> tuple[Any, Lines]:
    from pyarrow import csv as arrow

    path = source.path
    _check_text(source, part)
    try:
        with _open_text(source) as lines:
            header = next(csv.reader(lines, delimiter=source.delimiter), [])
    except csv.Error as error:
        raise DataError(f"the header of the table {path} cannot be read ({error}); is it a text file?") from error
    if any(_is_undecoded(cell) for cell in header):
        raise DataError(f"{path}: the header (line 1) {_undecoded(source, part)}")
    _check_delimiter(path, header, source.delimiter, part)
    if not source.said.header:
        header = [str(column + 1) for column in range(len(header))]
    # An empty cell is missing; everything else stays as it is written, so that the id 007 is not the id 7.
    convert = arrow.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    parse = arrow.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)
    read = arrow.ReadOptions(column_names=None if source.said.header else header, encoding=source.said.encoding)
    try:
        data = arrow.read_csv(path, read_options=read, parse_options=parse, convert_options=convert)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        fault = _find_fault(source, header, part)
        if fault is not None:
            raise DataError(f"{path}: {fault}") from error
        raise
    return data, partial(_find_lines, source)


def _read_parquet(source: TableFile, part: str) -> tuple[Any, None]:
    import pyarrow.parquet as pq

    return pq.read_table(source.path), None


def _read_excel(source: TableFile, part: str) -> tuple[Any, Lines]:
    from graphsilo.data.sources.excel import read_sheet

    data, numbers = read_sheet(source.path, source.said.sheet, part)
    return data, lambda rows: [numbers[row] for row in rows]


FORMATS = (
    Format("CSV", (".csv", ".csv.gz", ".tsv", ".tsv.gz"), _read_csv, ("delimiter", "header", "encoding")),
    Format("Parquet", (".parquet", ".pq"), _read_parquet),
    Format("Excel", (".xlsx", ".xlsm"), _read_excel, ("sheet",)),
)
"""Everything that is known of each kind of table file: a further one is one more entry, its options those below."""
ENDINGS = ", ".join(ending for kind in FORMATS for ending in kind.endings)


class TableSource(Description):
    """Where a table is: in a file, or in a database."""

    path: Name | None = setting(None, f"a file that ends in {ENDINGS}, relative to this one")
    query: Name | None = setting(None, "one SELECT, in place of a file")
    connection: Name | None = setting(None, "of the query, such as env:WARD_DB")
    delimiter: Character = setting(",", "what stands between the cells of a CSV file")
    header: bool = setting(True, "whether a CSV file begins with names of columns; else they are called 1, 2, 3, ...")
    encoding: Encoding = setting("utf-8", "of a CSV file")
    sheet: Name | None = setting(None, "of an Excel file; none: the first")

    def place(self, file: Path, part: str) -> TableFile | Query:
        """The file or the query that a table is read from.

        Args:
            file: Where the description stands.
            part: What it calls the table.

        Raises:
            ConfigError: It names none, or two, or an option of other files.
        """
        path, query, connection = self.path, self.query, self.connection
        options = {key: kind for kind in FORMATS for key in kind.options if key in self.model_fields_set}
        if path is not None and query is None and connection is None:
            place = file.parent / Path(path).expanduser()
            mine = format_of(place)
            for key, kind in options.items():
                if mine not in (None, kind):
                    raise ConfigError(
                        f"{file}: {part}.{key} belongs to files of {kind.name}, and {place.name} is none. Leave it out."
                    )
            return TableFile(place, self)
        if path is None and query is not None and connection is not None:
            if options:
                key = next(iter(options))
                raise ConfigError(f"{file}: {part}.{key} belongs to a file; a query has columns already.")
            return Query(query, connection, part, file)
        if path is not None:
            raise ConfigError(
                f"{file}: {part} names a path and a {'query' if query is not None else 'connection'}; a table comes "
                f"from a file (path) or from a database (query and connection)."
            )
        lacking = "path" if query is None and connection is None else "query" if query is None else "connection"
        also = f"; or {part}.query and {part}.connection for a database" if lacking == "path" else ""
        raise ConfigError(f"{file}: {part}.{lacking} is missing{also}.")


def format_of(path: Path) -> Format | None:
    """The kind of file that a name ends like; None where there is none."""
    return next((kind for kind in FORMATS if path.name.lower().endswith(kind.endings)), None)


def _check_text(source: TableFile, part: str) -> None:
    """Refuses a CSV by name that is something else by its first bytes."""
    path = source.path
    if path.suffix.lower() == ".gz":
        return
    with path.open("rb") as file:
        head = file.read(4)
    if head.startswith(b"\x1f\x8b"):
        raise DataError(
            f"the table {path} is compressed by gzip, and its name does not say so: call it {path.name}.gz."
        )
    if head.startswith(b"PK"):
        raise DataError(f"the table {path} is a ZIP archive or a sheet of Excel: unpack it, or call it .xlsx.")
    if source.said.encoding == "utf-8" and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head):
        raise DataError(f"the table {path} is text in UTF-16. Set {part}.encoding: utf-16, or save it as UTF-8.")


def _open_text(source: TableFile) -> io.TextIOWrapper:
    """Text lines; bytes that are none in the file's encoding come as lone surrogates, see :func:`_is_undecoded`."""
    path, encoding = source.path, source.said.encoding
    raw: Any = gzip.GzipFile(path) if path.name.lower().endswith(".gz") else path.open("rb")
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape", newline="")


def _data_rows(lines: Iterable[str], source: TableFile) -> Iterator[tuple[int, int, list[str]]]:
    """Number from 0, line in the file and cells of each row below the header; blank lines are no rows."""
    reader = csv.reader(lines, delimiter=source.delimiter)
    if source.said.header:
        next(reader, None)
    row, line = 0, reader.line_num + 1
    for cells in reader:
        if cells:
            yield row, line, cells
            row += 1
        line = reader.line_num + 1


def _find_lines(source: TableFile, rows: Sequence[int]) -> list[int | None]:
    """Only asked for in errors: text cells may hold line breaks, so the file is read."""
    found: dict[int, int] = {}
    with _open_text(source) as lines:
        for row, line, _ in _data_rows(lines, source):
            if row in rows:
                found[row] = line
            if row >= rows[-1]:
                break
    return [found.get(row) for row in rows]


def _is_undecoded(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= sign <= "\udcff" for sign in text)


def _undecoded(source: TableFile, part: str) -> str:
    """What an error says of bytes that are no text."""
    how = source.said.encoding.upper()
    return (
        f"holds bytes that are not {how}. Say what the table is written in, as {part}.encoding: cp1252 for most older "
        f"exports of Windows, or save it as UTF-8."
    )


def _check_delimiter(path: Path, header: Sequence[str], delimiter: str, part: str) -> None:
    """Refuses a header in one piece that another sign would take apart."""
    if len(header) != 1:
        return
    for sign, shown in ((";", "';'"), ("\t", '"\\t"'), ("|", "'|'"), (",", "','")):
        if sign != delimiter and sign in header[0]:
            word = "a tab" if sign == "\t" else f"'{sign}'"
            raise DataError(
                f"{path}: the header is one column, '{_short(header[0])}', with {delimiter!r} between columns; the "
                f"table seems to be separated by {word}. Set {part}.delimiter: {shown} in the description."
            )


def _find_fault(source: TableFile, header: Sequence[str], part: str) -> str | None:
    """The first row that has too few or too many cells, or is no UTF-8, in words; None if no such row is found."""
    row, line = 0, 1
    try:
        with _open_text(source) as lines:
            for row, line, cells in _data_rows(lines, source):
                place = f"row {row + 1} (line {line})"
                bad = next((number for number, cell in enumerate(cells) if _is_undecoded(cell)), None)
                if bad is not None:
                    column = f", column '{header[bad]}'," if bad < len(header) else ""
                    return f"{place}{column} {_undecoded(source, part)}"
                if len(cells) != len(header):
                    wrong = "few" if len(cells) < len(header) else "many"
                    first = "header" if source.said.header else "first row"
                    return (
                        f"{place} has too {wrong} cells, {len(cells)} where the {first} has {len(header)}: "
                        f"'{_short(source.delimiter.join(cells))}'. Correct the row; a cell that holds the separator "
                        f"{source.delimiter!r} itself needs double quotes round it."
                    )
    except csv.Error as error:
        return f"the rows after line {line} cannot be read as CSV ({error})."
    return None


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def mask(array: Any) -> NDArray[np.bool_]:
    """A pyarrow boolean array as numpy; null is false."""
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def is_text(kind: Any) -> bool:
    """Whether a pyarrow type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def distinct(words: Any) -> list[str]:
    """The words of a pyarrow array, each once."""
    return [word for word in words.unique().to_pylist() if word is not None]
