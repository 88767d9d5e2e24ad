"""Neighbour sampling: a step sees a few random neighbours of its items instead of all of them.

Hamilton, Ying, Leskovec. "Inductive Representation Learning on Large Graphs". NeurIPS 2017, algorithm 2 and appendix A:
a fixed number of neighbours per node and layer, drawn uniformly with replacement. Scores are always computed on full
neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from graphsilo.data.silos.silo import Silo
from graphsilo.models.operators import SparseOperator
from graphsilo.models.view import GraphTensors, Norm, View
from graphsilo.training.objective import Classified, ClassifyItems


class SampledView(View):
    """Some rows of a graph with sampled neighbourhoods: the mean runs over the draws.

    Args:
        data: The graph's tensors.
        items: [m] nodes to compute, each named once.
        fan_out: Neighbours per node, from the items outwards: the first number is for the last layer. 0 takes all.
        generator: Source of the draws.

    For mean aggregation only, and for as many layers as ``fan_out`` has numbers. A node that several others need draws
    its neighbours once per layer.
    """

    def __init__(
        self, data: GraphTensors, items: NDArray[np.int64], fan_out: Sequence[int], generator: torch.Generator
    ):
        super().__init__(data, items)
        matrix = data.matrix("mean")
        rows: list[NDArray[np.int64] | None] = [items]
        blocks: list[SparseOperator] = []
        inner = items
        for count in fan_out:
            weights = matrix[inner] if count == 0 else sample_rows(matrix, inner, count, generator)
            outer = np.unique(np.concatenate([weights.indices.astype(np.int64), inner]))
            blocks.insert(0, SparseOperator(weights[:, outer], device=data.device, dtype=data.dtype))
            rows.insert(0, outer)
            inner = outer
        self._cache["frontier", "mean", len(fan_out)] = rows
        self._cache["blocks", "mean", len(fan_out)] = blocks
        self._depth = len(fan_out)

    def _frontier(self, norm: Norm, depth: int) -> list[NDArray[np.int64] | None]:
        rows = self._cache["frontier", "mean", self._depth]
        assert isinstance(rows, list)
        return rows[self._depth - depth :]


class SampledItems(ClassifyItems):
    """Mean cross-entropy over labelled nodes, each step on freshly sampled neighbourhoods.

    Args:
        data, silo: As for ``ClassifyItems``.
        fan_out: As for ``SampledView``.
    """

    def __init__(self, data: GraphTensors, silo: Silo, fan_out: Sequence[int]):
        super().__init__(data, silo)
        self.fan_out = tuple(fan_out)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Classified]:
        order = torch.randperm(self.num_samples, generator=generator)
        for part in torch.split(order, size if size > 0 else max(self.num_samples, 1)):
            items, places = self.items[part.numpy()], part.to(self.labels.device)
            view, labels = SampledView(self.data, items, self.fan_out, generator), self.labels[places]
            yield Classified(view, labels, self._share(labels), places)


def sample_rows(
    matrix: sp.csr_matrix, rows: NDArray[np.int64], count: int, generator: torch.Generator
) -> sp.csr_matrix:
    """Means over ``count`` uniform draws, with replacement, of the columns that each row has entries in.

    Args:
        matrix: [n, n] CSR; only where its entries are matters.
        rows: [m] rows to draw for.
        count: Draws per row, at least 1.
        generator: Source of the draws.

    Returns:
        [m, n] CSR float32; a row's entries are multiples of 1 / count that add up to 1. A row without entries stays
        empty.
    """
    degree = np.diff(matrix.indptr)[rows]
    draws = torch.rand((len(rows), count), generator=generator, dtype=torch.float64).numpy()
    has = degree > 0
    places = matrix.indptr[rows][has, None] + (draws[has] * degree[has, None]).astype(np.int64)
    columns = matrix.indices[places.ravel()]
    pointer = np.concatenate([[0], np.cumsum(has * count)])
    values = np.full(len(columns), 1.0 / count, dtype=np.float32)
    sampled = sp.csr_matrix((values, columns, pointer), shape=(len(rows), matrix.shape[1]))
    sampled.sum_duplicates()
    return sampled
