"""Own data: a graph from two tables, nodes and edges, described by a short YAML file.

```yaml
name: hospital-a
nodes: {path: nodes.csv, id: patient, label: outcome, features: [age, "lab_*"], one_hot: {ward: [icu, er]}}
edges: {path: edges.parquet, source: src, target: dst}
classes: ["no", "yes"]
features: {missing: {age: median}}
```

:class:`TableDescription` and the classes of its tables say what each key means. A table may come from a database
instead of a file: ``query`` and ``connection`` stand in place of ``path``; see :mod:`graphsilo.data.sources.sql`.

Means and medians are those of the table's own rows, all but those that ``nodes.split`` calls ``test``. They stay with
the silo and its model, so that rows of a later table are filled alike
(:class:`graphsilo.data.sources.vocabulary.Learned`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphsilo import documents
from graphsilo.data.graph import SPLITS, Graph
from graphsilo.data.links import OutsideLinks, names_among_silos
from graphsilo.data.sources.arrow import pa, pc
from graphsilo.data.sources.classes import is_signed
from graphsilo.data.sources.columns import DateRule, FeatureTable, find_gaps, parse_decimals, read_features
from graphsilo.data.sources.description import (
    Description,
    Name,
    Names,
    Pairs,
    Renames,
    Units,
    Vocabularies,
    WordMaps,
)
from graphsilo.data.sources.empty import Rules
from graphsilo.data.sources.faults import UNSEEN, Faults, name_fault
from graphsilo.data.sources.missing import UNLABELLED, Missing, far_notes, unlabelled_note
from graphsilo.data.sources.table_files import (
    Query,
    Table,
    TableFile,
    TableSource,
    distinct,
    is_text,
    mask,
)
from graphsilo.data.sources.transforms import compact_features, make_undirected, merge_parallel
from graphsilo.data.sources.vocabulary import Learned, sort_words
from graphsilo.data.truth import TRUTH, Words
from graphsilo.errors import ConfigError, DataError, several
from graphsilo.settings import Positive, setting

_MANY_CLASSES = 20
"""Classes from which a column with a class for every other node is taken for ids or for something measured."""


class NodeTable(TableSource):
    """The table of nodes."""

    id: Name = setting(..., "column of texts or whole numbers, each once")
    label: Name | None = setting(None, "column of classes; an empty cell means unlabelled")
    features: Names = setting(("*",), "columns, beginnings of names with *, or * for every column that is left")
    one_hot: Vocabularies = setting({}, "columns of words: their names, or a table of each one's words")
    boolean: Pairs = setting({}, "columns of truth values: their names, or a table of each one's words of 0 and 1")
    dates: dict[str, DateRule] = setting({}, "columns of dates")
    decimal: Literal[".", ","] = setting(".", "how numbers are written")
    empty: Names = setting((), "further words that mean an empty cell, or no label; numbers however they are written")
    rename: Renames = setting({}, "columns, with the names that they have in this table")
    words: WordMaps = setting({}, "columns, with words of this table and what each is taken for")
    units: Units = setting({}, "columns of numbers, with what they are multiplied by")
    split: Name | None = setting(None, "column with train, val, test")


class EdgeTable(TableSource):
    """The table of edges."""

    source: Name = setting(..., "column of the node that an edge begins at")
    target: Name = setting(..., "column of the node that it ends at")
    weight: Name | None = setting(None, "column of weights above 0")
    unit: Positive = setting(1.0, "what weights are multiplied by")
    decimal: Literal[".", ","] = setting(".", "how weights are written")


class LabelTable(TableSource):
    """The table of labels, where they do not stand in that of nodes."""

    id: Name = setting(..., "column of the node")
    label: Name = setting(..., "column of its class")
    words: WordMaps = setting({}, "columns, with words of this table and what each is taken for")


class OutsideTable(TableSource):
    """The table of links to nodes of other silos; both silos have each of them, and a table may have no rows."""

    node: Name = setting(..., "column of the silo's own node")
    silo: Name = setting(..., "column of the other silo's name")
    other: Name = setting(..., "column of the id that the node at the other end has there")


class FeatureOptions(Description):
    """What ``features:`` says in a description of tables."""

    missing: Rules | None = setting(None, "what stands in an empty cell's place; none refuses empty cells")


class TableDescription(Description):
    """A graph's tables."""

    name: Name | None = setting(None, "of the graph; none: the file's")
    nodes: NodeTable = setting(..., "the table of nodes")
    edges: EdgeTable = setting(..., "the table of edges")
    labels: LabelTable | None = setting(None, "the table of labels, in place of nodes.label")
    outside: OutsideTable | None = setting(None, "the table of links to nodes of other silos")
    directed: bool = setting(False, "whether a row of the edge table is a link in one direction only")
    classes: Names | None = setting(None, "fixed vocabulary, in the order of class numbers; none: the words that occur")
    features: FeatureOptions = setting(FeatureOptions(), "what holds for features")


@dataclass(frozen=True)
class TableSpec:
    """A checked description of tables.

    Attributes:
        file: Where it stands.
        name: Of the graph.
        nodes, edges, labels: What it says of these tables.
        places: Where these are, in this order; paths are absolute.
        missing: What stands in an empty cell's place.
        directed, classes: As in the description.
    """

    file: Path
    name: str
    nodes: NodeTable
    edges: EdgeTable
    labels: LabelTable | None
    outside: OutsideTable | None
    places: Mapping[str, TableFile | Query]
    missing: Missing
    directed: bool
    classes: tuple[str, ...] | None


@dataclass(frozen=True)
class Reading:
    """A graph, and what is known of the tables that it was read from.

    Attributes:
        graph: The graph.
        empty: How many cells of each column of features were empty.
        rows: [2, r] the ends of each row of the edge table, before duplicates and self-loops were dropped.
    """

    graph: Graph
    empty: Mapping[str, int]
    rows: NDArray[np.int64]


def load_tables(path: str | os.PathLike[str]) -> Graph:
    """Reads the graph that a YAML file describes.

    Nodes keep the order of their table. With ``directed: false`` every row of the edge table is a link in both
    directions; duplicates, whose weights add up, and self-loops are dropped. Without ``classes``, class numbers follow
    the sorted values of the label column (numeric order where all are whole numbers). Labels that are empty are
    unknown, and so are those that are -1 where others than 1 are there, too. The ids of the node table stay with the
    graph as ``node_names``.

    Args:
        path: The YAML file; see :class:`TableDescription`.

    Raises:
        ConfigError: The YAML has an unknown or missing key, or a value of the wrong kind.
        DataError: Tables do not fit; the error names all faults with file, column and rows (data rows counted from 1,
            for CSV and Excel also the line). Or a database cannot be read.
    """
    return read_tables(read_spec(path)).graph


def read_spec(path: str | os.PathLike[str]) -> TableSpec:
    """Reads and checks the YAML file alone; tables are not opened.

    Raises:
        ConfigError: The file is missing or is not YAML, a key is unknown or missing, or a value is of the wrong kind.
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
    description = TableDescription.of(content, origin=str(file))
    nodes, edges, beyond = description.nodes, description.edges, description.outside
    if beyond is not None and (description.directed or edges.weight is not None):
        raise ConfigError(
            f"{file}: links to other silos (outside) have neither direction nor weight, and edges have "
            f"{'directions' if description.directed else 'weights'} here. Leave out outside, or "
            f"{'directed' if description.directed else 'edges.weight'}."
        )
    spec = TableSpec(
        file=file,
        name=description.name or file.stem,
        nodes=nodes,
        edges=edges,
        labels=description.labels,
        outside=beyond,
        places={
            part: table.place(file, part)
            for part, table in (("nodes", nodes), ("edges", edges), ("labels", description.labels), ("outside", beyond))
            if table is not None
        },
        missing=Missing.parse(description.features.missing),
        directed=description.directed,
        classes=description.classes,
    )
    if nodes.label is not None and spec.labels is not None:
        raise ConfigError(f"{file}: labels stand in one table, and nodes.label and labels name two; leave one out.")
    declared = [*nodes.one_hot, *nodes.boolean, *nodes.dates]
    twice = next((name for name in declared if declared.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"{file}: '{twice}' stands under two of nodes.one_hot, nodes.boolean and nodes.dates; a column is one of "
            f"them."
        )
    for what, names in (("name", [spec.name]), ("classes", spec.classes or ())):
        for name in names:
            if wrong := name_fault(name):
                raise ConfigError(f"{file}: {what} is {name!r}, which {wrong}. Choose another word.")
    return spec


def _booleans(spec: TableSpec) -> dict[str, Words]:
    """Words of 0 and of 1 of every column of truth values."""
    return {name: TRUTH if pair is None else ((pair[0],), (pair[1],)) for name, pair in spec.nodes.boolean.items()}


def read_tables(spec: TableSpec, *, missing: Missing | None = None, learned: Learned | None = None) -> Reading:
    """The graph that a checked description names; see :func:`load_tables`.

    Args:
        spec: The description.
        missing: Rules for empty cells in place of the description's.
        learned: Of a model that is to be asked about the graph, or of silos that it shares words with.

    Raises:
        ConfigError, DataError: As :func:`load_tables`.
    """
    if missing is not None:
        spec = replace(spec, missing=missing)
    queries = [source for source in spec.places.values() if isinstance(source, Query)]
    fetched: dict[Query, Any] = {}
    if queries:
        from graphsilo.data.sources.sql import read_queries

        fetched = dict(zip(queries, read_queries(queries), strict=True))
    faults = Faults(spec.file)
    parts = ("nodes", "edges", "labels", "outside")
    nodes, edges, labelled, outside = (_table(part, spec, fetched, faults) for part in parts)
    ids: Any = None
    features, labels = FeatureTable(np.zeros((0, 0), dtype=np.float32)), np.zeros(0, dtype=np.int64)
    class_names: tuple[str, ...] = ()
    notes: list[str] = []
    splits: dict[str, NDArray[np.bool_]] = {}
    rows, weights = np.zeros((2, 0), dtype=np.int64), None
    links: OutsideLinks | None = None
    if nodes is not None:
        with faults.collect():
            ids = _read_ids(nodes, spec.nodes.id)
        if spec.nodes.split is not None:
            with faults.collect():
                splits = _read_splits(nodes, spec.nodes.split)
        counting = ~splits["test"] if splits else np.ones(nodes.rows, dtype=np.bool_)
        with faults.collect():
            features = read_features(nodes, spec, faults, counting, learned or Learned())
        with faults.collect():
            labels, class_names = _read_labels(nodes, labelled, spec, ids, notes)
    if edges is not None:
        with faults.collect():
            rows = _read_edges(edges, spec, ids, "" if nodes is None else nodes.short)
        if spec.edges.weight is not None:
            with faults.collect():
                weights = _read_weights(edges, spec.edges.weight, spec.edges)
    if outside is not None:
        with faults.collect():
            links = _read_outside(outside, spec, ids, "" if nodes is None else nodes.short)
    faults.raise_if_any()
    assert nodes is not None
    if isinstance(spec.places["edges"], Query):
        # Parallel edges by weight, too: their sum must not depend on the order in which a database gives them.
        order = np.lexsort((rows[1], rows[0]) if weights is None else (weights, rows[1], rows[0]))
        rows, weights = np.ascontiguousarray(rows[:, order]), None if weights is None else weights[order]
    numbers = [name if name in features.empty else "" for name in features.names]
    graph = Graph(
        features=compact_features(features.values),
        edges=rows,
        edge_weights=weights,
        labels=labels,
        num_classes=len(class_names),
        name=spec.name,
        splits=splits,
        feature_names=features.names,
        class_names=class_names,
        node_names=np.array(ids.to_pylist(), dtype=np.str_),
        fills=features.fills or None,
        estimated=features.estimated,
        booleans=_booleans(spec),
        outside=links,
        notes=(*features.notes, *notes, *far_notes(features.values, numbers, features.fills)),
    )
    graph = merge_parallel(graph) if spec.directed else make_undirected(graph)
    return Reading(graph, features.empty, rows)


def _table(part: str, spec: TableSpec, fetched: Mapping[Query, Any], faults: Faults) -> Table | None:
    """One of the tables; None if there is none, or if it cannot be read, which is noted."""
    source = spec.places.get(part)
    if source is None:
        return None
    with faults.collect():
        table = Table.of(source, part, fetched, faults)
        if part == "nodes" and not table.rows:
            nothing = "returned no rows" if isinstance(source, Query) else "has a header but no data rows"
            raise DataError(f"{table.where} {nothing}; a graph needs at least one node.")
        if part == "nodes" and not table.rename(spec.nodes.rename, key="nodes.rename"):
            return None
        for name, words in getattr(getattr(spec, part), "words", {}).items():
            with faults.collect():
                table.replace_words(name, words, key=f"{part}.words")
        if part == "nodes" and isinstance(source, Query):
            # A database gives rows in any order, and the split is drawn in theirs: the same tomorrow as today.
            table.sort(spec.nodes.id, key="nodes.id")
        return table
    return None  # type: ignore[unreachable]  # collect() goes on after an error


def _read_ids(nodes: Table, name: str) -> Any:
    ids = nodes.text(name, key="nodes.id")
    empty = mask(pc.is_null(ids))
    nodes.refuse(name, empty, "the id is empty", todo="Each node needs an id of its own.")
    unseen = mask(pc.match_substring_regex(ids, UNSEEN))
    nodes.refuse(name, unseen, "the id holds a line break or another unseen character", values=ids, todo="Take it out.")
    numbers = pc.index_in(ids, value_set=ids).to_numpy()
    nodes.refuse(
        name,
        (numbers != np.arange(nodes.rows)) & ~empty,
        "the id occurred before",
        values=ids,
        todo="Each node needs an id of its own.",
    )
    return ids


def _read_edges(edges: Table, spec: TableSpec, ids: Any, nodes: str) -> NDArray[np.int64]:
    """[2, r] node numbers of both ends of every row; without ``ids``, only whether ends are there."""
    ends = []
    todo = f"Ends must occur in column '{spec.nodes.id}' of {nodes}; remove the edge or add the node."
    for name, key in ((spec.edges.source, "edges.source"), (spec.edges.target, "edges.target")):
        with edges.faults.collect():
            words = edges.text(name, key=key)
            empty = mask(pc.is_null(words))
            edges.refuse(name, empty, "the end of an edge is empty", todo="Name a node, or remove the edge.")
            if ids is not None:
                place = pc.index_in(words, value_set=ids)
                strange = mask(pc.is_null(place)) & ~empty
                edges.refuse(name, strange, "the edge names an unknown node", values=words, todo=todo)
                ends.append(np.asarray(pc.fill_null(place, 0).to_numpy(zero_copy_only=False), dtype=np.int64))
    return np.stack(ends) if len(ends) == 2 else np.zeros((2, 0), dtype=np.int64)


def _read_outside(table: Table, spec: TableSpec, ids: Any, nodes: str) -> OutsideLinks | None:
    """Links to nodes of other silos, each once; without ``ids``, only whether the table is one."""
    asked = spec.outside
    assert asked is not None
    node, silo, other = (table.text(getattr(asked, key), key=f"outside.{key}") for key in ("node", "silo", "other"))
    for name, words in ((asked.node, node), (asked.silo, silo), (asked.other, other)):
        empty = mask(pc.is_null(words))
        table.refuse(name, empty, "a link to another silo is empty", todo="Name both nodes and the silo, or remove it.")
    here = mask(pc.equal(silo, spec.name))
    table.refuse(
        asked.silo, here, f"both ends of a link are at {spec.name}", values=silo,
        todo="Links between two nodes of this silo stand in the table of edges; here, name the other silo.",
    )  # fmt: skip
    if ids is None:
        return None
    place = pc.index_in(node, value_set=ids)
    strange = mask(pc.is_null(place)) & ~mask(pc.is_null(node))
    todo = f"Own ends must occur in column '{spec.nodes.id}' of {nodes}; remove the link or add the node."
    table.refuse(asked.node, strange, "the link names an unknown node", values=node, todo=todo)
    if table.faults.found:
        return None
    whose = np.array(silo.to_pylist(), dtype=np.str_)
    rows = place.to_numpy(zero_copy_only=False).astype(np.int64).reshape(-1)
    home = np.full(len(rows), spec.name)
    found = OutsideLinks(
        node=rows,
        name=names_among_silos(home, np.array(node.to_pylist(), dtype=np.str_)),
        other=names_among_silos(whose, np.array(other.to_pylist(), dtype=np.str_)),
        home=home,
        silo=whose,
    )
    _, first = np.unique(np.stack([found.name, found.other]), axis=1, return_index=True)
    return found.where(first)


def _read_weights(edges: Table, name: str, how: EdgeTable) -> NDArray[np.float32]:
    """[r] weights of the rows, all finite and above 0 unless a fault was noted."""
    column = edges.column(name, key="edges.weight")
    kind = column.type
    if is_text(kind):
        none, todo = np.zeros(edges.rows, dtype=np.bool_), "Give each edge a number above 0."
        words = pc.utf8_trim_whitespace(column)
        numbers = parse_decimals(edges, name, words, how.decimal, ("weight", "edges"), none, todo=todo)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(f"{edges.where}: column '{name}' (edges.weight) holds {kind}; weights must be numbers.")
    else:
        numbers = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        weights: NDArray[np.float32] = (numbers * how.unit).astype(np.float32)
    wrong = ~((weights > 0) & (weights < np.inf))
    fault = "the weight is missing, not above 0 or beyond float32"
    edges.refuse(name, wrong, fault, values=column, todo="Leave out edges that weigh nothing.")
    return weights


def _read_labels(
    nodes: Table, labelled: Table | None, spec: TableSpec, ids: Any, notes: list[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """[n] class numbers, and a word per class.

    Args:
        nodes: The table of nodes.
        labelled: That of labels, if there is one.
        spec: The description.
        ids: Of the nodes.
        notes: Takes what is to be said of words that mean no class.
    """
    none = np.full(nodes.rows, -1, dtype=np.int64)
    if spec.labels is None:
        return (
            (none, spec.classes or ())
            if spec.nodes.label is None
            else _read_classes(nodes, spec.nodes.label, "nodes.label", spec, notes)
        )
    if labelled is None or ids is None:
        return none, ()
    whose = labelled.text(spec.labels.id, key="labels.id")
    place = pc.index_in(whose, value_set=ids)
    labelled.refuse(
        spec.labels.id, mask(pc.is_null(place)), "the label is of an unknown node", values=whose,
        todo=f"Nodes must occur in column '{spec.nodes.id}' of {nodes.short}; remove the label or add the node.",
    )  # fmt: skip
    again = mask(pc.is_valid(place)) & (pc.index_in(whose, value_set=whose).to_numpy() != np.arange(labelled.rows))
    labelled.refuse(spec.labels.id, again, "the node occurred before", values=whose, todo="A node has one label.")
    found, classes = _read_classes(labelled, spec.labels.label, "labels.label", spec, notes)
    rows = mask(pc.is_valid(place))
    none[place.filter(pa.array(rows)).to_numpy()] = found[rows]
    return none, classes


def _read_classes(
    table: Table, name: str, key: str, spec: TableSpec, notes: list[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Class numbers of a column, and a word per class."""
    words = table.text(name, key=key)
    classes = spec.classes
    if classes is None or not any("." in word for word in classes):
        # Tools that know no missing whole numbers write the class 1 as 1.0.
        words = pc.replace_substring_regex(words, r"^(-?\d+)\.0+$", r"\1")
    words = _clear_unlabelled(spec, _normalise_truth(words, classes), f"column '{name}' ({key})", notes)
    if classes is None:
        classes = sort_words(distinct(words))
        labelled = len(words) - words.null_count
        if len(classes) > _MANY_CLASSES and 2 * len(classes) > labelled:
            raise DataError(
                f"{table.where}: column '{name}' ({key}) has {len(classes)} different values in "
                f"{labelled} rows, such as {several((repr(word) for word in classes), 3)}: these look like ids or "
                f"something measured, not like classes. Name the column of classes, or cut what is measured into "
                f"classes first."
            )
    for word in classes if spec.classes is None else ():
        if wrong := name_fault(word):
            raise DataError(f"{table.where}: column '{name}' names the class {word!r}, which {wrong}. Rename it.")
    place = pc.index_in(words, value_set=pa.array(classes, pa.string()))
    table.unknown(
        name,
        mask(pc.is_null(place)) & ~mask(pc.is_null(words)),
        f"the label is not among classes ({', '.join(classes)})",
        values=words,
        known=classes,
        todo="Add it to 'classes', or empty the cell to leave the node unlabelled; for all such cells, nodes.empty "
        "lists words that mean no label, and nodes.words says what a word is taken for.",
    )
    return pc.fill_null(place, -1).to_numpy().astype(np.int64), tuple(classes)


def _normalise_truth(words: Any, classes: tuple[str, ...] | None) -> Any:
    """Truth values as the classes are written, else in small letters: pandas writes True where Parquet has true."""
    lower = pc.utf8_lower(words)
    if not pc.all(pc.is_in(lower, value_set=pa.array(["true", "false", None]))).as_py():
        return words
    written = [word for word in classes or () if word.lower() in ("true", "false")]
    for word in ("true", "false") if classes is None else written:
        words = pc.if_else(pc.equal(lower, word.lower()), word, words)
    return words


def _clear_unlabelled(spec: TableSpec, words: Any, where: str, notes: list[str]) -> Any:
    """Labels without the words that stand for none. Where -1 and 1 are all that there is, they are classes."""
    known = pc.is_in(words, value_set=pa.array(spec.classes or (), pa.string()))
    found, _ = find_gaps(words, spec, UNLABELLED)
    if is_signed(distinct(found)):
        found = pc.if_else(pc.equal(found, "+1"), "1", found)
    else:
        found = pc.if_else(pc.equal(found, "-1"), pa.scalar(None, pa.string()), found)
    found = pc.if_else(pc.fill_null(known, False), words, found)
    undeclared, _ = find_gaps(words, spec, ())
    usual = pc.and_(pc.is_null(found), pc.fill_null(pc.not_equal(undeclared, "-1"), False))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(undeclared.filter(usual)).to_pylist()}
    if counts:
        notes.append(unlabelled_note(where, counts, "list it in classes"))
    return found


def _read_splits(nodes: Table, name: str) -> dict[str, NDArray[np.bool_]]:
    words = nodes.text(name, key="nodes.split")
    known = mask(pc.is_null(words)) | mask(pc.is_in(words, value_set=pa.array(SPLITS)))
    nodes.unknown(
        name,
        ~known,
        f"the split is none of {', '.join(SPLITS)}",
        values=words,
        known=SPLITS,
        todo="Leave the cell empty for a node that belongs to none.",
    )
    return {key: mask(pc.equal(words, key)) for key in SPLITS}
