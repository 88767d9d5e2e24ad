"""Own data: a graph from two tables, nodes and edges, described by a short YAML file.

```yaml
name: hospital-a
nodes: {path: nodes.csv, id: patient, label: outcome, features: [age, "lab_*"], one_hot: {ward: [icu, er]}}
edges: {path: edges.parquet, source: src, target: dst}
classes: ["no", "yes"]
features: {missing: {age: median}}
```

:class:`TableDescription` and the classes of its tables say what each key means. Nodes and edges may be several tables
each, by the type of nodes and by what rows of links are called. A table may come from a database
instead of a file: ``query`` and ``connection`` stand in place of ``path``; see :mod:`graphsilo.data.sources.sql`.

Means and medians are those of the table's own rows, all but those that ``nodes.split`` calls ``test``. They stay with
the silo and its model, so that rows of a later table are filled alike
(:class:`graphsilo.data.sources.vocabulary.Learned`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph
from graphsilo.data.links import OutsideLinks, names_among_silos
from graphsilo.data.sources.arrow import pa, pc
from graphsilo.data.sources.assembling import LinkRows, NodeRows, assemble
from graphsilo.data.sources.classes import is_signed
from graphsilo.data.sources.columns import (
    DateRule,
    FeatureTable,
    Part,
    find_gaps,
    parse_decimals,
    read_features,
    read_targets,
    read_time,
    ungroup,
)
from graphsilo.data.sources.dates import date_notes
from graphsilo.data.sources.faults import UNSEEN, Faults, name_fault
from graphsilo.data.sources.missing import UNLABELLED, Missing, far_notes, flat_notes, unlabelled_note
from graphsilo.data.sources.table_files import Query, Table, distinct, is_text, mask
from graphsilo.data.sources.table_spec import (
    LINK,
    EdgeTable,
    FeatureOptions,
    LabelTable,
    NodeTable,
    OutsideTable,
    TableDescription,
    TableSpec,
    read_spec,
    spec_of,
)
from graphsilo.data.sources.targets import with_targets
from graphsilo.data.sources.transforms import make_undirected, merge_parallel
from graphsilo.data.sources.vocabulary import Learned, sort_words
from graphsilo.errors import DataError, nearest, several

__all__ = [
    "DateRule", "EdgeTable", "FeatureOptions", "LabelTable", "NodeTable", "OutsideTable", "Reading",
    "TableDescription", "TableSpec", "load_tables", "read_spec", "read_tables", "spec_of",
]  # fmt: skip

_MANY_CLASSES = 20
"""Classes from which a column with a class for every other node is taken for ids or for something measured."""


@dataclass(frozen=True)
class Reading:
    """A graph, and what is known of the tables that it was read from.

    Attributes:
        graph: The graph.
        empty: How many cells of each column of features were empty.
        rows: [2, r] the ends of each row of the edge tables, before duplicates and self-loops were dropped.
    """

    graph: Graph
    empty: Mapping[str, int]
    rows: NDArray[np.int64]


def load_tables(path: str | os.PathLike[str]) -> Graph:
    """Reads the graph that a YAML file describes.

    Nodes keep the order of their table; of several types they stand behind each other, by the types' names. With
    ``directed: false`` every row of an edge table is a link in both directions; duplicates, whose weights add up, and
    self-loops are dropped, and stay among the rows of ``links``. Without ``classes``, class numbers follow the sorted
    values of the label column (numeric order where all are whole numbers). Labels that are empty are unknown, and so
    are those that are -1 where others than 1 are there, too. The ids of the node table stay with the graph as
    ``node_names``; beside several types, ids of those that are not classified have theirs before them.

    Args:
        path: The YAML file; see :class:`TableDescription`.

    Raises:
        ConfigError: The YAML has an unknown or missing key, or a value of the wrong kind.
        DataError: Tables do not fit; the error names all faults with file, column and rows (data rows counted from 1,
            for CSV and Excel also the line). Or a database cannot be read.
    """
    return read_tables(read_spec(path)).graph


@dataclass
class _Nodes:
    """The nodes of one type, as far as their table could be read."""

    table: Table
    part: Part
    id: str
    ids: Any
    features: FeatureTable
    time: NDArray[np.float64] | None = None
    splits: Mapping[str, NDArray[np.bool_]] | None = None


def read_tables(spec: TableSpec, *, missing: Missing | None = None, learned: Learned | None = None) -> Reading:
    """The graph that a checked description names; see :func:`load_tables`.

    Args:
        spec: The description.
        missing: Rules for empty cells in place of the description's.
        learned: Of a model that is to be asked about the graph, or of silos that it shares words and types with.

    Raises:
        ConfigError, DataError: As :func:`load_tables`.
    """
    if missing is not None:
        spec = replace(spec, missing=missing)
    learned = learned or Learned()
    types = learned.types or tuple(sorted(spec.nodes))
    relations = learned.relations or spec.relations
    _refuse_unknown(spec, types, relations)
    queries = [source for source in spec.places.values() if isinstance(source, Query)]
    fetched: dict[Query, Any] = {}
    if queries:
        from graphsilo.data.sources.sql import read_queries

        fetched = dict(zip(queries, read_queries(queries), strict=True))
    faults = Faults(spec.file)
    tables = {key: _table(key, spec, fetched, faults) for key in spec.places}
    nodes = {
        kind: found
        for kind in types
        if kind in spec.nodes
        and (found := _read_nodes(spec, kind, len(types) > 1, tables, faults, learned)) is not None
    }
    labels = np.zeros(0, dtype=np.int64)
    class_names: tuple[str, ...] = ()
    notes: list[str] = []
    with faults.collect():
        empty = {
            f"{one.part.start}{name}": count for one in nodes.values() for name, count in one.features.empty.items()
        }
        if len(nodes) == len(spec.nodes):
            known = [
                name for one in nodes.values() for column in one.features.empty for name in one.part.called(column)
            ]
            spec.missing.check(known, f"{spec.file}: features.missing")
    target = nodes.get(spec.target)
    if target is not None:
        with faults.collect():
            labels, class_names = _read_labels(target.table, tables.get("labels"), spec, target.ids, notes)
    values = None
    if target is not None and spec.classified.targets:
        with faults.collect():
            values = read_targets(target.table, target.part, spec.classified.targets)
    rows = {
        name: read
        for name in spec.edges
        if (read := _read_relation(spec, name, tables, nodes, faults, learned)) is not None
    }
    rows |= _read_keys(spec, nodes, faults)
    links: OutsideLinks | None = None
    beyond = tables.get("outside")
    if beyond is not None:
        with faults.collect():
            links = _read_outside(beyond, spec, None if target is None else target.ids, _short(target))
    faults.raise_if_any()
    assert target is not None
    made = assemble(
        {kind: NodeRows(one.features, one.time) for kind, one in nodes.items()}, rows, spec.target,
        types=types, relations=relations, learned=learned,
    )  # fmt: skip
    edges = made.parts["edges"]
    own = slice(made.starts[spec.target], made.starts[spec.target] + target.table.rows)
    total = sum(one.table.rows for one in nodes.values())
    labelled = np.full(total, -1, dtype=np.int64)
    labelled[own] = labels
    notes += [
        f"'{table.short}' ({key}) has no rows, so that nothing is known of such {key.partition('.')[0]}"
        for key, table in tables.items()
        if key.startswith(("nodes", "edges")) and table is not None and not table.rows
    ]
    for one in nodes.values():
        names = [f"{one.part.start}{name}" for name in one.features.names]
        numbers = [name if name in empty else "" for name in names]
        held = one.features
        notes += [*held.notes, *flat_notes(held.values, numbers), *far_notes(held.values, numbers, made.fills)]
    graph = Graph(
        **made.parts,
        labels=labelled,
        num_classes=len(class_names),
        name=spec.name,
        splits={key: _spread(found, own, total) for key, found in (target.splits or {}).items()},
        class_names=class_names,
        node_names=np.concatenate([_names(one, kind, spec.target) for kind, one in nodes.items()]),
        booleans=spec.booleans(len(types) > 1),
        outside=links,
        notes=tuple(notes),
    )
    if values is not None:
        every = np.full((total, values.shape[1]), np.nan)
        every[own] = values
        graph = with_targets(graph, every, spec.classified.targets)
    graph = merge_parallel(graph) if spec.directed else make_undirected(graph)
    return Reading(replace(graph, notes=(*graph.notes, *date_notes(graph, spec))), empty, edges)


def _refuse_unknown(spec: TableSpec, types: Sequence[str], relations: Sequence[str]) -> None:
    """Types and relations that others do not know."""
    for what, own, known in (("nodes", spec.nodes, types), ("edges", spec.relations, relations)):
        strange = [name for name in own if name not in known]
        if strange:
            raise DataError(
                f"{spec.file}: {what} has a table '{strange[0]}', which the model or the federation does not know; "
                f"{nearest(strange[0], known)} It was trained on tables of other names."
            )


def _read_nodes(
    spec: TableSpec, kind: str, many: bool, tables: Mapping[str, Table | None], faults: Faults, learned: Learned
) -> _Nodes | None:
    """The nodes of one type; None if there is no table."""
    table = tables.get(spec.node_key(kind))
    if table is None:
        return None
    part = spec.node_part(kind, many=many)
    found = _Nodes(table, part, spec.nodes[kind].id, None, FeatureTable(np.zeros((0, 0), dtype=np.float32)))
    with faults.collect():
        found.ids = _read_ids(table, found.id, part.key)
    counting = np.ones(table.rows, dtype=np.bool_)
    split = spec.nodes[kind].split
    if split is not None:
        with faults.collect():
            found.splits = _read_splits(table, split, part.key)
            counting = ~found.splits["test"]
    with faults.collect():
        found.features = read_features(table, part, faults, counting, learned.of_table(part.start))
    with faults.collect():
        found.time = read_time(table, part)
    return found


def _read_relation(
    spec: TableSpec, name: str, tables: Mapping[str, Table | None], nodes: Mapping[str, _Nodes], faults: Faults,
    learned: Learned,
) -> LinkRows | None:  # fmt: skip
    """The rows of one table of edges; None if there is no table."""
    part = spec.edge_part(name)
    table, said, kinds = tables.get(part.key), spec.edges[name], spec.ends(name)
    if table is None:
        return None
    rows, weights, time = np.zeros((2, 0), dtype=np.int64), None, None
    features = FeatureTable(np.zeros((table.rows, 0), dtype=np.float32))
    with faults.collect():
        rows = _read_edges(table, part.key, said, [nodes.get(kind) for kind in kinds])
    if said.weight is not None:
        with faults.collect():
            weights = _read_weights(table, said.weight, said, part.key)
    with faults.collect():
        counting = np.ones(table.rows, dtype=np.bool_)
        features = read_features(table, part, faults, counting, learned.of_links(part.start))
    with faults.collect():
        time = read_time(table, part)
    found = LinkRows(rows, kinds, features, weights, time)
    return found.sorted() if isinstance(spec.places[part.key], Query) and not faults.found else found


def _read_keys(spec: TableSpec, nodes: Mapping[str, _Nodes], faults: Faults) -> dict[str, LinkRows]:
    """Links that columns of tables of nodes are: from each node to the one that a cell names, if it names one."""
    found: dict[str, LinkRows] = {}
    for kind, one in nodes.items():
        for column, other in spec.nodes[kind].keys.items():
            with faults.collect():
                key = f"{one.part.key}.keys"
                words = one.table.text(column, key=key)
                if (ids := getattr(nodes.get(other), "ids", None)) is None:
                    continue
                place = pc.index_in(words, value_set=ids)
                there = mask(pc.is_valid(place))
                one.table.refuse(
                    column, mask(pc.is_valid(words)) & ~there, f"the key names an unknown node ({key})", values=words,
                    todo=f"Keys must occur in column '{nodes[other].id}' of {nodes[other].table.short}; empty the "
                    f"cell, or add the node.",
                )  # fmt: skip
                rows = np.flatnonzero(there)
                ends = np.stack([rows, place.filter(pa.array(there)).to_numpy().astype(np.int64)])
                empty = FeatureTable(np.zeros((len(rows), 0), dtype=np.float32))
                time = None if one.time is None else one.time[rows]
                found[f"{kind}.{column}"] = LinkRows(ends, (kind, other), empty, None, time)
    return found


def _short(one: _Nodes | None) -> str:
    return "" if one is None else one.table.short


def _names(one: _Nodes, kind: str, target: str) -> NDArray[np.str_]:
    """What nodes are called: ids of several types may be the same."""
    ids = one.ids.to_pylist()
    return np.array(ids if kind == target else [f"{kind}:{name}" for name in ids], dtype=np.str_)


def _spread(part: NDArray[np.bool_], own: slice, total: int) -> NDArray[np.bool_]:
    whole = np.zeros(total, dtype=np.bool_)
    whole[own] = part
    return whole


def _table(key: str, spec: TableSpec, fetched: Mapping[Query, Any], faults: Faults) -> Table | None:
    """One of the tables; None if there is none, or if it cannot be read, which is noted."""
    source = spec.places[key]
    part, _, name = key.partition(".")
    with faults.collect():
        table = Table.of(source, key, fetched, faults)
        if part == "nodes" and name == spec.target and not table.rows:
            nothing = "returned no rows" if isinstance(source, Query) else "has a header but no data rows"
            raise DataError(f"{table.where} {nothing}; a graph needs at least one node.")
        said = {"nodes": spec.nodes.get(name), "edges": spec.edges.get(name or LINK)}.get(part) or getattr(spec, part)
        if not table.rename(getattr(said, "rename", {}), key=f"{key}.rename"):
            return None
        for column, words in getattr(said, "words", {}).items():
            with faults.collect():
                table.replace_words(column, words, key=f"{key}.words")
        if part == "nodes" and isinstance(source, Query):
            # A database gives rows in any order, and the split is drawn in theirs: the same tomorrow as today.
            table.sort(said.id, key=f"{key}.id")
        return table
    return None  # type: ignore[unreachable]  # collect() goes on after an error


def _read_ids(nodes: Table, name: str, key: str) -> Any:
    ids = nodes.text(name, key=f"{key}.id")
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


_SPELLINGS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("Without '.0' behind them, which numbers get beside empty cells", lambda words: _drop(words, r"\.0+$")),
    ("Without leading zeros, which spreadsheets drop", lambda words: _drop(words, "^0+")),
    ("In lower case", pc.utf8_lower),
)


def _drop(words: Any, pattern: str) -> Any:
    return pc.replace_substring_regex(words, pattern, "")


def _spell(words: Any, ids: Any) -> str:
    """How these words would be ids, if there is one such way."""
    for how, change in _SPELLINGS:
        if pc.all(pc.is_in(change(words), value_set=change(ids))).as_py():
            return f" {how}, all of these occur there: write both tables alike."
    return ""


def _read_edges(edges: Table, key: str, said: EdgeTable, nodes: Sequence[_Nodes | None]) -> NDArray[np.int64]:
    """[2, r] node numbers of both ends of every row, within their types; without these, only whether ends are there."""
    ends = []
    for name, end, kind in ((said.source, "source", nodes[0]), (said.target, "target", nodes[1])):
        with edges.faults.collect():
            words = edges.text(name, key=f"{key}.{end}")
            empty = mask(pc.is_null(words))
            edges.refuse(name, empty, "the end of an edge is empty", todo="Name a node, or remove the edge.")
            if kind is not None and kind.ids is not None:
                place = pc.index_in(words, value_set=kind.ids)
                strange = mask(pc.is_null(place)) & ~empty
                todo = f"Ends must occur in column '{kind.id}' of {kind.table.short}; remove the edge or add the node."
                if strange.any():
                    todo += _spell(words.filter(strange), kind.ids)
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
    todo = f"Own ends must occur in column '{spec.classified.id}' of {nodes}; remove the link or add the node."
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


def _read_weights(edges: Table, name: str, how: EdgeTable, key: str) -> NDArray[np.float32]:
    """[r] weights of the rows, all finite and above 0 unless a fault was noted."""
    column = edges.column(name, key=f"{key}.weight")
    kind = column.type
    if is_text(kind):
        none, todo = np.zeros(edges.rows, dtype=np.bool_), "Give each edge a number above 0."
        words = ungroup(pc.utf8_trim_whitespace(column), how)
        numbers = parse_decimals(edges, name, words, how.decimal, ("weight", key), none, todo=todo)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(f"{edges.where}: column '{name}' ({key}.weight) holds {kind}; weights must be numbers.")
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
            if spec.classified.label is None
            else _read_classes(nodes, spec.classified.label, f"{spec.node_key(spec.target)}.label", spec, notes)
        )
    if labelled is None or ids is None:
        return none, ()
    whose = labelled.text(spec.labels.id, key="labels.id")
    place = pc.index_in(whose, value_set=ids)
    labelled.refuse(
        spec.labels.id, mask(pc.is_null(place)), "the label is of an unknown node", values=whose,
        todo=f"Nodes must occur in column '{spec.classified.id}' of {nodes.short}; remove the label or add the node.",
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
    found, _ = find_gaps(words, spec.classified, UNLABELLED)
    if is_signed(distinct(found)):
        found = pc.if_else(pc.equal(found, "+1"), "1", found)
    else:
        found = pc.if_else(pc.equal(found, "-1"), pa.scalar(None, pa.string()), found)
    found = pc.if_else(pc.fill_null(known, False), words, found)
    undeclared, _ = find_gaps(words, spec.classified, ())
    usual = pc.and_(pc.is_null(found), pc.fill_null(pc.not_equal(undeclared, "-1"), False))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(undeclared.filter(usual)).to_pylist()}
    if counts:
        notes.append(unlabelled_note(where, counts, "list it in classes"))
    return found


def _read_splits(nodes: Table, name: str, key: str) -> dict[str, NDArray[np.bool_]]:
    words = nodes.text(name, key=f"{key}.split")
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
