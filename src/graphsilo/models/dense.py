"""Products of two dense float32 matrices on a CPU, by the library that is faster there (decision 021).

torch multiplies float32 matrices with MKL, which on processors of AMD leaves half of the vector unit unused. torch's
other library, oneDNN, uses all of it, but takes some 15 µs to call.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from graphsilo.models.precision import is_reduced

WORTH = 1 << 20
"""Multiplications beyond which oneDNN is worth its call."""


def mm(left: Tensor, right: Tensor, shift: Tensor | None = None) -> Tensor:
    """left @ right + shift, contiguous, without gradient.

    Args:
        left: [m, k].
        right: [k, n].
        shift: [n].
    """
    (rows, inner), columns = left.shape, right.shape[1]
    if rows * inner * columns <= WORTH or not _by_onednn(left):
        return torch.mm(left, right) if shift is None else torch.addmm(shift, left, right)
    multiply = torch.ops.mkldnn._linear_pointwise
    # oneDNN copies a left factor that does not lie row by row; the right one it takes either way.
    if shift is None and not left.is_contiguous() and (columns * (rows + inner) < rows * inner):
        found: Tensor = multiply(right.t(), left, None, "none", [], "").t().contiguous()
    else:
        found = multiply(left, right.t(), shift, "none", [], "")
    return found


def bmm(left: Tensor, right: Tensor, shift: Tensor | None = None) -> Tensor:
    """The same for a few products at once, [b, m, k] by [b, k, n]; ``shift``: [b, 1, n]."""
    (_, rows, inner), columns = left.shape, right.shape[2]
    if rows * inner * columns <= WORTH or not _by_onednn(left):
        return torch.bmm(left, right) if shift is None else torch.baddbmm(shift, left, right)
    shifts = [None] * len(left) if shift is None else shift[:, 0]
    return torch.stack([mm(*each) for each in zip(left, right, shifts, strict=True)])


def _by_onednn(like: Tensor) -> bool:
    return like.dtype is torch.float32 and like.is_cpu and _worth_asking() and not is_reduced(like)


@cache
def _worth_asking() -> bool:
    """Whether this is a processor of AMD's with 512-bit vectors, and a torch that has oneDNN."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and on_amd() and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def on_amd() -> bool:
    """Whether the processor is known to be one of AMD's; older torch does not say."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    return ask is not None and "AMD" in ask().get("cpu_name", "")
