"""Products of two dense float32 matrices on a CPU, by the library that is faster there (decision 021).

torch multiplies float32 matrices with MKL, which on processors of AMD leaves half of the vector unit unused. torch's
other library, oneDNN, uses all of it, but takes some 15 µs to call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphsilo.models.precision import is_reduced, widen

WORTH = 1 << 20
"""Multiplications beyond which oneDNN is worth its call."""
WORTH_ROUNDING, WORTH_ANY = 1 << 22, 1 << 25
"""The same where every call may have another number of rows: with rows in whole multiples, and with any number."""
MULTIPLE = 64
NARROW, FEW = 16, 4
"""Columns below which a product by torch is turned round, and below which its right factor is copied by columns."""


_VARYING = ContextVar("varying", default=False)
"""Whether products are of steps with another number of rows each."""


@contextlib.contextmanager
def varying_rows(wanted: bool = True) -> Iterator[None]:
    """Products of steps that have another number of rows each time, as batches do.

    oneDNN keeps a thousand programs, of up to a megabyte each: every step would add some. Within this, rows come in
    multiples of a sixty-fourth of their number, so that a few programs serve all steps.
    """
    token = _VARYING.set(wanted)
    try:
        yield
    finally:
        _VARYING.reset(token)


def mm(left: Tensor, right: Tensor) -> Tensor:
    """left [m, k] @ right [k, n], contiguous, without gradient."""
    (rows, inner), columns = left.shape, right.shape[1]
    if not _by_onednn(left, rows * inner * columns, WORTH):
        return torch.mm(left, right)
    multiply = torch.ops.mkldnn._linear_pointwise
    # oneDNN copies a left factor that does not lie row by row; the right one it takes either way.
    if not left.is_contiguous() and (columns * (rows + inner) < rows * inner):
        found: Tensor = multiply(right.t(), left, None, "none", [], "").t()
    else:
        found = multiply(left, right.t(), None, "none", [], "")
    return found.contiguous()


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, contiguous, without gradient; in bfloat16 where that is on, as float32.

    oneDNN makes a program for every shape that it meets, in 0.2 to 0.5 ms, and keeps a thousand of them. A graph or a
    batch may have any number of rows. Below the size where a program pays within one call, oneDNN therefore gets a
    multiple of 64 of them, and torch those left over.

    Args:
        left: [m, k], by rows, or the transpose of such a matrix: then k is the number that may differ.
        right: [k, n].
    """
    if not left.is_cpu or is_reduced(left):
        return widen(torch.mm(left, right))
    (rows, inner), columns, turned = left.shape, right.shape[1], not left.is_contiguous()
    work = rows * inner * columns
    if _by_onednn(left, work, WORTH_ROUNDING):
        count = inner if turned else rows
        varying = _VARYING.get()
        whole = count - count % (max(MULTIPLE, 1 << count.bit_length() >> 7) if varying else MULTIPLE)
        if whole == count or (work > WORTH_ANY and not varying):
            return mm(left, right)
        if whole and turned:
            return mm(left[:, :whole], right[:whole]).addmm_(left[:, whole:], right[whole:])
        if whole:
            return torch.cat((mm(left[:whole], right), torch.mm(left[whole:], right)))
    # Few columns: docs/decisions/014-narrow-products.md.
    if columns < NARROW and (turned or on_amd()):
        if columns < FEW and not turned:
            return torch.mm(left, right.t().contiguous().t())
        return torch.mm(right.t(), left.t()).t().contiguous()
    return torch.mm(left, right)


def times(values: Tensor, weight: Tensor, shift: Tensor | None = None) -> Tensor:
    """values [m, k] @ weight [k, n] + shift [n] with gradients, in bfloat16 where that is on, as float32.

    Not under ``torch.func.vmap``, which cannot look into the products of ``matmul``.
    """
    if _by_onednn(values, values.shape[0] * values.shape[1] * weight.shape[1], WORTH_ROUNDING):
        result: Tensor = _Times.apply(values, weight, shift)  # type: ignore[no-untyped-call]
        return result
    return widen(values @ weight if shift is None else torch.addmm(shift, values, weight))


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, shift: Tensor | None) -> Tensor:
        ctx.save_for_backward(values, weight)
        product = matmul(values, weight)
        return product if shift is None else product.add_(shift)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, weight = ctx.saved_tensors
        wanted, gradient = ctx.needs_input_grad, gradient.contiguous()
        return (
            matmul(gradient, weight.t()) if wanted[0] else None,
            matmul(values.t(), gradient) if wanted[1] else None,
            gradient.sum(0) if wanted[2] else None,
        )


def _by_onednn(like: Tensor, work: int, least: int) -> bool:
    """Whether oneDNN is to multiply such tensors, where it takes more than ``least`` multiplications to be worth it."""
    return work > least and like.dtype is torch.float32 and like.is_cpu and _worth_asking() and not is_reduced(like)


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
