"""What may be known of a node at the time that it is looked at: nothing that came later.

A node at time t is told of links that were made up to t, by nodes that are looked at by t. Whatever then passes along
links, however many of them in a row, comes from t or before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.sources.directions import is_symmetric
from graphsilo.errors import DataError


def moments(graph: Graph) -> NDArray[np.float64] | None:
    """[n] days since 1970-01-01 that each node is looked at; None where the graph has no dates at all.

    A node without a time is looked at on the last date of the graph's tables. Where nodes that are classified have
    times, one of another type that has none, such as a merchant, stands for what was known from the beginning: every
    node may be told of it, and no dated link or node has a part in it.
    """
    dates = [part for part in (graph.time, None if graph.links is None else graph.links.time) if part is not None]
    known = np.concatenate([part[~np.isnan(part)] for part in dates]) if dates else np.zeros(0)
    if not len(known):
        return None
    found = np.full(graph.num_nodes, known.max())
    if graph.time is None:
        return found
    dated = ~np.isnan(graph.time)
    found[dated] = graph.time[dated]
    if graph.types is not None and (dated & graph.types.targets).any():
        found[~dated & ~graph.types.targets] = -np.inf
    return found


def may_pass(
    moments: NDArray[np.float64] | None,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    made: NDArray[np.float64] | None,
) -> NDArray[np.bool_]:
    """[e] whether what is at the source may be told at the target.

    Args:
        moments: [n] when each node is looked at, as :func:`moments` gives it.
        source, target: [e] ends of links.
        made: [e] days that the links were made, NaN where it is not known and the link counts as old; None where no
            link has a date.
    """
    if moments is None:
        return np.ones(len(source), dtype=np.bool_)
    allowed: NDArray[np.bool_] = moments[source] <= moments[target]
    return allowed if made is None else allowed & ~(made > moments[target])


class Rows(NamedTuple):
    """What passes along rows of the tables of links: each row once in its direction and once against it.

    Attributes:
        source, target: [m] nodes.
        kind: [m] 2 · relation along its rows, 2 · relation + 1 against them.
        row: [m] which row of the tables it is.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    kind: NDArray[np.int64]
    row: NDArray[np.int64]


def passing_rows(graph: Graph) -> Rows:
    """The rows of a graph's tables of links that pass something; those of a node to itself do not."""
    links = graph.links
    if links is None:
        return Rows(*np.zeros((4, 0), dtype=np.int64))
    linked = np.isin(_pairs(links.ends, graph.num_nodes), _pairs(graph.edges.astype(np.int64), graph.num_nodes))
    row = np.tile(np.flatnonzero(linked & (links.ends[0] != links.ends[1])), 2)
    once = len(row) // 2
    kind = 2 * links.of_link[row].astype(np.int64)
    kind[once:] += 1
    source, target = links.ends[:, row]
    source[once:], target[once:] = target[once:].copy(), source[once:].copy()
    found = Rows(source, target, kind, row)
    if graph.time is None:
        return found
    kept = may_pass(moments(graph), source, target, None if links.time is None else links.time[row])
    return Rows(*(part[kept] for part in found))


def _pairs(ends: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """[m] a number for each pair of ends, whichever of them comes first."""
    low, high = np.minimum(*ends), np.maximum(*ends)
    return np.asarray(low * np.int64(num_nodes) + high)


def respect_time(graph: Graph, *, undirected: bool | None = None) -> Graph:
    """The graph with only those edges along which nothing passes back in time; the same object where all are.

    An edge between two nodes counts as made when the first row of any table of links between them was: in the edge's
    direction or, where links have none, in either. Edges that no table has are undated.

    Args:
        graph: Its edges, rows of links and nodes may have dates.
        undirected: Whether links have no direction; None looks at the edges.

    Raises:
        DataError: Edges have weights, which add up rows of all dates.
    """
    when = moments(graph)
    if when is None or graph.time is None:
        return graph
    source, target = graph.edges.astype(np.int64)
    made = None
    if graph.links is not None and graph.links.time is not None:
        if graph.edge_weights is not None:
            raise DataError(
                f"{graph.name}: nodes and links have dates, and the weights of links (edges.weight) add up rows of all "
                f"dates, which would tell a node of what came later. Leave out the weight and name its column under "
                f"'features' of the links: what is added up of it looks back from each node."
            )
        rows, dates = graph.links.ends, graph.links.time
        if is_symmetric(graph) if undirected is None else undirected:
            rows, dates = np.concatenate([rows, rows[::-1]], axis=1), np.concatenate([dates, dates])
        made = _first_made(source, target, rows, dates, graph.num_nodes)
    kept = may_pass(when, source, target, made)
    if kept.all():
        return graph
    weights = None if graph.edge_weights is None else graph.edge_weights[kept]
    return replace(graph, edges=np.ascontiguousarray(graph.edges[:, kept]), edge_weights=weights)


def _first_made(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    rows: NDArray[np.int64],
    dates: NDArray[np.float64],
    num_nodes: int,
) -> NDArray[np.float64]:
    """[e] the first date of each edge among rows [2, r] of tables, NaN where one without a date or no row says so."""
    keys, place = np.unique(source * num_nodes + target, return_inverse=True)
    names = rows[0] * num_nodes + rows[1]
    found = np.searchsorted(keys, names)
    there = (
        np.flatnonzero(keys[np.minimum(found, len(keys) - 1)] == names) if len(keys) else np.zeros(0, dtype=np.int64)
    )
    first = np.full(len(keys), np.inf)
    np.minimum.at(first, found[there], np.nan_to_num(dates[there], nan=-np.inf))
    first[np.isinf(first)] = np.nan
    return first[place]
