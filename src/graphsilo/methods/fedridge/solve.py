"""Ridge regressions from sums: packed triangles, all penalties from one decomposition, and a correction per silo."""

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
    """A positive semidefinite matrix by its eigenvalues, without the directions that nothing lies in.

    Its eigenvectors are U, or H U diag(λ)^-½ with H Hᵀ the matrix and U diag(λ) Uᵀ = Hᵀ H.

    Args:
        matrix: [p, p] float64, of which the upper triangle is read.
        tolerance: Share of the largest diagonal entry below which a direction counts as empty.

    Attributes:
        values: Eigenvalues, as many as there are directions.
    """

    def __init__(self, matrix: Tensor, tolerance: float = RANK):
        largest = float(matrix.diagonal().max()) if len(matrix) else 0.0
        self._half: Tensor | None = None
        if largest <= 0:
            self.values, self._turned = matrix.new_zeros(0), matrix.new_zeros(len(matrix), 0)
            return
        # Silos have fewer rows than columns, often: a pivoted Cholesky factor of r columns takes p r² instead of p³.
        factor, pivots, rank, _ = lapack.dpstrf(matrix.numpy().T, tol=tolerance * largest, lower=1)
        if rank == len(matrix):
            self.values, self._turned = torch.linalg.eigh(matrix, UPLO="U")
        else:
            rows = torch.from_numpy(factor[:, :rank]).tril()
            self._half = torch.empty_like(rows)
            self._half[torch.from_numpy(pivots.astype("int64") - 1)] = rows  # M = half halfᵀ
            self.values, self._turned = torch.linalg.eigh(upper_product(self._half, self._half), UPLO="U")
            self.values.clamp_min_(torch.finfo(torch.float64).tiny)
        self.values.clamp_min_(0.0)

    def solve(self, right: Tensor, penalties: Sequence[float]) -> list[Tensor]:
        """(M + penalty · I)⁻¹ right of every penalty, for right sides that lie in what M spans. ``right``: [p, k]."""
        inner = right if self._half is None else self._half.t() @ right
        inner = self._turned.t() @ inner
        inner = inner if self._half is None else inner / self.values[:, None]
        found = self._turned @ torch.cat([inner / (self.values + penalty)[:, None] for penalty in penalties], dim=1)
        found = found if self._half is None else self._half @ found
        return list(found.split(right.shape[1], dim=1))


def corrections(rows: Tensor, residual: Tensor, penalties: Sequence[float]) -> list[Tensor]:
    """argmin_D ‖rows D − residual‖² + penalty ‖D‖², [p, C], for each penalty: from T equations or from p.

    Args:
        rows: [T, p] float64.
        residual: [T, C] float64.
        penalties: Above 0.
    """
    count, width = rows.shape
    dual = count <= width
    across = rows.t() if dual else rows
    gram = upper_product(across, across)
    diagonal = gram.diagonal().clone()
    right = residual if dual else rows.t() @ residual
    solved = []
    for penalty in penalties:
        torch.add(diagonal, penalty, out=gram.diagonal())
        solved.append(torch.cholesky_solve(right, torch.linalg.cholesky(gram, upper=True), upper=True))
    return list((rows.t() @ torch.cat(solved, dim=1)).split(residual.shape[1], dim=1)) if dual else solved
