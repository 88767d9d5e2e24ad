"""Columns of nodes from tables: a node's features, those of its neighbourhood, its degree, and all that by relation.

With N = D^-1 A: X, N X, N² X; the standard deviation of X over the neighbours, where X is narrow; log(1 + degree) and
its mean over the neighbours. Links count both ways and alike in them; where they have directions or weights, all but X
comes again for these (``views_of``); where tables of links are known apart, each relation adds in both directions what
the nodes at the other end look like (``relation_columns``). A wide X has rows of length 1 and is projected, onto given
directions and random ones. All sums run over the links of one node in their order, in float64, and rows are rounded to
a grid on which their projection is exact: a node's row does not depend on who else is in its silo, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.directions import to_undirected
from graphsilo.data.sources.link_columns import DIRECTIONS, start_of
from graphsilo.models.columns import BLOCK, projection, unit_rows
from graphsilo.models.view import GraphTensors, Matrix

ROUNDING = 1e-12
"""Share of a mean of squares below which a variance is rounding."""
ROW = 2.0**14
"""Steps of a row of length 1."""


def num_views(schema: Schema) -> int:
    """How many times the links of a graph are looked at: see ``views_of``."""
    return 3 if schema.directed else 2 if schema.weighted else 1


def views_of(data: GraphTensors, schema: Schema) -> list[GraphTensors]:
    """The graph with its links both ways, all alike; then as it is, where they have weights or directions; and with
    directions also turned round.

    Of links that come in alone, half of a node's neighbours would be unseen; and of amounts, a few large ones would be
    all that a mean shows.

    Args:
        data: The graph.
        schema: Says whether links have directions and weights, for all silos alike.
    """
    if num_views(schema) == 1:
        return [data]
    graph = data.graph
    # Where nodes have times, a link counts in one way: the other would tell a node of what came later.
    ways = to_undirected(graph.edges, graph.num_nodes) if graph.time is None else graph.edges
    views = [graph.with_edges(ways), graph]
    if schema.directed:
        views.append(graph.with_edges(graph.edges[::-1], graph.edge_weights))
    return [data if each is graph else GraphTensors(each) for each in views]


@lru_cache(maxsize=8)
def relation_sources(schema: Schema, dim: int) -> tuple[tuple[int, bool, NDArray[np.int64] | None], ...]:
    """Relations along and against their rows: which one, whether against, and the features of nodes where they come
    from; None for all columns of X, which are projected.

    Features of other types would be 0 there. Names tell whose they are: ``account.balance``, ``transfer out: count``.

    Args:
        schema: Of the federation: the same at all silos.
        dim: Most columns of X that are taken as they are.
    """
    names, found = schema.feature_names or (), []
    for number in range(len(schema.relations)):
        for turned in (False, True):
            columns = None
            if schema.num_features <= dim:
                kind = schema.ends[number][turned] if schema.ends else ""
                starts = tuple(
                    start_of(relation, direction)
                    for relation, ends in zip(schema.relations, schema.ends, strict=False)
                    for direction, end in zip(DIRECTIONS, ends, strict=True)
                    if end == kind
                )
                columns = np.array(
                    [at for at, name in enumerate(names) if not kind or name.startswith((f"{kind}.", *starts))]
                    if names
                    else range(schema.num_features),
                    dtype=np.int64,
                )
            found.append((number, turned, columns))
    return tuple(found)


def width_of_relations(schema: Schema, dim: int) -> int:
    """Columns that relations add."""
    wide = schema.num_features > dim
    widths = (dim if columns is None else 2 * len(columns) for _, _, columns in relation_sources(schema, dim))
    return sum(width + (1 if wide else 2) for width in widths)


def width_of(num_features: int, dim: int, labelled: int, views: int = 1) -> int:
    """p, the columns of a node, but for those of relations.

    Args:
        num_features: Of X.
        dim: Most columns of X that are taken as they are.
        labelled: Classes of the label features; 0 without.
        views: How many times links are looked at.
    """
    own, each = (num_features, 3 * num_features) if num_features <= dim else (dim, 2 * dim)
    return own + views * (each + 2 + 2 * labelled)


def node_columns(
    views: Sequence[GraphTensors],
    dim: int,
    principal: NDArray[np.float32],
    seed: int,
    relations: tuple[GraphTensors, Schema] | None = None,
    nodes: NDArray[np.int64] | slice = slice(None),
) -> NDArray[np.float32]:
    """[m, p] the columns of some nodes, without label features.

    Args:
        views: The graph, as ``views_of`` gives it.
        dim: Most columns of X that are taken as they are.
        principal: [d, k] principal directions; k = 0: all are random.
        seed: Of the random ones.
        relations: The graph and the schema that names its relations, to have ``relation_columns`` behind the others.
        nodes: Of which, by their numbers; unless they are named, all.
    """
    narrow = views[0].num_features <= dim
    own = own_columns(views[0], dim, principal, seed)
    parts = [own[nodes].astype(np.float32)]
    for data in views:
        whole = data.matrix("mean").astype(np.float64)
        step, one = whole[nodes], whole @ own
        found = [one[nodes], step @ one]
        if narrow:
            found.append(_deviation(step, own, one[nodes]))
        degree = np.log1p(np.asarray(data.matrix("sum").sum(axis=1), dtype=np.float64))
        parts += [each.astype(np.float32) for each in (*found, degree[nodes], step @ degree)]
    if relations is not None:
        parts.append(relation_columns(*relations, own, dim, nodes))
    return np.hstack(parts)


def list_classified(data: GraphTensors) -> NDArray[np.int64] | slice:
    """The nodes that are classified, where there are others, too; ascending."""
    types = None if data.collection is not None else data.graph.types
    return slice(None) if types is None else data.cached(("classified",), lambda: np.flatnonzero(types.targets))


def place_classified(data: GraphTensors, items: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where nodes, or graphs, stand among those that are classified."""
    nodes = list_classified(data)
    return items if isinstance(nodes, slice) else np.searchsorted(nodes, items)


def _deviation(step: sp.csr_matrix, values: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, d] the standard deviation of values over each node's neighbours, whose mean is known."""
    squares = step @ (values * values)
    variance = squares - mean * mean
    found: NDArray[np.float64] = np.sqrt(np.where(variance > ROUNDING * squares, variance, 0.0))
    return found


def own_columns(data: GraphTensors, dim: int, principal: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """[n, d] X, or of a wide one [n, dim] its projection; arguments as of :func:`node_columns`."""
    features, width = data.graph.features, data.num_features
    if width <= dim:
        return dense(features)
    thrown = projection(width, dim - principal.shape[1], seed)
    known = principal.astype(np.float64)
    parts = (np.hstack([rows @ known, dense(rows @ thrown)]) for rows in round_rows(features))
    return np.vstack([np.zeros((0, dim)), *parts])


def relation_columns(
    data: GraphTensors, schema: Schema, own: NDArray[np.float64], dim: int,
    nodes: NDArray[np.int64] | slice = slice(None),
) -> NDArray[np.float32]:  # fmt: skip
    """[m, q] for each relation and direction, of the nodes at the other end of a node's rows: mean and, where X is
    narrow, standard deviation of X; log(1 + how many there are) and, of that, their mean.

    Nothing passes back in time, and parallel rows are one link (:mod:`graphsilo.models.relations`).

    Args:
        data: The graph.
        schema: Says which relations there are.
        own: [n, ...] X, or its projection.
        dim: Most columns of X that are taken as they are.
        nodes: Of which nodes, as ``node_columns`` has it.
    """
    from graphsilo.models.relations import relation_matrix

    parts = []
    for number, turned, columns in relation_sources(schema, dim):
        whole = relation_matrix(data, number, "mean", turned=turned).astype(np.float64)
        step, here = whole[nodes], own if columns is None else own[:, columns]
        one, degree = step @ here, np.log1p(np.diff(whole.indptr).astype(np.float64))[:, None]
        found = [one, degree[nodes]]
        if columns is not None:
            found += [_deviation(step, here, one), step @ degree]
        parts += [each.astype(np.float32) for each in found]
    return np.hstack(parts)


def round_rows(features: Matrix) -> Iterator[Any]:
    """Rows of length 1, rounded, in float64: some thousand at once."""
    for start in range(0, features.shape[0], BLOCK):
        rows = unit_rows(features[start : start + BLOCK])
        if sp.issparse(rows):
            rows = rows.astype(np.float64)
            rows.data = np.rint(rows.data * ROW) / ROW
            yield rows
        else:
            yield np.rint(rows.astype(np.float64) * ROW) / ROW


def dense(matrix: Any) -> NDArray[np.float64]:
    return np.asarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray(), dtype=np.float64)


def portable_columns(principal: NDArray[np.float32], schema: Schema, dim: int, seed: int) -> dict[str, Any]:
    """How ``node_columns`` are made, as plain values and arrays; arguments as there."""
    thrown: list[NDArray[Any]] = []
    width = schema.num_features
    if width > dim:
        known = projection(width, dim - principal.shape[1], seed).toarray()
        thrown = [principal, known] if principal.shape[1] else [known]
    relations = [[2 * number + turned, columns] for number, turned, columns in relation_sources(schema, dim)]
    return {
        "principal": thrown, "grid": ROW, "rounding": ROUNDING, "relations": relations, "directed": schema.directed,
        "weighted": schema.weighted,
    }  # fmt: skip
