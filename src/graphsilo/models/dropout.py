"""Dropout whose randomness is an argument.

Masks are drawn as 8- or 16-bit integers from the caller's generator: several times cheaper than a Bernoulli draw per
entry, with keep probabilities exact to 2^-16 (0.5 and every other multiple of 2^-8 are exact with 8 bits).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Source: TypeAlias = "torch.Generator | Iterator[Tensor]"
"""Where a model's dropout masks come from: drawn when they are needed, or drawn ahead, in the order of its layers."""

_AHEAD = 1 << 20
"""Entries of masks that are drawn at once; with more, a draw costs nothing beside the work it is for."""


def keep_scale(shape: torch.Size, rate: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """0 with probability ``rate``, else 1 / (1 - rate); same dtype and device as ``like``."""
    threshold, scale = keep_threshold(rate)
    draws = draw_bits(shape.numel(), rate, _move_generator(like, generator)).view(shape)
    if like.is_cpu and like.dtype is torch.float32:
        return torch.from_numpy(_make_masks(draws.numpy(), rate))
    return (draws >= threshold).to(like.dtype).mul_(scale)


def _move_generator(values: Tensor, generator: torch.Generator) -> torch.Generator:
    """A generator on the device of the values: copying masks over would stop a GPU in every layer of every step."""
    if generator.device == values.device:
        return generator
    there = torch.Generator(values.device)
    return there.manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))


def masks_ahead(
    shapes: Sequence[tuple[int, int]], rate: float, times: int, generator: torch.Generator
) -> list[Iterator[Tensor]] | None:
    """The masks of several runs through a model, drawn at once: the same as drawn layer by layer and run by run.

    Args:
        shapes: Of every mask of a run, in order.
        rate: Of them all, above 0.
        times: How many runs.
        generator: Left as it would be after so many runs that drew for themselves.

    Returns:
        For each run its masks, float32 on the CPU; None where there are none, or too many to be worth it.
    """
    counts = [rows * columns for rows, columns in shapes]
    sizes = [_words(count, rate) for count in counts]
    if not shapes or times * sum(counts) > _AHEAD:
        return None
    words = np.empty((times, sum(sizes)), dtype=np.int64)
    torch.from_numpy(words).random_(-(2**63), None, generator=generator)
    masks, start, kind = [], 0, np.int8 if _bits(rate) == 8 else np.int16
    for shape, count, size in zip(shapes, counts, sizes, strict=True):
        draws = words[:, start : start + size].view(kind)[:, :count]
        start += size
        masks.append(torch.from_numpy(_make_masks(draws, rate)).view(times, *shape).unbind(0))
    return [iter(run) for run in zip(*masks, strict=True)]


def draw_bits(count: int, rate: float, generator: torch.Generator) -> Tensor:
    """[count] int8 or int16, every value equally likely."""
    dtype = torch.int8 if _bits(rate) == 8 else torch.int16
    words = torch.empty(_words(count, rate), dtype=torch.int64, device=generator.device)
    words.random_(-(2**63), None, generator=generator)
    return words.view(dtype)[:count]


def keep_threshold(rate: float) -> tuple[int, float]:
    """The smallest draw that is kept, and the factor of kept entries."""
    levels = 1 << _bits(rate)
    dropped = min(round(rate * levels), levels - 1)
    # Divided by the probability that the bits can express, so that the mean stays exact.
    return dropped - levels // 2, levels / (levels - dropped)


def _words(count: int, rate: float) -> int:
    """How many 64-bit words are drawn for so many entries."""
    each = 64 // _bits(rate)
    return (count + each - 1) // each


def _make_masks(draws: NDArray[Any], rate: float) -> NDArray[np.float32]:
    """The masks that draws stand for."""
    threshold, factor = keep_threshold(rate)
    # A few thousand entries are compared several times faster in numpy; the numbers are the same.
    masks = (draws >= threshold).astype(np.float32)
    masks *= np.float32(factor)
    return masks


def _bits(rate: float) -> int:
    """How many random bits an entry needs."""
    return 8 if (rate * 256).is_integer() and rate < 1 else 16


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
    """ReLU, then dropout."""
    return dropout(values.relu(), rate, generator)


def activate(values: Tensor, rate: float, source: Source | None) -> Tensor | None:
    """ReLU, then dropout, in place and without autograd.

    Args:
        values: What is changed.
        rate: Of dropout.
        source: Of its mask; None for evaluation.

    Returns:
        The mask (0 or 1 / (1 - rate)), which ``activate_backward`` needs; None where nothing was dropped.
    """
    values.relu_()
    if source is None or rate == 0.0:
        return None
    mask = keep_scale(values.shape, rate, source, values) if isinstance(source, torch.Generator) else next(source)
    values.mul_(mask)
    return mask


def activate_backward(gradient: Tensor, output: Tensor, mask: Tensor | None) -> Tensor:
    """The gradient before ``activate`` from the one behind it, a new tensor; ``output`` is what it made."""
    below: Tensor = _where_positive(gradient, output, 0)
    return below if mask is None else below.mul_(mask)


# gradient where output > 0, else 0: one pass, where a comparison and a product are two.
_where_positive = torch.ops.aten.threshold_backward.default
