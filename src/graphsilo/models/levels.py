"""X, ÂX, …, Â^L X times one matrix, each level from the one before it.

A backbone that multiplies all levels by the same weights needs one product with X and L with Â. On a text's words that
is a third of the work: level by level, each begins with X again or with a matrix that propagation has filled.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch.nn.functional as F
from torch import Tensor

from graphsilo.models.operators import SPARSE_COST
from graphsilo.models.view import Norm, View

_COLUMNS = 16
"""The sparse kernel is faster on a multiple of so many columns than on what lies below it."""


def times_levels(view: View, count: int, right: Tensor, norm: Norm = "gcn") -> list[Tensor]:
    """Â^l X @ right for l = 0..count on a view's rows, [rows, k] each, with a gradient for ``right`` [d, k].

    From one another where that is less work in a step, else each for itself. The choice is by count of entries, and of
    a view that is used again and again alone: what a batch needs is not worth looking for.
    """
    if not view.cached(("levels", count, norm), lambda: _pays(view, count, norm)):
        return [hop @ right for hop in view.hops(count, norm)]
    columns, blocks, found = right.shape[1], view.blocks(norm, count), []
    value = view.features(norm, count) @ F.pad(right, (0, -columns % _COLUMNS))
    for level in range(count + 1):
        value = blocks[level - 1] @ value if level else value
        rows = view.item_rows(norm, count - level)
        found.append((value if rows is None else value.index_select(0, rows))[:, :columns])
    return found


def _pays(view: View, count: int, norm: Norm) -> bool:
    """Whether levels from one another are less work."""
    if not view.kept or not sp.issparse(view.data.graph.features) or not count:
        return False
    features, blocks = view.features(norm, count), view.blocks(norm, count)
    # Each for itself, at the least: rows of a product, or as many blocks behind X on what they need.
    apart, chain = view.features().cost, 0.0
    for level, block in enumerate(reversed(blocks), start=1):
        chain += block.cost
        apart += min(chain + _work_of_features(view, norm, level), view.num_rows * view.data.hop_cost(level, norm))
    return features.cost + chain <= apart


def _work_of_features(view: View, norm: Norm, depth: int) -> float:
    """Work of a product with X on the rows that so many more layers need."""
    rows, filled = view.needed(norm, depth), np.diff(sp.csr_matrix(view.data.graph.features).indptr)
    filled = filled if rows is None else filled[rows]
    return min(SPARSE_COST * float(filled.sum()), float(len(filled)) * view.data.num_features)
