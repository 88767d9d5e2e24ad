"""Graphs of several types of nodes and tables of links, as institutions keep them, put together from arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable, NodeTypes, Owners
from graphsilo.data.sources.directions import to_undirected
from graphsilo.data.sources.generated import Generated
from graphsilo.random import numpy_generator
from graphsilo.settings import setting

FIRST_DAY = 20089.0
"""Of all generated tables: 2025-01-01 in days since 1970-01-01."""
MONTH = 365 / 12
"""Days."""


class Institutions(Generated):
    """Settings of generated tables of several institutions."""

    months: int = setting(12, "how long the tables reach", ge=6, le=60)

    @property
    def days(self) -> float:
        """How long the tables reach."""
        return self.months * MONTH

    def draw(self, *names: str | int) -> np.random.Generator:
        """Randomness for one purpose."""
        return numpy_generator(self.seed, self.name, *names)

    def draw_tables(self) -> Tables:
        """What all institutions have."""
        raise NotImplementedError

    def generate(self) -> Graph:
        """The tables as one graph."""
        return put_together(self.name, self.draw_tables())


@dataclass(frozen=True, eq=False)
class NodeTable:
    """All nodes of one type.

    Attributes:
        names: [n] what they are called, different ones within a type.
        columns: [n] numbers by name; a category has a column of zeros and ones for each word, ``segment=sme``.
        owner: [n] number of the institution that each is at, -1 for none.
        labels: [n] class, -1 unknown; None where nodes of this type are not classified.
        time: [n] days since 1970-01-01; None where nodes are not looked at on a day.
    """

    names: NDArray[np.str_]
    columns: Mapping[str, NDArray[np.floating]]
    owner: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None
    time: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class LinkRows:
    """All rows of one table of links.

    Attributes:
        source, target: Types of their ends.
        ends: [2, r] numbers within these types.
        columns: [r] numbers by name.
        time: [r] days since 1970-01-01, or None.
    """

    source: str
    target: str
    ends: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    time: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Tables:
    """All tables of all institutions.

    Attributes:
        nodes: By type; the one with labels is classified.
        links: By relation.
        owners: Names of the institutions.
        classes: What the classes are called.
    """

    nodes: Mapping[str, NodeTable]
    links: Mapping[str, LinkRows]
    owners: Sequence[str]
    classes: Sequence[str]

    def export(self, number: int) -> dict[str, dict[str, NDArray[Any]]]:
        """The tables of one institution: its nodes and those that are at none, and rows of links with one of its nodes.

        Args:
            number: Of the institution.

        Returns:
            Columns of equal length by table. Nodes have their names in a column that is called as their type, links
            in ``from`` and ``to``; then follow their own columns, a category as words, and ``day`` (since 1970-01-01)
            and ``label`` (a word, empty where it is not known) where they have them.
        """
        found: dict[str, dict[str, NDArray[Any]]] = {}
        for kind, table in self.nodes.items():
            kept = np.isin(table.owner, (number, -1))
            labels = None if table.labels is None else np.array([*self.classes, ""])[table.labels]
            found[kind] = _choose(
                {kind: table.names, **gather(table.columns), "day": table.time, "label": labels}, kept
            )
        for relation, rows in self.links.items():
            (one, other), (source, target) = rows.ends, (self.nodes[rows.source], self.nodes[rows.target])
            kept = (source.owner[one] == number) | (target.owner[other] == number)
            ends = {"from": source.names[one], "to": target.names[other]}
            found[relation] = _choose({**ends, **gather(rows.columns), "day": rows.time}, kept)
        return found


def _choose(columns: Mapping[str, NDArray[Any] | None], rows: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    return {name: values[rows] for name, values in columns.items() if values is not None}


def spread(words: Sequence[str], chosen: NDArray[np.integer], name: str) -> dict[str, NDArray[np.float32]]:
    """A category as a column of zeros and ones for each word."""
    return {f"{name}={word}": (chosen == number).astype(np.float32) for number, word in enumerate(words)}


def gather(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Columns with each category as words, which :func:`spread` undoes."""
    found, words = {}, defaultdict[str, dict[str, NDArray[Any]]](dict)
    for name, values in columns.items():
        category, is_word, word = name.partition("=")
        if is_word:
            words[category][word] = values
        else:
            found[name] = values
    return found | {name: np.array([*of])[np.argmax([*of.values()], axis=0)] for name, of in words.items()}


def put_together(name: str, tables: Tables) -> Graph:
    """One graph of all types: their columns side by side, zeros where a type lacks one, and a column per type.

    Args:
        name: Of the graph.
        tables: Of all institutions.

    Returns:
        Undirected edges, each link once, and the rows of all tables beside them.
    """
    nodes, links, classes = tables.nodes, tables.links, tables.classes
    types = list(nodes)
    start = dict(zip(types, np.cumsum([0, *map(len, nodes.values())]), strict=False))
    count = sum(map(len, nodes.values()))
    target = next(number for number, table in enumerate(nodes.values()) if table.labels is not None)
    of_node = np.repeat(np.arange(len(types), dtype=np.int16), [len(table) for table in nodes.values()])
    width = sum(len(table.columns) for table in nodes.values())
    features = np.zeros((count, width + len(types)), dtype=np.float32)
    words: list[str] = []
    of_feature: list[int] = []
    for number, (kind, table) in enumerate(nodes.items()):
        rows = slice(start[kind], start[kind] + len(table))
        for key, values in table.columns.items():
            features[rows, len(words)] = values
            words.append(f"{kind}.{key}")
            of_feature.append(number)
    for number in range(len(types)):
        features[of_node == number, width + number] = 1.0
    rows_of = _join_links(links, start)
    return Graph(
        features,
        to_undirected(rows_of.ends, count),
        np.concatenate([np.full(len(table), -1) if table.labels is None else table.labels for table in nodes.values()]),
        num_classes=len(classes),
        name=name,
        class_names=tuple(classes),
        feature_names=(*words, *(f"type={kind}" for kind in types)),
        node_names=np.concatenate([table.names for table in nodes.values()]),
        types=NodeTypes(
            tuple(types), of_node, np.array([*of_feature, *[-1] * len(types)], dtype=np.int16), target=target
        ),
        links=rows_of,
        time=np.concatenate(
            [np.full(len(table), np.nan) if table.time is None else table.time for table in nodes.values()]
        ),
        owners=Owners(tuple(tables.owners), np.concatenate([table.owner for table in nodes.values()])),
    )


def _join_links(links: Mapping[str, LinkRows], start: Mapping[str, int]) -> LinkTable:
    sizes = [table.ends.shape[1] for table in links.values()]
    width = sum(len(table.columns) for table in links.values())
    features = np.full((sum(sizes), width), np.nan)
    names: list[str] = []
    first = 0
    for relation, table in links.items():
        for key, values in table.columns.items():
            features[first : first + len(values), len(names)] = values
            names.append(f"{relation}.{key}")
        first += table.ends.shape[1]
    ends = [table.ends + np.array([[start[table.source]], [start[table.target]]]) for table in links.values()]
    times = [
        np.full(size, np.nan) if table.time is None else table.time
        for size, table in zip(sizes, links.values(), strict=True)
    ]
    types = list(start)
    between = [[types.index(table.source), types.index(table.target)] for table in links.values()]
    return LinkTable(
        tuple(links), np.repeat(np.arange(len(links), dtype=np.int16), sizes), np.concatenate(ends, axis=1), features,
        tuple(names), np.concatenate(times), np.array(between, dtype=np.int16),
    )  # fmt: skip
