"""X, ÂX, …, Â^L X times one matrix, each level from the one before it.

A backbone that multiplies all levels by the same weights needs one product with X and L with Â. On a text's words that
is a third of the work: level by level, each begins with X again or with a matrix that propagation has filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphsilo.models.operators import SPARSE_COST, Operator, SparseOperator
from graphsilo.models.view import Norm, View

_COLUMNS = 16


def padded(columns: int) -> int:
    """So many columns or a few more: the sparse kernel is faster on a multiple of 16 than on what lies below it."""
    return -(-columns // _COLUMNS) * _COLUMNS


class Levels:
    """Â^l X for l = 0..L on a view's rows, as X and the blocks of Â.

    Args:
        features: X on the rows that level L needs.
        blocks: One for each level above 0, the first one with most rows.
        rows: Where the view's rows stand among those of each level; None where these are the same.
    """

    def __init__(self, features: Operator, blocks: Sequence[SparseOperator], rows: Sequence[Tensor | None]):
        self.features, self.blocks, self.rows = features, blocks, rows

    def mm(self, right: Tensor) -> list[Tensor]:
        """Â^l X @ right for every level, [rows, k] each; ``right`` [d, k]."""
        value, found = self.features.mm(right), []
        for level, rows in enumerate(self.rows):
            value = self.blocks[level - 1].mm(value) if level else value
            found.append(value if rows is None else value.index_select(0, rows))
        return found

    def tmm(self, left: Sequence[Tensor]) -> Tensor:
        """Σ_l (Â^l X)ᵀ @ left[l], [d, k]; ``left`` [rows, k] for each level."""
        total = left[-1]
        for block, part, rows in zip(self.blocks[::-1], left[-2::-1], self.rows[-2::-1], strict=True):
            total = block.tmm(total)
            if rows is None:
                total.add_(part)
            else:
                total.index_add_(0, rows, part)
        return self.features.tmm(total)


Hops: TypeAlias = "Levels | list[Operator]"
"""All levels at once, or one operator for each."""


def levels_of(view: View, count: int, norm: Norm = "gcn") -> Hops:
    """Levels 0 to ``count``: from one another where that is less work in a step, else each for itself.

    The choice is by count of entries, and of a view that is used again and again alone: what a batch needs is not worth
    looking for.
    """

    def make() -> Hops:
        return _chained(view, count, norm) or view.hops(count, norm)

    return view.cached(("levels", count, norm), make)


def _chained(view: View, count: int, norm: Norm) -> Levels | None:
    if not view.kept or not sp.issparse(view.data.graph.features) or not count:
        return None
    features, blocks = view.features(norm, count), view.blocks(norm, count)
    # Each for itself, at the least: rows of a product, or as many blocks behind X on what they need.
    apart, chain = view.features().cost, 0.0
    for level, block in enumerate(reversed(blocks), start=1):
        chain += block.cost
        apart += min(chain + _work_of_features(view, norm, level), view.num_rows * view.data.hop_cost(level, norm))
    if features.cost + chain > apart:
        return None
    return Levels(features, blocks, [view.item_rows(norm, count - level) for level in range(count + 1)])


def _work_of_features(view: View, norm: Norm, depth: int) -> float:
    """Work of a product with X on the rows that so many more layers need."""
    rows, filled = view.needed(norm, depth), np.diff(sp.csr_matrix(view.data.graph.features).indptr)
    filled = filled if rows is None else filled[rows]
    return min(SPARSE_COST * float(filled.sum()), float(len(filled)) * view.data.num_features)
