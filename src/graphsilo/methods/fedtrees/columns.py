"""FedTrees' columns: a node's features, those of its neighbourhood, its degree, and how its neighbours are labelled.

With N = D^-1 A: X, N X, N² X; the standard deviation of X over the neighbours, where X is narrow; log(1 + degree) and
its mean over the neighbours; FedRidge's label features. Links count both ways and alike in them; where they have
directions or weights, all but X comes again for these (``views_of``). A wide X has rows of length 1 and is projected
onto its first principal directions, found by subspace iteration over sums of all silos (Halko, Martinsson and Tropp,
"Finding Structure with Randomness", SIAM Review 2011), and onto random ones. All sums run over the links of one node
in their order, in float64; what is added over features or nodes lies on a grid that makes it exact: a node's row does
not depend on who else is in its silo, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.directions import to_undirected
from graphsilo.models.columns import BLOCK, projection, unit_rows
from graphsilo.models.view import GraphTensors, Matrix

PASSES = 3
"""Sums from which the directions are found."""
WIDEST = 1 << 14
"""Features beyond which all directions are random: a sum has ``dim`` / 2 numbers for each."""
ROUNDING = 1e-12
"""Share of a mean of squares below which a variance is rounding."""
ROW, _DIRECTION, _PRODUCT = 2.0**14, 2.0**20, 2.0**12
"""Steps of a row of length 1, of a direction, and of their product in a sum: 2^26 rows add up without rounding."""
LARGEST_MOMENT = int(1.01 * ROW * _PRODUCT)
"""What one row adds to a sum of ``second_moments`` at most: its length may be rounded up."""


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


def width_of(num_features: int, dim: int, labelled: int, views: int = 1) -> int:
    """p, the columns of a node.

    Args:
        num_features: Of X.
        dim: Most columns of X that are taken as they are.
        labelled: Classes of the label features; 0 without.
        views: How many times links are looked at.
    """
    own, each = (num_features, 3 * num_features) if num_features <= dim else (dim, 2 * dim)
    return own + views * (each + 2 + 2 * labelled)


def principal_of(num_features: int, dim: int) -> int:
    """How many principal directions a wide X is projected onto; 0 where it is not, or has too many columns."""
    return dim // 2 if dim < num_features <= WIDEST else 0


def node_columns(
    views: Sequence[GraphTensors], dim: int, principal: NDArray[np.float32], seed: int
) -> NDArray[np.float32]:
    """[n, p] the columns of all nodes, without label features.

    Args:
        views: The graph, as ``views_of`` gives it.
        dim: Most columns of X that are taken as they are.
        principal: [d, k] principal directions; k = 0: all are random.
        seed: Of the random ones.
    """
    features, width = views[0].graph.features, views[0].num_features
    narrow = width <= dim
    if narrow:
        own = _dense(features)
    else:
        thrown = projection(width, dim - principal.shape[1], seed)
        known = principal.astype(np.float64)
        own = np.vstack([np.hstack([rows @ known, _dense(rows @ thrown)]) for rows in _round_rows(features)])
    parts = [own]
    for data in views:
        step = data.matrix("mean").astype(np.float64)
        one = step @ own
        parts += [one, step @ one]
        if narrow:
            squares = step @ (own * own)
            variance = squares - one * one
            parts.append(np.sqrt(np.where(variance > ROUNDING * squares, variance, 0.0)))
        degree = np.log1p(np.asarray(data.matrix("sum").sum(axis=1), dtype=np.float64))
        parts += [degree, step @ degree]
    return np.hstack(parts).astype(np.float32)


def second_moments(features: Matrix, nodes: NDArray[np.int64], basis: NDArray[np.float32]) -> NDArray[np.int64]:
    """[d, k] Σ x (xᵀ Q) over some rows of length 1, in steps of 2^-26.

    Args:
        features: [n, d] X.
        nodes: Numbers of the rows.
        basis: [d, k] Q, as ``round_to_grid`` rounds it.
    """
    total = np.zeros(basis.shape, dtype=np.int64)
    for rows in _round_rows(features[nodes]):
        products = np.rint((rows @ basis.astype(np.float64)) * _PRODUCT)
        total += np.asarray((rows * ROW).T @ products).astype(np.int64)
    return total


def first_basis(num_features: int, width: int, seed: int) -> NDArray[np.float32]:
    """[d, k] where the search for directions begins: random ones."""
    return _orthonormal(_dense(projection(num_features, width, seed, block=1)))


def next_basis(sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """[d, k] closer to the first principal directions than those with which the sums were formed."""
    return _orthonormal(sums.astype(np.float64))


def directions_of(basis: NDArray[np.float32], sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """[d, k] the principal directions within a basis, from the sums that were formed with it."""
    inner = basis.astype(np.float64).T @ sums
    _, turned = np.linalg.eigh(inner + inner.T)
    return round_to_grid(basis.astype(np.float64) @ turned[:, ::-1])


def round_to_grid(directions: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded so that products with rows on their own grid are exact, in any order."""
    found: NDArray[np.float32] = (np.rint(directions * _DIRECTION) / _DIRECTION).astype(np.float32)
    return found


def _orthonormal(columns: NDArray[np.float64]) -> NDArray[np.float32]:
    return round_to_grid(np.linalg.qr(columns)[0])


def _round_rows(features: Matrix) -> Iterator[Any]:
    """Rows of length 1, rounded, in float64: some thousand at once."""
    for start in range(0, features.shape[0], BLOCK):
        rows = unit_rows(features[start : start + BLOCK])
        if sp.issparse(rows):
            rows = rows.astype(np.float64)
            rows.data = np.rint(rows.data * ROW) / ROW
            yield rows
        else:
            yield np.rint(rows.astype(np.float64) * ROW) / ROW


def _dense(matrix: Any) -> NDArray[np.float64]:
    return np.asarray(matrix if isinstance(matrix, np.ndarray) else matrix.toarray(), dtype=np.float64)
