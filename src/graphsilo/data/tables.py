"""Own data: a graph from two tables, nodes and edges, described by a short YAML file.

```yaml
name: hospital-a
nodes:
  path: nodes.csv             # .csv, .csv.gz or .parquet, relative to the YAML file
  id: patient                 # strings or whole numbers, each once
  label: outcome              # optional; an empty cell means unlabelled
  features: [age, "lab_*"]    # names, prefixes with *, or "*" for every column that is left
  one_hot: {ward: [icu, er]}  # or [ward], which takes the values that occur
  split: split                # optional column with train, val, test
edges: {path: edges.parquet, source: src, target: dst}
directed: false
classes: ["no", "yes"]        # optional fixed vocabulary, in the order of class numbers
```

A table may come from a database instead of a file: ``query`` and ``connection`` stand in place of ``path``; see
:mod:`graphsilo.data.sql`.

```yaml
nodes: {query: "SELECT patient, age FROM stays", connection: "env:WARD_DB", id: patient}
```

Where several silos describe their data this way, ``classes`` and the mapping form of ``one_hot`` make the columns of
all silos mean the same.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo import documents
from graphsilo.data.description import Reader
from graphsilo.data.graph import Graph
from graphsilo.data.sql import Query, read_queries
from graphsilo.data.transforms import compact_features, to_undirected
from graphsilo.errors import ConfigError, DataError, nearest

SHOWN_ROWS = 5
"""Offending rows that an error lists before it only counts."""
SPLIT_NAMES = ("train", "val", "test")

TABLE_KEYS = ("name", "nodes", "edges", "directed", "classes")
_NODE_KEYS = ("path", "query", "connection", "id", "label", "features", "one_hot", "split", "delimiter")
_EDGE_KEYS = ("path", "query", "connection", "source", "target", "delimiter")


@dataclass(frozen=True)
class TableSpec:
    """What the YAML file says; paths are absolute."""

    file: Path
    name: str
    nodes: Path | Query
    id: str
    edges: Path | Query
    source: str
    target: str
    label: str | None = None
    split: str | None = None
    features: tuple[str, ...] = ("*",)
    one_hot: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    directed: bool = False
    classes: tuple[str, ...] | None = None
    nodes_delimiter: str = ","
    edges_delimiter: str = ","


def load_tables(path: str | os.PathLike[str]) -> Graph:
    """Reads the graph that a YAML file describes.

    Nodes keep the order of their table. With ``directed: false`` every row of the edge table is a link in both
    directions; duplicates and self-loops are dropped. Without ``classes``, class numbers follow the sorted values of
    the label column (numeric order where all are whole numbers). Labels -1 or empty are unlabelled. The ids of the node
    table stay with the graph as ``node_names``.

    Args:
        path: The YAML file; see the head of this module.

    Raises:
        ConfigError: The YAML has an unknown or missing key, or a value of the wrong kind.
        DataError: A table does not fit; the error names file, column and rows (data rows counted from 1, for CSV also
            the line). Or a database cannot be read.
    """
    return read_tables(Path(path))[0]


def read_tables(path: Path) -> tuple[Graph, bool]:
    """The graph, and whether the file declares it directed."""
    spec = read_spec(path)
    return build_graph(spec), spec.directed


def read_spec(path: str | os.PathLike[str]) -> TableSpec:
    """Reads and checks the YAML file alone; tables are not opened.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong kind.
        DataError: The file is missing or is not YAML.
    """
    file = Path(path).expanduser().absolute()
    return spec_of(documents.read(file, "the data description"), file)


def spec_of(content: object, file: Path) -> TableSpec:
    """Checks what a YAML file, or a part of one, says of tables.

    Args:
        content: As parsed.
        file: Where it stands: paths are relative to its folder, and errors name it.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong kind.
    """
    read = Reader(file)
    top = read.mapping(content, "", TABLE_KEYS, required=("nodes", "edges"))
    nodes = read.mapping(top["nodes"], "nodes", _NODE_KEYS, required=("id",))
    edges = read.mapping(top["edges"], "edges", _EDGE_KEYS, required=("source", "target"))
    directed = top.get("directed", False)
    if not isinstance(directed, bool):
        raise read.error("directed", "true or false", directed)
    return TableSpec(
        file=file,
        name=read.text(top, "name") or file.stem,
        nodes=_source(read, nodes, "nodes"),
        id=read.needed(nodes, "id", "nodes"),
        edges=_source(read, edges, "edges"),
        source=read.needed(edges, "source", "edges"),
        target=read.needed(edges, "target", "edges"),
        label=read.text(nodes, "label", "nodes"),
        split=read.text(nodes, "split", "nodes"),
        features=read.words(nodes.get("features", "*"), "nodes.features"),
        one_hot=read.vocabularies(nodes.get("one_hot")),
        directed=directed,
        classes=read.words(top["classes"], "classes") if top.get("classes") is not None else None,
        nodes_delimiter=read.delimiter(nodes, "nodes"),
        edges_delimiter=read.delimiter(edges, "edges"),
    )


def _source(read: Reader, values: Mapping[str, Any], where: str) -> Path | Query:
    """The file or the query that a table is read from."""
    path, query, connection = (read.text(values, key, where) for key in ("path", "query", "connection"))
    if path is not None and query is None and connection is None:
        return read.file.parent / Path(path).expanduser()
    if path is None and query is not None and connection is not None:
        if "delimiter" in values:
            raise ConfigError(f"{read.file}: '{where}.delimiter' belongs to a file; a query has columns already.")
        return Query(query, connection, where, read.file)
    if path is not None:
        raise ConfigError(
            f"{read.file}: '{where}' names a path and a {'query' if query is not None else 'connection'}; a table "
            f"comes from a file (path) or from a database (query and connection)."
        )
    lacking = "path" if query is None and connection is None else "query" if query is None else "connection"
    also = f"; or '{where}.query' and '{where}.connection' for a database" if lacking == "path" else ""
    raise ConfigError(f"{read.file}: the key '{where}.{lacking}' is missing{also}.")


def build_graph(spec: TableSpec) -> Graph:
    """The graph that a checked description names; see :func:`load_tables`."""
    queries = [source for source in (spec.nodes, spec.edges) if isinstance(source, Query)]
    fetched = dict(zip(queries, read_queries(queries), strict=True))
    nodes = _Table.of(spec.nodes, spec.nodes_delimiter, "nodes", fetched)
    if not nodes.rows:
        nothing = "returned no rows" if isinstance(spec.nodes, Query) else "has a header but no data rows"
        raise DataError(f"{nodes.where} {nothing}; a graph needs at least one node.")
    if isinstance(spec.nodes, Query):
        # A database gives rows in any order, and the split is drawn in theirs: the same tomorrow as today.
        nodes.sort(spec.id, key="nodes.id")
    edges = _Table.of(spec.edges, spec.edges_delimiter, "edges", fetched)
    ids = _read_ids(nodes, spec.id)
    features, feature_names = _read_features(nodes, spec)
    labels, class_names = _read_labels(nodes, spec)
    columns = _read_edges(edges, spec, ids, nodes.short)
    if isinstance(spec.edges, Query):
        columns = np.ascontiguousarray(columns[:, np.lexsort((columns[1], columns[0]))])
    if not spec.directed:
        columns = to_undirected(columns, nodes.rows)
    return Graph(
        features=compact_features(features),
        edges=columns,
        labels=labels,
        num_classes=len(class_names),
        name=spec.name,
        splits=_read_splits(nodes, spec.split) if spec.split else {},
        feature_names=feature_names,
        class_names=class_names,
        node_names=np.array(ids.to_pylist(), dtype=np.str_),
    )


class _Table:
    """One table in memory. CSV columns stay text until it is known what they should be."""

    def __init__(self, where: str, short: str, data: Any, text: tuple[Path, str] | None = None) -> None:
        self.where = where
        self.short = short
        self._data = data
        self._text = text  # file and delimiter of a CSV
        self.rows: int = data.num_rows
        self.names: list[str] = data.column_names
        double = next((column for column in self.names if self.names.count(column) > 1), None)
        if double is not None:
            raise DataError(f"the table {where} has two columns called '{double}'; rename one.")

    @classmethod
    def of(cls, source: Path | Query, delimiter: str, part: str, fetched: Mapping[Query, Any]) -> _Table:
        """The table behind a part of the description."""
        if isinstance(source, Query):
            return cls(source.where, source.short, fetched[source])
        return cls.open(source, delimiter, part)

    @classmethod
    def open(cls, path: Path, delimiter: str, part: str) -> _Table:
        """Reads a table; ``part`` is ``nodes`` or ``edges``, for what an error advises."""
        import pyarrow as pa

        if not path.is_file():
            raise DataError(f"the table {path} does not exist.")
        if path.stat().st_size == 0:
            raise DataError(f"the table {path} is empty; it needs a header and rows.")
        name = path.name.lower()
        try:
            if name.endswith((".parquet", ".pq")):
                import pyarrow.parquet as pq

                return cls(str(path), path.name, pq.read_table(path))
            if name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
                if delimiter == "," and ".tsv" in name[-7:]:
                    delimiter = "\t"
                return cls(str(path), path.name, cls._read_csv(path, delimiter, part), (path, delimiter))
        except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
            raise DataError(f"the table {path} cannot be read: {str(error).strip().rstrip('.')}.") from error
        raise DataError(f"the table {path} must be a .csv, .csv.gz or .parquet file.")

    @staticmethod
    def _read_csv(path: Path, delimiter: str, part: str) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow

        parse = arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        try:
            with _open_text(path) as lines:
                header = next(csv.reader(lines, delimiter=delimiter), [])
        except csv.Error as error:
            raise DataError(f"the header of the table {path} cannot be read ({error}); is it a text file?") from error
        if any(_undecoded(cell) for cell in header):
            raise DataError(f"{path}: the header (line 1) {_NOT_UTF8}")
        _check_delimiter(path, header, delimiter, part)
        # An empty cell is missing; everything else stays as it is written, so that the id 007 is not the id 7.
        convert = arrow.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
        )
        try:
            return arrow.read_csv(path, parse_options=parse, convert_options=convert)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            fault = _find_fault(path, delimiter, header)
            if fault is not None:
                raise DataError(f"{path}: {fault}") from error
            raise

    def sort(self, name: str, *, key: str) -> None:
        """Puts the rows in the order of a column."""
        import pyarrow as pa

        if not pa.types.is_null(self.column(name, key=key).type):
            self._data = self._data.sort_by(name)

    def column(self, name: str, *, key: str) -> Any:
        """A column as one pyarrow array; ``key`` is where the YAML file asked for it."""
        import pyarrow as pa

        if name not in self.names:
            raise DataError(f"{self.where} has no column '{name}' ({key}); {nearest(name, self.names)}")
        column = self._data.column(name)
        column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def text(self, name: str, *, key: str) -> Any:
        """A column of strings or whole numbers as stripped text; missing and blank cells are null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.column(name, key=key)
        if pa.types.is_floating(column.type):
            # pandas stores whole numbers with gaps as floats.
            whole = pc.fill_null(pc.equal(column, pc.floor(column)), True)
            unknown = pc.fill_null(pc.is_nan(column), True)
            bad = ~(_mask(whole) | _mask(unknown))
            self.refuse(name, bad, "is not a whole number or a word", values=column)
            column = pc.if_else(unknown, pa.scalar(None, column.type), column).cast(pa.int64())
        elif not (
            pa.types.is_integer(column.type)
            or pa.types.is_string(column.type)
            or pa.types.is_large_string(column.type)
            or pa.types.is_boolean(column.type)
            or pa.types.is_null(column.type)
        ):
            raise DataError(
                f"{self.where}: column '{name}' ({key}) holds {column.type}; wanted words or whole numbers."
            )
        words = pc.utf8_trim_whitespace(column.cast(pa.string()))
        return pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.string()), words)

    def refuse(self, name: str, bad: NDArray[np.bool_], fault: str, *, values: Any = None, todo: str = "") -> None:
        """Raises a DataError that lists the first rows where ``bad`` holds; does nothing where there are none."""
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        lines = self._lines(rows[:SHOWN_ROWS])
        shown = []
        for row, line in zip(rows[:SHOWN_ROWS].tolist(), lines, strict=True):
            place = f"row {row + 1}" if line is None else f"row {row + 1} (line {line})"
            value = None if values is None else values[row].as_py()
            shown.append(place if value is None else f"{place}: {value!r}")
        more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
        count = "one value" if len(rows) == 1 else f"{len(rows)} values"
        what = f"{self.where}: column '{name}' has {count} where {fault}: {'; '.join(shown)}{more}."
        raise DataError(f"{what} {todo}".rstrip())

    def _lines(self, rows: NDArray[np.int64]) -> list[int | None]:
        """Line numbers of data rows. Only asked for in errors: text cells may hold line breaks, so the file is read."""
        if self._text is None:
            return [None] * len(rows)
        path, delimiter = self._text
        wanted = {int(row): place for place, row in enumerate(rows)}
        found: list[int | None] = [None] * len(rows)
        with _open_text(path) as lines:
            for row, line, _ in _data_rows(lines, delimiter):
                if row in wanted:
                    found[wanted[row]] = line
                if row >= rows[-1]:
                    break
        return found


def _open_text(path: Path) -> io.TextIOWrapper:
    """Text lines; bytes that are no UTF-8 come as lone surrogates, see :func:`_undecoded`."""
    raw: Any = gzip.GzipFile(path) if path.name.lower().endswith(".gz") else path.open("rb")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _data_rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Number from 0, line in the file and cells of each row below the header; blank lines are no rows."""
    reader = csv.reader(lines, delimiter=delimiter)
    next(reader, None)
    row, line = 0, reader.line_num + 1
    for cells in reader:
        if cells:
            yield row, line, cells
            row += 1
        line = reader.line_num + 1


def _undecoded(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= sign <= "\udcff" for sign in text)


_NOT_UTF8 = "holds bytes that are not UTF-8. Save the table as UTF-8 text; many programs offer it as 'CSV UTF-8'."


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


def _find_fault(path: Path, delimiter: str, header: Sequence[str]) -> str | None:
    """The first row that has too few or too many cells, or is no UTF-8, in words; None if no such row is found."""
    row, line = 0, 1
    try:
        with _open_text(path) as lines:
            for row, line, cells in _data_rows(lines, delimiter):
                place = f"row {row + 1} (line {line})"
                bad = next((number for number, cell in enumerate(cells) if _undecoded(cell)), None)
                if bad is not None:
                    column = f", column '{header[bad]}'," if bad < len(header) else ""
                    return f"{place}{column} {_NOT_UTF8}"
                if len(cells) != len(header):
                    wrong = "few" if len(cells) < len(header) else "many"
                    return (
                        f"{place} has too {wrong} cells, {len(cells)} where the header has {len(header)}: "
                        f"'{_short(delimiter.join(cells))}'. Correct the row; a cell that holds the separator "
                        f"{delimiter!r} itself needs double quotes round it."
                    )
    except csv.Error as error:
        return f"the rows after line {line} cannot be read as CSV ({error})."
    return None


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _mask(array: Any) -> NDArray[np.bool_]:
    """A pyarrow boolean array without nulls as numpy."""
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _read_ids(nodes: _Table, name: str) -> Any:
    import pyarrow.compute as pc

    ids = nodes.text(name, key="nodes.id")
    nodes.refuse(name, _mask(pc.is_null(ids)), "the id is empty")
    numbers = pc.index_in(ids, value_set=ids).to_numpy()
    nodes.refuse(
        name,
        numbers != np.arange(nodes.rows),
        "the id occurred before",
        values=ids,
        todo="Each node needs an id of its own.",
    )
    return ids


def _read_edges(edges: _Table, spec: TableSpec, ids: Any, nodes: str) -> NDArray[np.int64]:
    """[2, e] node numbers of both ends."""
    import pyarrow.compute as pc

    ends = []
    todo = f"Ends must occur in column '{spec.id}' of {nodes}; remove the edge or add the node."
    for name, key in ((spec.source, "edges.source"), (spec.target, "edges.target")):
        words = edges.text(name, key=key)
        edges.refuse(name, _mask(pc.is_null(words)), "the end of an edge is empty")
        place = pc.index_in(words, value_set=ids)
        edges.refuse(name, _mask(pc.is_null(place)), "the edge names an unknown node", values=words, todo=todo)
        ends.append(place.to_numpy().astype(np.int64))
    return np.stack(ends)


def _read_features(nodes: _Table, spec: TableSpec) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """[n, d] and a name per column."""
    taken = {spec.id, spec.label, spec.split}
    chosen = _feature_columns(nodes, spec, [name for name in nodes.names if name not in taken])
    columns: list[NDArray[np.float32]] = []
    names: list[str] = []
    for name in chosen:
        if name in spec.one_hot:
            block, words = _one_hot(nodes, name, spec.one_hot[name])
            columns.append(block)
            names += [f"{name}={word}" for word in words]
        else:
            columns.append(_numbers(nodes, name)[:, None])
            names.append(name)
    if not columns:
        return np.zeros((nodes.rows, 0), dtype=np.float32), ()
    return np.concatenate(columns, axis=1), tuple(names)


def _feature_columns(nodes: _Table, spec: TableSpec, free: Sequence[str]) -> list[str]:
    chosen: dict[str, None] = {}
    for word in spec.features:
        if word.endswith("*"):
            matches = [name for name in free if name.startswith(word[:-1])]
            if not matches and word != "*":
                raise DataError(
                    f"{nodes.where}: no column starts with '{word[:-1]}' (nodes.features); the table has "
                    f"{', '.join(free) or 'no further columns'}."
                )
            chosen |= dict.fromkeys(matches)
        elif word in (spec.label, spec.split):
            raise ConfigError(
                f"{spec.file}: '{word}' is the {'label' if word == spec.label else 'split'} column and cannot be a "
                f"feature as well: the model would be told the answer."
            )
        else:
            nodes.column(word, key="nodes.features")
            chosen[word] = None
    for name in spec.one_hot:
        nodes.column(name, key="nodes.one_hot")
        if name in (spec.label, spec.split):
            raise ConfigError(f"{spec.file}: nodes.one_hot names '{name}', which is the label or split column.")
        chosen[name] = None
    return list(chosen)


def _numbers(nodes: _Table, name: str) -> NDArray[np.float32]:
    """[n] float32 of a numeric or boolean column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = nodes.column(name, key="nodes.features")
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = _parse_numbers(nodes, name, pc.utf8_trim_whitespace(column))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        nodes.refuse(name, _mask(pc.is_null(column)), "the feature is missing", todo=_FILL)
        numbers = column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column
        values = numbers.cast(pa.float64(), safe=False).to_numpy()
    elif pa.types.is_decimal(kind):
        nodes.refuse(name, _mask(pc.is_null(column)), "the feature is missing", todo=_FILL)
        values = column.cast(pa.float64()).to_numpy()
    else:
        raise DataError(
            f"{nodes.where}: column '{name}' (nodes.features) holds {kind}; features must be numbers or true/false. "
            f"Convert the column (a date, for instance, to a number of days), or leave it out of nodes.features."
        )
    with np.errstate(over="ignore"):
        result = values.astype(np.float32)
    nodes.refuse(
        name, ~np.isfinite(result), "the feature is NaN, infinite or too large for float32", values=column, todo=_FILL
    )
    return result


_FILL = "Fill such cells in, or leave the rows or the column out."


def _parse_numbers(nodes: _Table, name: str, words: Any) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = _mask(pc.fill_null(pc.equal(words, ""), True))
    nodes.refuse(name, empty, "the feature is missing", todo=_FILL)
    with np.errstate(all="ignore"):
        try:
            return np.asarray(words.cast(pa.float64()).to_numpy())
        except pa.ArrowInvalid:
            pass
    lower = pc.utf8_lower(words)
    truth = pc.is_in(lower, value_set=pa.array(["true", "false"]))
    if pc.all(truth).as_py():
        return _mask(pc.equal(lower, "true")).astype(np.float64)
    pattern = r"^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)$"
    numeric = _mask(pc.match_substring_regex(lower, pattern))
    decimal = _mask(pc.match_substring_regex(lower, r"^[+-]?\d+,\d+$"))
    nodes.refuse(
        name, decimal, "the feature has a decimal comma", values=words, todo="Write numbers with a decimal point."
    )
    if not numeric.any():
        raise DataError(
            f"{nodes.where}: column '{name}' (nodes.features) holds words such as {words[0].as_py()!r}, not numbers. "
            f"Add it to one_hot under nodes (one_hot: [{name}]) to get one column per word, or leave it out of the "
            f"features."
        )
    nodes.refuse(
        name,
        ~numeric,
        "the feature is not a number",
        values=words,
        todo="Correct these cells, or declare the column under nodes.one_hot.",
    )
    return np.array([float(word) for word in lower.to_pylist()])


def _one_hot(nodes: _Table, name: str, vocabulary: Sequence[str] | None) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    words = nodes.text(name, key="nodes.one_hot")
    nodes.refuse(name, _mask(pc.is_null(words)), "the feature is missing", todo=_FILL)
    known = tuple(vocabulary) if vocabulary is not None else sorted_words(pc.unique(words).to_pylist())
    place = pc.index_in(words, value_set=pa.array(known, pa.string()))
    nodes.refuse(
        name, _mask(pc.is_null(place)), f"the word is not among nodes.one_hot.{name} ({', '.join(known)})", values=words
    )
    block = np.zeros((nodes.rows, len(known)), dtype=np.float32)
    block[np.arange(nodes.rows), place.to_numpy()] = 1.0
    return block, known


def _read_labels(nodes: _Table, spec: TableSpec) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """[n] class numbers, and a word per class."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if spec.label is None:
        return np.full(nodes.rows, -1, dtype=np.int64), spec.classes or ()
    words = nodes.text(spec.label, key="nodes.label")
    classes = spec.classes
    if classes is None or not any("." in word for word in classes):
        # Tools that know no missing whole numbers write the class 1 as 1.0.
        words = pc.replace_substring_regex(words, r"^(-?\d+)\.0+$", r"\1")
    unlabelled = pc.is_in(words, value_set=pa.array(["-1", "nan", "NaN"]))
    words = pc.if_else(unlabelled, pa.scalar(None, pa.string()), words)
    if classes is None:
        classes = sorted_words([word for word in pc.unique(words).to_pylist() if word is not None])
    place = pc.index_in(words, value_set=pa.array(classes, pa.string()))
    unknown = _mask(pc.is_null(place)) & ~_mask(pc.is_null(words))
    todo = "Add it to 'classes', or empty the cell to leave the node unlabelled."
    nodes.refuse(spec.label, unknown, f"the label is not among classes ({', '.join(classes)})", values=words, todo=todo)
    return pc.fill_null(place, -1).to_numpy().astype(np.int64), classes


def sorted_words(words: Iterable[str]) -> tuple[str, ...]:
    """In numeric order where all are whole numbers, else by spelling."""
    listed = list(words)
    whole = all(word.removeprefix("-").isdecimal() for word in listed)
    return tuple(sorted(listed, key=int) if whole else sorted(listed))


def _read_splits(nodes: _Table, name: str) -> dict[str, NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    words = nodes.text(name, key="nodes.split")
    unknown = _mask(pc.is_null(words)) | _mask(pc.fill_null(pc.is_in(words, value_set=pa.array(SPLIT_NAMES)), False))
    nodes.refuse(
        name,
        ~unknown,
        f"the split is none of {', '.join(SPLIT_NAMES)}",
        values=words,
        todo="Leave the cell empty for a node that belongs to none.",
    )
    return {key: _mask(pc.fill_null(pc.equal(words, key), False)) for key in SPLIT_NAMES}
