"""Matrices as products of narrow ones: what is sent instead of a change of weights that has few directions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphsilo.errors import MessageError

LEFT, RIGHT = "/left", "/right"


def rank_for(squares: Tensor, energy: float) -> int:
    """The smallest r, at least 1, whose largest squared singular values are together ``energy`` of all.

    Args:
        squares: [n] squared singular values, descending.
        energy: From 0 to 1.
    """
    sums = squares.double().cumsum(0)
    return min(int((sums < energy * sums[-1]).sum()) + 1, len(sums))


def factors(matrix: Tensor, energy: float) -> tuple[Tensor, Tensor] | None:
    """U Σ [rows, r] and Vᵀ [r, columns] of the truncated singular value decomposition; None where they are no smaller.

    There are none of a matrix with NaN or infinity either: who sends it whole is told what it holds.

    From the eigenvectors of the smaller of M Mᵀ and Mᵀ M in float64, which is cheaper than the decomposition itself.

    Args:
        matrix: [rows, columns].
        energy: Share of the squared singular values that is kept, as in ``rank_for``.
    """
    rows, columns = matrix.shape
    if rows < columns:
        turned = factors(matrix.t(), energy)
        if turned is None:
            return None
        left, right = turned  # M = right.T @ left.T, with Σ at the wrong one of them, which changes no product
        return right.t().contiguous(), left.t().contiguous()
    exact = matrix.double()
    if not bool(exact.isfinite().all()):
        return None
    squares, vectors = torch.linalg.eigh(exact.t() @ exact)
    rank = rank_for(squares.flip(0).clamp_min(0.0), energy)
    if rank * (rows + columns) >= rows * columns:
        return None
    right = vectors.flip(1)[:, :rank]
    return (exact @ right).to(matrix.dtype), right.t().to(matrix.dtype).contiguous()


def compress(tensors: Mapping[str, Tensor], energy: float) -> dict[str, Tensor]:
    """Every matrix as two factors, under its name with ``/left`` and ``/right``, where these are smaller.

    Args:
        tensors: By name.
        energy: As in ``factors``.
    """
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found = factors(tensor, energy) if tensor.dim() == 2 and min(tensor.shape) > 1 else None
        packed |= {name: tensor} if found is None else {name + LEFT: found[0], name + RIGHT: found[1]}
    return packed


def expand(packed: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that ``compress`` made factors of.

    Args:
        packed: What came.
        like: Tensors of the names and shapes that must come of it.

    Raises:
        MessageError: Others would.
    """
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, wanted in like.items():
        names = (name,) if name in packed else (name + LEFT, name + RIGHT)
        parts = [packed[each] for each in names if each in packed]
        shapes = [tuple(part.shape) for part in parts]
        if len(parts) == 2 and all(part.dim() == 2 for part in parts) and shapes[0][1] == shapes[1][0]:
            shapes = [(shapes[0][0], shapes[1][1])]
        if shapes != [tuple(wanted.shape)]:
            raise MessageError(
                f"of the change of '{name}', {tuple(wanted.shape)}, the tensor or its two factors must come; "
                f"{[tuple(part.shape) for part in parts] or 'nothing'} came. All must use the same model and settings."
            )
        used.update(names)
        found[name] = parts[0] if len(parts) == 1 else parts[0] @ parts[1]
    if len(used) != len(packed):
        odd = sorted(set(packed) - used)[0]
        raise MessageError(f"a change of the weights came with '{odd[:100]}', which this model has not.")
    return found
