"""Dropout whose randomness is an argument.

Masks are drawn as 16-bit integers from the caller's generator: several times cheaper than a Bernoulli draw per entry,
with keep probabilities exact to 2^-16 (0.5 and every other multiple of 2^-16 are exact).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LEVELS = 1 << 16


def keep_scale(shape: torch.Size, rate: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """0 with probability ``rate``, else 1 / (1 - rate); same dtype and device as ``like``."""
    draws, threshold, scale = _draw(shape, rate, generator)
    return (draws.to(like.device) >= threshold).to(like.dtype).mul_(scale)


def _draw(shape: torch.Size, rate: float, generator: torch.Generator) -> tuple[Tensor, int, float]:
    """16 random bits per entry, the smallest value that is kept, and the factor of kept entries."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64, device=generator.device)
    words.random_(-(2**63), None, generator=generator)
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)
    # Divided by the probability that the 16 bits can express, so that the mean stays exact.
    return (
        words.view(torch.int16)[:count].view(shape),
        dropped - _LEVELS // 2,
        _LEVELS / (_LEVELS - dropped),
    )


def dropout(values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Inverted dropout; the identity without a generator (evaluation) or at rate 0.

    Args:
        values: Any shape.
        rate: Share of entries set to 0, from 0 to below 1.
        generator: Source of the mask; None switches dropout off.
    """
    if generator is None or rate == 0.0:
        return values
    return values * keep_scale(values.shape, rate, generator, values)


def relu_dropout(values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """ReLU, then dropout, as one step of the backward pass."""
    result: Tensor = _ReluDropout.apply(values, rate, generator)
    return result


def relu_dropout_scale(values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """The factor that ReLU and dropout multiply each entry by (constant for the backward pass)."""
    if generator is not None and rate and values.device.type == "cpu" and values.dtype is torch.float32:
        # Comparisons of a few thousand entries are several times faster in numpy; the numbers are the same.
        draws, threshold, scale = _draw(values.shape, rate, generator)
        keep = (draws.numpy() >= threshold) & (values.numpy() > 0)
        return torch.from_numpy(np.multiply(keep, np.float32(scale), dtype=np.float32))
    positive = values > 0
    if generator is None or rate == 0.0:
        return positive.to(values.dtype)
    return keep_scale(values.shape, rate, generator, values).mul_(positive)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
        if generator is None or rate == 0.0:
            result = values.relu()
            ctx.save_for_backward(result)
            ctx.scaled = False
            return result
        scale = relu_dropout_scale(values, rate, generator)
        ctx.save_for_backward(scale)
        ctx.scaled = True
        return values * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (saved,) = ctx.saved_tensors
        return gradient * (saved if ctx.scaled else (saved > 0)), None, None
