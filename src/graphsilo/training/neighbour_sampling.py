"""Neighbour sampling: a step sees a few random neighbours of its items instead of all of them.

Hamilton, Ying, Leskovec. "Inductive Representation Learning on Large Graphs". NeurIPS 2017, algorithm 2 and appendix A:
a fixed number of neighbours per node and layer, drawn uniformly with replacement. Scores are always computed on full
neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from graphsilo.errors import UnsupportedError
from graphsilo.models.operators import SparseOperator, entries_of
from graphsilo.models.view import GraphTensors, Norm, Relation, View, distinct, pattern_of


class Draws(NamedTuple):
    """Neighbours of some nodes.

    Attributes:
        rows: [m] the nodes.
        pointer: [m + 1] where each node's neighbours begin among ``places``.
        places: Which entries of the adjacency they are, in compressed rows without loops.
        each: How many were drawn for each node that has any; 0 where all were taken.
    """

    rows: NDArray[np.int64]
    pointer: NDArray[np.int64]
    places: NDArray[np.int64]
    each: int


class SampledView(View):
    """Some rows of a graph with sampled neighbourhoods, for models that mix rows layer by layer.

    Whatever matrix M a model multiplies with, its row v is replaced by an estimate from v's draws u: M_vv, which is
    never drawn, and the sum of deg(v) / count · M_vu, which is right on average. Means are those of the draws instead:
    their weights over the sum of these. A softmax over neighbours runs over the distinct ones and the node itself. Of
    several relations the draws are shared: each has those among them that are its neighbours.

    Args:
        data: The graph's tensors.
        items: [m] nodes to compute, each named once.
        fan_out: Neighbours per node, from the items outwards: the first number is for the last layer. 0 takes all. One
            number for each layer that mixes rows (``Model.message_layers``).
        generator: Source of the draws.

    A node that several others need draws its neighbours once per layer.
    """

    def __init__(
        self, data: GraphTensors, items: NDArray[np.int64], fan_out: Sequence[int], generator: torch.Generator
    ):
        super().__init__(data, items)
        pattern = data.matrix("mean")
        self._layers: list[NDArray[np.int64] | None] = [items]
        self._draws: list[Draws] = []
        for count in fan_out:
            drawn = draw(pattern, self._layers[0], count, generator)  # type: ignore[arg-type]
            around = pattern.indices[drawn.places].astype(np.int64)
            self._draws.insert(0, drawn)
            self._layers.insert(0, distinct(data.num_nodes, around, drawn.rows))

    def _frontier(self, norm: Norm, depth: int) -> list[NDArray[np.int64] | None]:
        return self._layers[len(self._draws) - depth :]

    def blocks(self, norm: Norm, depth: int) -> list[SparseOperator]:
        def make() -> list[SparseOperator]:
            start = len(self._draws) - depth
            pairs = zip(self._draws[start:], self._layers[start:], strict=False)
            return [self._block(norm, drawn, outer) for drawn, outer in pairs]  # type: ignore[arg-type]

        return self.cached(("blocks", norm, depth), make)

    def _block(self, norm: Norm, drawn: Draws, outer: NDArray[np.int64]) -> SparseOperator:
        """The rows that were drawn for, over the rows of the layer before."""
        data, pattern = self.data, self.data.matrix("mean")
        by_relation = pattern_of(norm) == "relations"
        found = data.cached(("around", norm), lambda: (_at if by_relation else _around)(data.matrix(norm), pattern))
        weights, drawn_of = found[drawn.places].astype(np.float64), np.diff(drawn.pointer)
        if drawn.each and (norm == "mean" or isinstance(norm, Relation)):
            sums = _sums(weights, drawn.pointer)
            weights /= np.repeat(np.where(sums > 0, sums, 1.0), drawn_of)
        elif drawn.each:
            weights *= np.repeat(np.diff(pattern.indptr)[drawn.rows] / drawn.each, drawn_of)
        columns = np.searchsorted(outer, pattern.indices[drawn.places])
        shape = (len(drawn.rows), len(outer))
        block = sp.csr_matrix((weights.astype(np.float32), columns, drawn.pointer), shape=shape)
        block.sum_duplicates()
        if by_relation:
            block.eliminate_zeros()
        if norm in ("gcn", "row", "loops"):
            own = data.cached(("own weights", norm), lambda: data.matrix(norm).diagonal())[drawn.rows]
            ends = (np.arange(shape[0]), np.searchsorted(outer, drawn.rows))
            block = sp.csr_matrix(block + sp.csr_matrix((own, ends), shape=shape), dtype=np.float32)
        return SparseOperator(block, device=data.device, dtype=data.dtype)


def draw(matrix: sp.csr_matrix, rows: NDArray[np.int64], count: int, generator: torch.Generator) -> Draws:
    """``count`` uniform draws, with replacement, among the entries of each of some rows; all of them for 0.

    Args:
        matrix: [n, n] CSR; only where its entries are matters.
        rows: [m] rows to draw for.
        count: Draws per row; a row without entries has none.
        generator: Source of the draws.
    """
    degree, start = np.diff(matrix.indptr)[rows].astype(np.int64), matrix.indptr[rows].astype(np.int64)
    if count == 0:
        return Draws(rows, np.concatenate([[0], np.cumsum(degree)]), entries_of(matrix.indptr, rows)[0], 0)
    draws = torch.rand((len(rows), count), generator=generator, dtype=torch.float64).numpy()
    has = degree > 0
    places = start[has, None] + (draws[has] * degree[has, None]).astype(np.int64)
    return Draws(rows, np.concatenate([[0], np.cumsum(has * count)]), places.ravel(), count)


def _at(matrix: sp.csr_matrix, pattern: sp.csr_matrix) -> NDArray[np.float32]:
    """The entries where the pattern has some, row by row.

    Raises:
        UnsupportedError: There are others.
    """
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    found = np.asarray(matrix[rows, pattern.indices], dtype=np.float32).ravel()
    if np.count_nonzero(found) < matrix.nnz:
        raise UnsupportedError(
            "method.fan_out draws neighbours along the links' direction, and this model reads them in both: use "
            "method.fan_out=0, or leave `directed` out of the description of the links."
        )
    return found


def _around(matrix: sp.csr_matrix, pattern: sp.csr_matrix) -> NDArray[np.float32]:
    """The entries off the diagonal, row by row: where the pattern has some."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=matrix.indices.dtype), np.diff(matrix.indptr))
    return np.asarray(matrix.data[matrix.indices != rows])


def _sums(values: NDArray[np.float64], pointer: NDArray[np.int64]) -> NDArray[np.float64]:
    """[m] sum of each row's values; 0 for an empty row."""
    rows = np.repeat(np.arange(len(pointer) - 1), np.diff(pointer))
    return np.asarray(np.bincount(rows, weights=values, minlength=len(pointer) - 1), dtype=np.float64)
