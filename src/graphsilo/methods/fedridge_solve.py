"""Ridge regressions from sums: packed triangles, all penalties from one decomposition, and a correction per silo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from scipy.linalg import lapack
from torch import Tensor

RANK = 1e-11
"""What is smaller than this share of the largest diagonal entry counts as zero in float64."""


def pack(matrix: Tensor) -> Tensor:
    """[p(p+1)/2] the upper triangle of a symmetric matrix, row by row."""
    size = len(matrix)
    packed = matrix.new_empty(size * (size + 1) // 2)
    source, target = matrix.numpy(), packed.numpy()
    for row, place in enumerate(_places(size)):
        target[place : place + size - row] = source[row, row:]
    return packed


def unpack(packed: Tensor, size: int) -> Tensor:
    """[p, p] float64 the symmetric matrix that was packed."""
    matrix = torch.empty(size, size, dtype=torch.float64)
    source, target = packed.numpy(), matrix.numpy()
    for row, place in enumerate(_places(size)):
        target[row, row:] = target[row:, row] = source[place : place + size - row]
    return matrix


def _places(size: int) -> list[int]:
    """Where each row begins in the packed triangle."""
    return [row * size - row * (row - 1) // 2 for row in range(size)]


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
