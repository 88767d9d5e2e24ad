"""Mixed precision: dense matrix products of a backbone in bfloat16, everything else in float32.

``torch.autocast`` is the switch, so that a layer of torch's own in somebody's model follows it too. Here each product
gives its result back as float32: what follows a product (sums, biases, activations, the sparse product with the
adjacency, a loss) never meets a bfloat16 tensor. Sparse products stay float32: torch has no bfloat16 kernel for them on
a CPU but the one for bags of embeddings, which would round the normalised adjacency too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Backward = TypeVar("Backward", bound=Callable[..., Any])

_NOTHING = contextlib.nullcontext()
_times = 0


def is_reduced(like: Tensor) -> bool:
    """Whether dense products are computed in bfloat16 now, where this tensor lies."""
    # Asking a tensor for its device's name takes twice as long as the rest.
    return torch.is_autocast_enabled("cpu" if like.is_cpu else like.device.type)


def reduce_precision(device: str, *, on: bool = True) -> contextlib.AbstractContextManager[Any]:
    """Dense products in bfloat16 while this is open."""
    if not on:
        return _NOTHING
    global _times
    _times += 1
    # Without torch's cache of rounded weights: optimisers change weights in place, which it does not see.
    return torch.autocast(device, torch.bfloat16, cache_enabled=False)


def times_reduced() -> int:
    """How often ``reduced`` has been on in this process: whether something was computed that way."""
    return _times


def keep_precision(like: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Products as their operands are while this is open: for sparse ones."""
    return torch.autocast(like.device.type, enabled=False) if is_reduced(like) else _NOTHING


def widen(values: Tensor) -> Tensor:
    """The result of a product as float32, where it came as bfloat16."""
    return values.float() if values.dtype is torch.bfloat16 else values


def match_forward(backward: Backward) -> Backward:
    """Run a written-out backward pass in the precision of its forward pass, which has put it into ``ctx.reduced``.

    torch calls it outside of whatever was open then.
    """

    def run(ctx: Any, *gradients: Tensor) -> Any:
        with reduce_precision(gradients[0].device.type, on=ctx.reduced):
            return backward(ctx, *gradients)

    return cast(Backward, run)
