"""Ridge regressions from sums: packed triangles, all penalties from one decomposition, and a correction per silo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

RANK = 1e-11
"""What is smaller than this share of the largest diagonal entry counts as zero in float64."""
_COLUMNS = 256
"""Of a triangle, worked on at once."""


def upper_product(left: Tensor, right: Tensor, total: Tensor | None = None) -> Tensor:
    """leftᵀ @ right, [p, p], where that is symmetric: its upper triangle; below stands nothing of use.

    Args:
        left, right: [rows, p].
        total: What it is added to, in float64.
    """
    size = left.shape[1]
    found = left.new_empty(size, size) if total is None else total.double()
    for start in range(0, size, _COLUMNS):
        part = left[:, start : start + _COLUMNS].t() @ right[:, start:]
        place = found[start : start + _COLUMNS, start:]
        place.copy_(part) if total is None else place.add_(part)
    return found


def pack(matrix: Tensor) -> Tensor:
    """[p(p+1)/2] the upper triangle of a matrix, row by row."""
    # What is the upper triangle by rows to us is the lower one by columns to LAPACK.
    copy = lapack.strttp if matrix.dtype is torch.float32 else lapack.dtrttp
    return torch.from_numpy(copy(matrix.contiguous().numpy().T, uplo="L")[0])


def unpack(packed: Tensor, size: int) -> Tensor:
    """[p, p] float64 the symmetric matrix that was packed."""
    matrix = lapack.dtpttr(size, packed.double().numpy(), uplo="L")[0].T
    for start in range(0, size, _COLUMNS):
        end = start + _COLUMNS
        matrix[end:, start:end] = matrix[start:end, end:].T
        corner = matrix[start:end, start:end]
        corner += np.triu(corner, 1).T
    return torch.from_numpy(matrix)


class Spectrum:
    """M = V diag(λ) Vᵀ of a positive semidefinite matrix, without the directions that nothing lies in.

    Args:
        matrix: [p, p] float64.
        tolerance: Share of the largest diagonal entry below which a direction counts as empty.
    """

    def __init__(self, matrix: Tensor, tolerance: float = RANK):
        largest = float(matrix.diagonal().max()) if len(matrix) else 0.0
        if largest <= 0:
            self.values, self.vectors = matrix.new_zeros(0), matrix.new_zeros(len(matrix), 0)
            return
        # Silos have fewer rows than columns, often: a pivoted Cholesky factor of r columns takes p r² instead of p³.
        factor, pivots, rank, _ = lapack.dpstrf(matrix.numpy(), tol=tolerance * largest, lower=1)
        if rank == len(matrix):
            self.values, self.vectors = torch.linalg.eigh(matrix)
        else:
            rows = torch.from_numpy(factor[:, :rank]).tril()
            half = torch.empty_like(rows)
            half[torch.from_numpy(pivots.astype("int64") - 1)] = rows  # M = half halfᵀ
            self.values, turned = torch.linalg.eigh(half.t() @ half)
            self.values.clamp_min_(torch.finfo(torch.float64).tiny)
            self.vectors = half @ (turned / self.values.sqrt())
        self.values.clamp_min_(0.0)

    def solve(self, right: Tensor, penalty: float) -> Tensor:
        """(M + penalty · I)⁻¹ right, for right sides that lie in what M spans. ``right``: [p, k]."""
        return self.vectors @ ((self.vectors.t() @ right) / (self.values + penalty)[:, None])


def corrections(rows: Tensor, residual: Tensor, penalties: Sequence[float]) -> Iterator[Tensor]:
    """argmin_D ‖rows D − residual‖² + penalty ‖D‖², [p, C], for each penalty: from T equations or from p.

    Args:
        rows: [T, p] float64.
        residual: [T, C] float64.
        penalties: Above 0.
    """
    count, width = rows.shape
    dual = count <= width
    gram = rows @ rows.t() if dual else rows.t() @ rows
    right = residual if dual else rows.t() @ residual
    for penalty in penalties:
        ridge = gram.clone()
        ridge.diagonal().add_(penalty)
        solved = torch.cholesky_solve(right, torch.linalg.cholesky(ridge))
        yield rows.t() @ solved if dual else solved
