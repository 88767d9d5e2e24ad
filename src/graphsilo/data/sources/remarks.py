"""What deserves a look in tables that can be read: nothing here is wrong, and much of it is not meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.sources.classes import signed_note
from graphsilo.data.sources.tables import Reading, TableSpec
from graphsilo.errors import several

MOSTLY_EMPTY = 0.5
"""Share of empty cells from which a column deserves a word."""
SHOWN = 3


@dataclass(frozen=True)
class LinkFacts:
    """What became of the rows of an edge table.

    Attributes:
        repeated: Rows that name a link in the direction in which an earlier row does.
        reversed: Links that are named in both directions.
        links: All links, directions aside.
        loops: Rows that link a node with itself.
    """

    repeated: int
    reversed: int
    links: int
    loops: int

    @classmethod
    def of(cls, rows: NDArray[np.int64], num_nodes: int) -> LinkFacts:
        """Of [2, r] node numbers."""
        apart = rows[:, rows[0] != rows[1]]
        directed = np.unique(apart[0] * num_nodes + apart[1])
        links = len(np.unique(np.minimum(*apart) * num_nodes + np.maximum(*apart)))
        return cls(apart.shape[1] - len(directed), len(directed) - links, links, rows.shape[1] - apart.shape[1])


def remarks(found: Reading, spec: TableSpec) -> list[tuple[str, str]]:
    """What a person should look at: where, and what."""
    said = [*_features(found), *_words(found, spec), *_undated(found.graph)]
    if spec.classes is None:
        said += [("classes", note) for note in signed_note(found.graph.class_names)]
    facts = LinkFacts.of(found.rows, found.graph.num_nodes)
    counted = found.graph.links is None  # else every row is, and two directions are two things
    if facts.repeated and counted:
        effect = (
            "weights add up"
            if any(said.weight is not None for said in spec.edges.values())
            else ""
            if spec.directed
            else "it counts once"
        )
        text = f"{_rows(facts.repeated)} a link that stands there before"
        said.append(("links", f"{text}: {effect}" if effect else text))
    if facts.reversed and counted and not spec.directed:
        all_ = "every link" if facts.reversed == facts.links else f"{facts.reversed} of {facts.links} links"
        said.append(("links", f"{all_} named in both directions: each is one link, since `directed` is false"))
    if facts.loops:
        left_out = "" if spec.directed else ": left out"
        said.append(("links", f"{_rows(facts.loops)} a node as linked with itself{left_out}"))
    return said


def _undated(graph: Graph) -> list[tuple[str, str]]:
    """Nodes that are classified, or might be, without a time beside others that have one."""
    if graph.time is None:
        return []
    asked = slice(None) if graph.types is None else graph.types.targets
    times = graph.time[asked]
    number = int(np.isnan(times).sum())
    if not number:
        return []
    if number == len(times):
        return [("dates", "none of the nodes that are classified has a time, though the table names a column of it")]
    return [(
        "dates",
        f"{number} of {len(times)} nodes have no time: they count as looked at on the last date of the tables, so "
        f"that nodes of earlier times are told nothing of them",
    )]  # fmt: skip


def _rows(number: int) -> str:
    return "one row names" if number == 1 else f"{number:,} rows name".replace(",", " ")


def _features(found: Reading) -> list[tuple[str, str]]:
    graph = found.graph
    said = []
    for place, name in enumerate(graph.feature_names or ()):
        if name not in found.empty:
            continue
        values = graph.features[:, place]
        column = values if isinstance(values, np.ndarray) else values.toarray().ravel()
        if graph.types is not None:
            column = column[graph.types.of_node == graph.types.of_feature[place]]
        if found.empty[name] > MOSTLY_EMPTY * len(column):
            share = 100 * found.empty[name] / len(column)
            said.append(("features", f"'{name}': {share:.0f} % of the cells are empty, and filled in"))
    return said


def _words(found: Reading, spec: TableSpec) -> list[tuple[str, str]]:
    """Words that differ so little that one is probably meant; where they are spelled out they are."""
    names = (*(found.graph.feature_names or ()), *(found.graph.links.feature_names if found.graph.links else ()))
    lists = [] if spec.classes is not None else [("classes", "class", found.graph.class_names or ())]
    for column, declared in spec.one_hot.items():
        if declared is None:
            prefix = f"{column}="
            words = tuple(name.removeprefix(prefix) for name in names if name.startswith(prefix))
            lists.append(("features", f"'{column}'", words))
    said = []
    for where, what, words in lists:
        groups: dict[str, list[str]] = {}
        for word in words:
            groups.setdefault("".join(word.split()).casefold(), []).append(word)
        for group in groups.values():
            if len(group) > 1:
                text = f"{_some(group)} ({what}) differ by case or blanks alone: is one of them meant?"
                said.append((where, text))
    return said


def _some(words: Iterable[str]) -> str:
    return several((f"'{word}'" for word in words), SHOWN)
