"""Ridge regressions from sums: packed triangles, all penalties of a matrix, and a correction per silo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from graphsilo.errors import RunError

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


def ridges(matrix: Tensor, right: Tensor, penalties: Sequence[float], tolerance: float = RANK) -> list[Tensor]:
    """(M + penalty · I)⁻¹ right, [p, k], of every penalty, without the directions that nothing lies in.

    Silos have fewer rows than columns, often. Then M = H Hᵀ with a pivoted Cholesky factor H of r columns, right = H z,
    and H (HᵀH + penalty · I)⁻¹ z takes p r² instead of p³.

    Args:
        matrix: [p, p] M, positive semidefinite, float64, of which the upper triangle is read.
        right: [p, k], in what M spans.
        penalties: At least 0.
        tolerance: Share of the largest diagonal entry below which a direction counts as empty.
    """
    largest = float(matrix.diagonal().max()) if len(matrix) else 0.0
    if largest <= 0:
        return [torch.zeros_like(right) for _ in penalties]
    found, pivots, rank, _ = lapack.dpstrf(matrix.numpy().T, tol=tolerance * largest, lower=1)
    if rank == len(matrix):
        return _ridges(matrix, right, penalties)
    factor, order = torch.from_numpy(found[:, :rank]).tril(), torch.from_numpy(pivots.astype("int64") - 1)
    inner = torch.linalg.solve_triangular(factor[:rank], right[order[:rank]], upper=False)
    solved = factor @ torch.cat(_ridges(upper_product(factor, factor), inner, penalties), dim=1)
    return list(torch.empty_like(solved).index_copy_(0, order, solved).split(right.shape[1], dim=1))


def corrections(rows: Tensor, wanted: Sequence[tuple[Tensor, Sequence[float]]]) -> list[list[Tensor]]:
    """argmin_D ‖rows D − residual‖² + penalty ‖D‖², [p, C], for each penalty of each residual: from T equations or
    from p.

    Args:
        rows: [T, p] float64.
        wanted: [T, C] float64 residuals, and the penalties of each, above 0.
    """
    count, width = rows.shape
    if count > width:
        square = upper_product(rows, rows)
        return [_ridges(square, rows.t() @ residual, penalties) for residual, penalties in wanted]
    square = upper_product(rows.t(), rows.t())
    return [
        list((rows.t() @ torch.cat(_ridges(square, residual, penalties), dim=1)).split(residual.shape[1], dim=1))
        for residual, penalties in wanted
    ]


def _ridges(matrix: Tensor, right: Tensor, penalties: Sequence[float]) -> list[Tensor]:
    """(matrix + penalty · I)⁻¹ right; of the matrix the upper triangle is read."""
    source = matrix.numpy().T  # the upper triangle by rows is to LAPACK the lower one by columns
    work = np.empty_like(source, order="F")
    solved = []
    for penalty in penalties:
        np.copyto(work, source)
        np.einsum("ii->i", work)[:] += penalty
        _, found, failed = lapack.dposv(work, right.numpy(), lower=1, overwrite_a=1)
        if failed:
            raise RunError(
                f"sums of columns cannot be solved with a penalty of {penalty:g}: they are too large for it, or not "
                "numbers. Choose larger values of method.ridge and method.own_ridge."
            )
        solved.append(torch.from_numpy(found))
    return solved
