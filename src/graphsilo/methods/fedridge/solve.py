"""Ridge regressions from sums: packed triangles, all penalties of a matrix, and a correction per silo."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.linalg import lapack
from torch import Tensor

RANK = 1e-11
"""What is smaller than this share of the largest diagonal entry counts as zero in float64."""
COLUMNS = 256
"""Of a triangle, worked on at once."""


def upper_product(left: Tensor, right: Tensor, total: Tensor | None = None) -> Tensor:
    """leftᵀ @ right, [p, p], where that is symmetric: its upper triangle; below stands nothing of use.

    Args:
        left, right: [rows, p].
        total: What it is added to, in float64.
    """
    size = left.shape[1]
    found = left.new_empty(size, size) if total is None else total.double()
    for start in range(0, size, COLUMNS):
        part, place = left[:, start : start + COLUMNS].t(), found[start : start + COLUMNS, start:]
        if total is None:
            torch.mm(part, right[:, start:], out=place)
        else:
            place += part @ right[:, start:]
    return found


def pack(matrix: Tensor) -> Tensor:
    """[p(p+1)/2] the upper triangle of a matrix, row by row."""
    # What is the upper triangle by rows to us is the lower one by columns to LAPACK.
    copy = lapack.strttp if matrix.dtype is torch.float32 else lapack.dtrttp
    return torch.from_numpy(copy(matrix.contiguous().numpy().T, uplo="L")[0])


def unpack(packed: Tensor, size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """[p, p], float64 or float32: the upper triangle that was packed; below stands nothing of use."""
    copy = lapack.stpttr if dtype is torch.float32 else lapack.dtpttr
    return torch.from_numpy(copy(size, packed.to(dtype).numpy(), uplo="L")[0].T)


class Spectrum:
    """A positive semidefinite matrix, ready for ridges, without the directions that nothing lies in.

    Of full rank each penalty takes a Cholesky factor. Else its eigenvectors are H U diag(λ)^-½ with H Hᵀ
    the matrix and U diag(λ) Uᵀ = Hᵀ H.

    Args:
        matrix: [p, p] float64, of which the upper triangle is read.
        tolerance: Share of the largest diagonal entry below which a direction counts as empty.

    Attributes:
        rank: How many directions there are.
    """

    def __init__(self, matrix: Tensor, tolerance: float = RANK):
        largest = float(matrix.diagonal().max()) if len(matrix) else 0.0
        self._matrix, self.rank = matrix, 0
        if largest <= 0:
            return
        # Silos have fewer rows than columns, often: a pivoted Cholesky factor of r columns takes p r² instead of p³.
        factor, pivots, self.rank, _ = lapack.dpstrf(matrix.numpy().T, tol=tolerance * largest, lower=1)
        if self.rank == len(matrix):
            return
        rows = torch.from_numpy(factor[:, : self.rank]).tril()
        self._half = torch.empty_like(rows)
        self._half[torch.from_numpy(pivots.astype("int64") - 1)] = rows  # M = half halfᵀ
        self._values, self._turned = torch.linalg.eigh(upper_product(self._half, self._half), UPLO="U")
        # A direction that rounding alone made is none: dividing by its eigenvalue would make it count most.
        least = len(self._values) * torch.finfo(torch.float64).eps * self._values.max()
        self._inverse = torch.where(self._values > least, 1 / self._values, 0.0)

    def solve(self, right: Tensor, penalties: Sequence[float]) -> list[Tensor]:
        """(M + penalty · I)⁻¹ right of every penalty, for right sides that lie in what M spans. ``right``: [p, k]."""
        if self.rank == 0:
            return [torch.zeros_like(right) for _ in penalties]
        if self.rank == len(self._matrix):
            return _ridges(self._matrix, right, penalties)
        inner = (self._turned.t() @ (self._half.t() @ right)) * self._inverse[:, None]
        inner = torch.cat([inner / (self._values + penalty)[:, None] for penalty in penalties], dim=1)
        return list((self._half @ (self._turned @ inner)).split(right.shape[1], dim=1))


def corrections(rows: Tensor, residual: Tensor, penalties: Sequence[float]) -> list[Tensor]:
    """argmin_D ‖rows D − residual‖² + penalty ‖D‖², [p, C], for each penalty: from T equations or from p.

    Args:
        rows: [T, p] float64.
        residual: [T, C] float64.
        penalties: Above 0.
    """
    count, width = rows.shape
    if count > width:
        return _ridges(upper_product(rows, rows), rows.t() @ residual, penalties)
    solved = _ridges(upper_product(rows.t(), rows.t()), residual, penalties)
    return list((rows.t() @ torch.cat(solved, dim=1)).split(residual.shape[1], dim=1))


def _ridges(matrix: Tensor, right: Tensor, penalties: Sequence[float]) -> list[Tensor]:
    """(matrix + penalty · I)⁻¹ right; of the matrix the upper triangle is read."""
    matrix = matrix.clone()
    diagonal = matrix.diagonal().clone()
    solved = []
    for penalty in penalties:
        torch.add(diagonal, penalty, out=matrix.diagonal())
        solved.append(torch.cholesky_solve(right, torch.linalg.cholesky(matrix, upper=True), upper=True))
    return solved
