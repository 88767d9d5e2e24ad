"""Propagated features: Â^k X for all rows of a graph, sparse while they are, and products of the factors for some.

Â is one of ``view.Norm``. Lower hops are reused where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.sources import scratch
from graphsilo.models.operators import SPARSE_COST, Operator, SparseOperator, operator, product, sampled_rows
from graphsilo.models.view import GraphTensors, Matrix, Norm, View

_ROWS = 1 << 14
"""Rows of a dense matrix that are worked on at once."""


def hop_matrix(data: GraphTensors, level: int, norm: Norm) -> Matrix:
    """Â^level X for the whole graph, [n, d]; stays sparse while it is. Lower levels are reused, not kept."""

    def make() -> Matrix:
        known = (below for below in range(level - 1, 0, -1) if data.find(("hop", below, norm)) is not None)
        start = next(known, 0)
        result: Matrix = hop_matrix(data, start, norm) if start else data.graph.features
        for _ in range(level - start):
            result = step(data, result, norm)
        return result

    return data.graph.features if level == 0 else data.cached(("hop", level, norm), make)


def hop_cost(data: GraphTensors, level: int, norm: Norm) -> float:
    """Work per row of a product with Â^level X, before it is made: from what some evenly spread rows hold."""

    def make() -> float:
        some = sampled_rows(data.num_nodes)
        rows = sp.eye(data.num_nodes, dtype=np.float32, format="csr")[some]
        for _ in range(level):
            rows = rows @ data.matrix(norm)
        found = sp.csr_matrix(rows @ data.graph.features)
        return min(SPARSE_COST * found.nnz / max(len(some), 1), float(data.num_features))

    return data.cached(("hop cost", level, norm), make)


def step(data: GraphTensors, matrix: Matrix, norm: Norm = "gcn") -> Matrix:
    """Â times a [n, d] matrix; a sparse one becomes dense once a quarter of it is filled.

    A dense result is made block by block where ``scratch`` has room: if large, in a mapped file.
    """
    links = data.matrix(norm)
    return dense_if_filled(links @ matrix) if sp.issparse(matrix) else _times(links, matrix)


def hop(view: View, level: int, norm: Norm) -> Operator:
    """Â^level X on a view's rows, level above 0; factors where that is less work, see ``View.hop``."""

    def make() -> Operator:
        factors: Operator | None = None
        if view.kept and sp.issparse(view.data.graph.features):
            factors = view.features(norm, level)
        if isinstance(factors, SparseOperator):
            place, key = view.first_layer_at(norm, level)
            known, (first, *others) = place.find(key), view.blocks(norm, level)
            factors = product(first, factors) if known is None else cast("Operator", known)
            for block in others:
                factors = product(block, factors)
            if factors.cost < view.num_rows * hop_cost(view.data, level, norm):
                # Kept for first layers and further hops only where it is kept as a hop anyway.
                return place.cached(key, lambda: factors) if level == 1 else factors
        matrix = hop_matrix(view.data, level, norm)
        return operator(matrix if view.is_full else matrix[view.nodes], view.data.device, view.data.dtype)

    return view.cached(("hop", level, norm), make)


def dense_if_filled(matrix: sp.csr_matrix) -> Matrix:
    """A sparse matrix, as a dense one where more than a quarter of it is filled."""
    return np.asarray(matrix.toarray()) if matrix.nnz > 0.25 * matrix.shape[0] * matrix.shape[1] else matrix


def scale(matrix: Matrix, weight: float) -> Matrix:
    """weight · matrix, as a matrix of its own."""
    if sp.issparse(matrix):
        return sp.csr_matrix(weight * matrix)
    total = scratch.empty(matrix.shape)
    for rows in _row_blocks(matrix):
        np.multiply(matrix[rows], np.float32(weight), out=total[rows])
    return total


def add_weighted(total: Matrix, matrix: Matrix, weight: float) -> Matrix:
    """total + weight · matrix; a dense total is changed in place, and sparse only where both are."""
    if sp.issparse(total):
        result = total + weight * matrix
        # scipy makes a mixed sum a numpy.matrix.
        return sp.csr_matrix(result) if sp.issparse(result) else np.asarray(result)
    for rows in _row_blocks(total):
        part = matrix[rows]
        part = part.toarray() if sp.issparse(part) else part
        total[rows] += part if weight == 1 else weight * part
    return total


def _times(adjacency: sp.csr_matrix, right: NDArray[np.float32]) -> NDArray[np.float32]:
    """adjacency @ right; a row of the product is the same sum whichever block it is in."""
    result = scratch.empty(right.shape)
    for rows in _row_blocks(right):
        result[rows] = (adjacency if len(right) <= _ROWS else adjacency[rows]) @ right
    return result


def _row_blocks(matrix: Matrix) -> Iterator[slice]:
    return (slice(start, start + _ROWS) for start in range(0, matrix.shape[0], _ROWS))
