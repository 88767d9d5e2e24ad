"""Whether sums that a silo sent can be those of rows at all: what is looked at before they are added to the others'.

With rows φ that hold a constant c, weights w_v of their classes, M = Σ w φ φᵀ and B_k = Σ w φ over the rows of class k:

- B_k's entry at the constant is c Σ w: how many rows there are of each class, and all of them together are declared;
- M's column at the constant is c Σ_k B_k;
- columns whose part of a row has bounded length have a bounded sum of squares;
- |m_ij| ≤ √(m_ii m_jj), and Σ_k B_kj² / Σ_k w ≤ m_jj, by Cauchy and Schwarz: in M, and of B with M.

Of targets y, B = Σ y φ, the squares of B_j are at most m_jj Σ y², and Σ y² at most that of all silos.

Whoever stays within can still lie: about labels, and about as many rows as its card lets it have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from graphsilo.methods.fedridge.features import CONSTANT
from graphsilo.methods.fedridge.solve import COLUMNS, unpack

ROUNDING = 1e-3
"""Share by which sums in float32 may be off: thousands of terms are."""
NOTHING = 1e-12
"""What of the sum of weights is no number: squares of less than this are lost in float32."""


def is_semidefinite(packed: Tensor, size: int) -> bool:
    """Whether a matrix has no direction in which it is negative, beyond what float32 rounds off. O(p³).

    Args:
        packed: [p(p+1)/2] its upper triangle.
        size: p.
    """
    square = unpack(packed, size).numpy().T  # the lower triangle, in LAPACK's order
    diagonal = np.einsum("ii->i", square)
    rounded = size * float(np.finfo(np.float32).eps) * diagonal.max(initial=0.0)
    diagonal += rounded + NOTHING
    return int(lapack.dpotrf(square, lower=1, overwrite_a=1)[1]) == 0


def find_target_fault(
    packed: Tensor, products: Tensor, num_samples: int, *, squares: Tensor, constant: int, weights: Tensor,
    blocks: Sequence[tuple[int, float]], clients: int = 1,
) -> str:  # fmt: skip
    """As ``find_fault``, of targets: all rows are as of one class.

    Args:
        packed, num_samples, blocks, constant, clients: As there.
        products: [C, p] Σ y φ.
        squares: [C] Σ y² over the rows of all clients.
        weights: [C].
    """
    size = sum(columns for columns, _ in blocks)
    if tuple(packed.shape) != (size * (size + 1) // 2,) or tuple(products.shape) != (len(squares), size):
        return f"{tuple(packed.shape)} and {tuple(products.shape)} numbers came for {size} columns"
    square = unpack(packed, size)
    rows = torch.cat([square[:constant, constant], square[constant, constant:]])[None] / CONSTANT
    trouble = find_fault(
        packed, rows, num_samples, blocks=blocks, constant=constant, weights=torch.ones(1), clients=clients
    )
    largest = torch.outer(squares, square.diagonal()) * (1 + ROUNDING) + NOTHING * clients * (1.0 + num_samples)
    if not trouble and bool((products.double() ** 2 > largest).any()):
        return "the products with a target are larger than its rows"
    return trouble


def find_fault(
    packed: Tensor,
    products: Tensor,
    num_samples: int,
    *,
    blocks: Sequence[tuple[int, float]],
    constant: int,
    weights: Tensor,
    clients: int = 1,
) -> str:
    """Why no rows have these sums; empty if some may. O(p²).

    Args:
        packed: [p(p+1)/2] the upper triangle of M.
        products: [C, p] B.
        num_samples: Rows that it is said to be.
        blocks: Columns that belong together: how many, and their largest squared length in a row.
        constant: Number of the constant column.
        weights: [C] w.
        clients: How many the rows are of; fixed point takes a little off the sums of several.
    """
    size, classes = sum(columns for columns, _ in blocks), len(weights)
    if tuple(packed.shape) != (size * (size + 1) // 2,) or tuple(products.shape) != (classes, size):
        return f"{tuple(packed.shape)} and {tuple(products.shape)} numbers came for {size} columns, {classes} classes"
    square, cross, weight = packed.numpy(), products.double().numpy(), weights.double().numpy()
    starts = np.arange(size) * size - np.arange(size) * (np.arange(size) - 1) // 2  # where each row begins
    diagonal = square[starts].astype(np.float64)
    if num_samples < 0 or diagonal.min(initial=0.0) < 0:
        return f"{min(num_samples, diagonal.min(initial=0.0)):.3g} is less than any sum of squares or rows"
    # The rows of each class, by the constant.
    heavy = cross[:, constant] / CONSTANT
    rows = np.divide(heavy, weight, out=np.zeros(classes), where=weight > 0)
    if rows.min(initial=0.0) < -ROUNDING or abs(rows.sum() - num_samples) > ROUNDING * max(num_samples, 1):
        return f"the constant column tells of {rows.sum():.6g} rows, {rows.min():.3g} at least; it says {num_samples}"
    total = max(float(heavy.sum()), 0.0)
    slack = NOTHING * clients * (1.0 + total)
    for (columns, bound), part in zip(blocks, np.split(diagonal, np.cumsum([n for n, _ in blocks])[:-1]), strict=True):
        if part.sum() > (1 + ROUNDING) * bound * total + slack:
            return f"{columns} columns have squares of {part.sum():.3g} over {num_samples} rows of bounded length"
    roots = np.sqrt(diagonal if clients == 1 else diagonal + slack)
    column = np.minimum(np.arange(size), constant)  # entry (j, constant) stands in the row of the smaller number
    with_constant = square[starts[column] + np.maximum(np.arange(size), constant) - column]
    off = np.abs(with_constant - CONSTANT * cross.sum(axis=0)) > ROUNDING * roots * roots[constant] + slack
    if off.any():
        return f"column {int(np.argmax(off))} has other sums by class than over all rows"
    of_classes = np.divide(cross**2, heavy[:, None], out=np.zeros_like(cross), where=heavy[:, None] > 0).sum(axis=0)
    off = of_classes > (1 + ROUNDING) * diagonal + slack
    if off.any() or bool(np.any(cross[heavy <= 0])):
        return f"the sums of a class are larger than its rows, in column {int(np.argmax(off))}"
    roots = (roots * np.sqrt(1 + ROUNDING)).astype(square.dtype)
    triangle = unpack(packed, size, packed.dtype).numpy()
    for start in range(0, size, COLUMNS):
        part = triangle[start : start + COLUMNS, start:]
        part[:, :COLUMNS] = np.triu(part[:, :COLUMNS])
        off = np.abs(part) > np.outer(roots[start : start + COLUMNS], roots[start:]) + slack
        if off.any():
            return f"column {start + int(np.argmax(off.any(axis=1)))} goes with another more than each with itself"
    return ""
