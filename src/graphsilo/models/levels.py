"""X, ÂX, …, Â^L X times one matrix, each level from the one before it.

A backbone that multiplies all levels by the same weights needs one product with X and L with Â. On a text's words that
is a third of the work: level by level, each begins with X again or with a matrix that propagation has filled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.models.hops import hop_cost
from graphsilo.models.operators import SPARSE_COST, Operator
from graphsilo.models.view import Norm, View

_COLUMNS = 16
"""The sparse kernel is faster on a multiple of so many columns than on what lies below it."""


class Levels(Operator):
    """X, ÂX, …, Â^L X below one another, [(L + 1) · n, d], each level from the one before it.

    Args:
        features: X for the rows that level 0 takes.
        blocks: Â from the rows of each level to those of the next one, the last of which are the n that are wanted.
        rows: Where these n stand among the rows of each level but the last; None where they are the same.
    """

    def __init__(self, features: Operator, blocks: Sequence[Operator], rows: Sequence[Tensor | None]):
        self.features, self.blocks, self.rows = features, blocks, rows
        self.shape = ((len(blocks) + 1) * blocks[-1].shape[0], features.shape[1])
        self.cost = features.cost + sum(block.cost for block in blocks)

    def mm(self, right: Tensor) -> Tensor:
        columns = right.shape[1]
        return self._levels(self.features.mm(F.pad(right, (0, -columns % _COLUMNS))))[:, :columns]

    def tmm(self, left: Tensor) -> Tensor:
        columns = left.shape[1]
        *parts, value = F.pad(left, (0, -columns % _COLUMNS)).chunk(len(self.blocks) + 1)
        for block, rows, part in reversed(list(zip(self.blocks, self.rows, parts, strict=True))):
            value = block.tmm(value)
            value = value.add_(part) if rows is None else value.index_add_(0, rows, part)
        return self.features.tmm(value)[:, :columns]

    def dense(self) -> Tensor:
        return self._levels(self.features.dense())

    def _levels(self, value: Tensor) -> Tensor:
        """All of them from the first one."""
        found = []
        for block, rows in zip(self.blocks, self.rows, strict=True):
            found.append(value if rows is None else value.index_select(0, rows))
            value = block.mm(value)
        return torch.cat([*found, value])


def times_levels(view: View, count: int, right: Tensor, norm: Norm = "gcn") -> Tensor:
    """Â^l X @ right for l = 0..count on a view's rows, [count + 1, rows, k], with a gradient for ``right`` [d, k].

    From one another where that is less work in a step, else each for itself. The choice is by count of entries, and of
    a view that is used again and again alone: what a batch needs is not worth looking for.
    """
    chain = view.cached(("levels", count, norm), lambda: _chain(view, count, norm))
    if chain is None:
        return torch.stack([hop @ right for hop in view.hops(count, norm)])
    return (chain @ right).view(count + 1, view.num_rows, right.shape[1])


def _chain(view: View, count: int, norm: Norm) -> Levels | None:
    """Levels from one another, where that is less work."""
    if not _pays(view, count, norm):
        return None
    rows = [view.item_rows(norm, count - level) for level in range(count)]
    return Levels(view.features(norm, count), view.blocks(norm, count), rows)


def _pays(view: View, count: int, norm: Norm) -> bool:
    """Whether levels from one another are less work."""
    if not view.kept or not sp.issparse(view.data.graph.features) or not count:
        return False
    features, blocks = view.features(norm, count), view.blocks(norm, count)
    # Each for itself, at the least: rows of a product, or as many blocks behind X on what they need.
    apart, chain = view.features().cost, 0.0
    for level, block in enumerate(reversed(blocks), start=1):
        chain += block.cost
        apart += min(chain + _work_of_features(view, norm, level), view.num_rows * hop_cost(view.data, level, norm))
    return features.cost + chain <= apart


def _work_of_features(view: View, norm: Norm, depth: int) -> float:
    """Work of a product with X on the rows that so many more layers need."""
    rows, filled = view.needed_rows(norm, depth), np.diff(sp.csr_matrix(view.data.graph.features).indptr)
    filled = filled if rows is None else filled[rows]
    return min(SPARSE_COST * float(filled.sum()), float(len(filled)) * view.data.num_features)
