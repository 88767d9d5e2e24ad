"""Features of nodes that are added up over their links: how many, with how many others, how much, how recently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, add_notes
from graphsilo.data.links import LinkTable, mix_bits
from graphsilo.data.sources.looking_back import moments
from graphsilo.data.sources.transforms import append_features
from graphsilo.errors import ConfigError

ESTIMATE = "sums"
"""What ``Graph.estimated`` calls these columns, about which other nodes decide."""
DIRECTIONS = ("out", "in")
"""Rows that begin at a node, and rows that end there."""


def add_link_columns(graph: Graph, windows: Sequence[float] = (), *, others: bool = False) -> Graph:
    """The graph with further features: what is added up over the rows of each relation that begin or end at a node.

    For rows that begin at it (``out``) and for those that end there (``in``): how many there are, with how many
    different other nodes, and of each column of the relation its sum, mean, standard deviation and largest value; of a
    column of 0 and 1 the mean alone. They are called ``transfer out: amount, sum``. Empty cells do not count. A node
    without such rows has 0 everywhere.

    Only what came up to the time at which a node is looked at counts (:func:`graphsilo.data.sources.looking_back
    .moments`). Features of these names that the graph has already are made anew.

    Args:
        graph: One without ``links`` stays as it is. Which columns are 0 or 1 is not guessed from the rows, which
            may differ from silo to silo: those of a category (``transfer.channel=card``) and those in ``booleans``.
        windows: Days W, for each of which all this is told once more of the rows of the last W days alone, from
            t - W, which does not belong to them, to t.
        others: Whether other silos may have the dates that windows need: without any here they are empty, with a note.

    Numbers are not brought to logarithms. On generated banks (four silos, 60,000 accounts, 400,000 transfers, 1 %
    positive, two seeds) the average precision on validation nodes is higher without for FedRidge (.93, .94 against .90,
    .92) and FedAvg (.86, .86 against .80, .82), and alike for FedTrees (.99, .98 against .99, .99). Without any
    of these columns it is .68, .65 for FedRidge, .01, .01 for FedAvg and .98, .95 for FedTrees.

    Returns:
        With [n, ...] float64 features, the same whatever the order of the rows. Takes a few seconds for 10^6 rows of
        ten columns in three windows.

    Raises:
        ConfigError: A window is not above 0, or there are windows and no dates.
    """
    links, spans = graph.links, check_windows(windows)
    if spans and (links is None or links.time is None):
        if others:
            graph = add_notes(graph, [
                f"no table of links has dates here: what is added up over the last "
                f"{' and '.join(f'{span:g}' for span in spans)} days is 0 at every node of this silo"
            ])  # fmt: skip
        else:
            _refuse_windows(graph, spans)
    if links is None:
        return graph
    when = moments(graph)
    order = _order_by_content(links)
    blocks: list[NDArray[np.float64]] = []
    names: list[str] = []
    kinds: list[int] = []
    for number, relation in enumerate(links.relations):
        rows = links.where(order[links.of_link[order] == number])
        columns = {
            column: (name[len(relation) + 1 :], "=" in name or name in graph.booleans)
            for column, name in _columns_of(links, relation).items()
        }
        for direction, here, there in zip(DIRECTIONS, rows.ends, rows.ends[::-1], strict=True):
            for name, block in _columns_at(rows, here, there, when, graph.num_nodes, spans, columns):
                blocks.append(block)
                names.append(f"{start_of(relation, direction)}{name}")
            kind = _type_of(graph, here)
            if links.between is not None:  # also where this silo has no such row
                kind = int(links.between[number, DIRECTIONS.index(direction)])
            kinds += [kind] * (len(names) - len(kinds))
    return _with_columns(graph, np.stack(blocks, axis=1) if blocks else np.zeros((graph.num_nodes, 0)), names, kinds)


def _columns_at(
    rows: LinkTable,
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    when: NDArray[np.float64] | None,
    num_nodes: int,
    spans: Sequence[float],
    columns: Mapping[int, tuple[str, bool]],
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """What is added up of one relation at one end of its rows, each [n] with what it is called.

    Args:
        rows: Of the relation.
        here, there: [r] the end at which it is told, and the other.
        when: [n] when each node is looked at; None where there are no dates.
        num_nodes: n.
        spans: Windows, in days.
        columns: By their numbers, what columns are called, and whether they are 0 or 1.
    """
    ages = np.full(len(here), np.nan) if when is None or rows.time is None else when[here] - rows.time
    known = np.flatnonzero(~(ages < 0))
    known = known[np.argsort(here[known], kind="stable")]
    ages = ages[known]
    sums = _Sums(here[known], there[known], num_nodes)
    for span in (None, *spans):
        # Rows without a date belong to no window.
        chosen = np.arange(len(known)) if span is None else np.flatnonzero(ages < span)
        last = "" if span is None else f", {span:g} day{'' if span == 1 else 's'}"
        for what, block in sums.counts(chosen):
            yield what + last, block
        for column, (name, plain) in columns.items():
            for what, block in sums.of_column(rows.features[known[chosen], column], chosen, plain=plain):
                yield f"{name}, {what}{last}", block


def _refuse_windows(graph: Graph, spans: Sequence[float]) -> NoReturn:
    raise ConfigError(
        f"{graph.name}: sums over the last {spans[0]:g} days (sums.windows) need links with dates, and no table of "
        f"links has any. Name the column that says when a link was made (time: COLUMN, beside source and target), "
        f"or leave out the windows."
    )


def check_windows(windows: Sequence[float]) -> list[float]:
    """Spans of days, each once, ascending.

    Raises:
        ConfigError: One is not above 0.
    """
    for span in windows:
        if not 0 < span < np.inf:
            raise ConfigError(f"sums.windows are numbers of days above 0, such as [7, 30, 90]; got {span:g}.")
    return sorted({float(span) for span in windows})


class _Sums:
    """Sums over rows that are sorted by node.

    Each node's are added up in the order of its own rows, so that no other node's have a part in their rounding.
    """

    def __init__(self, here: NDArray[np.int64], there: NDArray[np.int64], num_nodes: int) -> None:
        self.here, self.num_nodes = here, num_nodes
        pairs, self._pair = np.unique(here * num_nodes + there, return_inverse=True)
        first, second = np.divmod(pairs, max(num_nodes, 1))
        self._first = np.where(first == second, -1, first)  # a node is no other of itself

    def counts(self, chosen: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """How many of the chosen rows each node has, and how many different others are in them."""
        yield "count", np.bincount(self.here[chosen], minlength=self.num_nodes).astype(np.float64)
        there = np.zeros(len(self._first), dtype=np.bool_)
        there[self._pair[chosen]] = True
        others = self._first[there & (self._first >= 0)]
        yield "others", np.bincount(others, minlength=self.num_nodes).astype(np.float64)

    def of_column(
        self, values: NDArray[np.float64], chosen: NDArray[np.int64], *, plain: bool
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """What is told of the chosen rows' values in a column; one of 0 and 1 is ``plain``."""
        here, known = self.here[chosen], ~np.isnan(values)
        if not known.all():
            here, values = here[known], values[known]
        size = self.num_nodes
        count = np.bincount(here, minlength=size)
        divisor = np.maximum(count, 1)
        total = np.bincount(here, weights=values, minlength=size).astype(np.float64)
        if plain:
            yield "share", total / divisor
            return
        largest, filled = np.zeros(size), np.flatnonzero(count)
        if len(filled):
            largest[filled] = np.maximum.reduceat(values, (np.cumsum(count) - count)[filled])
        # Below the largest, so that of equal numbers mean and deviation are exact.
        below = largest[here] - values
        gap = np.bincount(here, weights=below, minlength=size) / divisor
        below -= gap[here]
        np.square(below, out=below)
        yield "sum", total
        yield "mean", largest - gap
        yield "deviation", np.sqrt(np.bincount(here, weights=below, minlength=size) / divisor)
        yield "largest", largest


def _order_by_content(links: LinkTable) -> NDArray[np.int64]:
    """An order of the rows that depends on what their columns hold, not on where they stand or whose they are."""
    state = np.zeros(len(links), dtype=np.uint64)
    for column in range(links.features.shape[1]):
        bits = np.ascontiguousarray(links.features[:, column]).view(np.uint64)
        state = mix_bits(state ^ bits)
    return np.argsort(state, kind="stable")


def _columns_of(links: LinkTable, relation: str) -> dict[int, str]:
    """A relation's columns by their numbers: of ``a`` and ``a.b`` the longer name has ``a.b.c``."""
    longer = [f"{name}." for name in links.relations if name.startswith(f"{relation}.")]
    return {
        column: name
        for column, name in enumerate(links.feature_names)
        if name.startswith(f"{relation}.") and not any(map(name.startswith, longer))
    }


def _type_of(graph: Graph, here: NDArray[np.int64]) -> int:
    """The type that all these nodes have, -1 where they have several or there are none."""
    if graph.types is None or not len(here):
        return -1
    found = np.unique(graph.types.of_node[here])
    return int(found[0]) if len(found) == 1 else -1


def has_link_columns(graph: Graph) -> bool:
    """Whether some of its features are such sums, by their names."""
    starts = starts_of(graph)
    return any(name.startswith(starts) for name in graph.feature_names or ())


def start_of(relation: str, direction: str) -> str:
    """What names of sums over a relation's rows begin with, in one of ``DIRECTIONS``."""
    return f"{relation} {direction}: "


def starts_of(graph: Graph) -> tuple[str, ...]:
    """What names of such sums begin with, of all relations."""
    relations = () if graph.links is None else graph.links.relations
    return tuple(start_of(relation, direction) for relation in relations for direction in DIRECTIONS)


def _with_columns(graph: Graph, columns: NDArray[np.float64], names: list[str], kinds: list[int]) -> Graph:
    """The graph with these features behind its own, in place of older ones of such names."""
    own = graph.feature_names or tuple(f"feature {column}" for column in range(graph.num_features))
    starts = starts_of(graph)
    kept = np.array([not name.startswith(starts) for name in own], dtype=np.bool_)
    features = graph.features if kept.all() else graph.features[:, np.flatnonzero(kept)]
    types = graph.types
    if types is not None:
        of_feature = np.concatenate([types.of_feature[kept], np.array(kinds, dtype=np.int16)])
        types = replace(types, of_feature=of_feature)
    return replace(
        graph,
        features=append_features(features, columns),
        feature_names=(*(name for name, keep in zip(own, kept, strict=True) if keep), *names),
        types=types,
        estimated=tuple(dict.fromkeys((*graph.estimated, ESTIMATE))),
    )
