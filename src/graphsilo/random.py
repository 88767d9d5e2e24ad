"""Randomness is an argument: every draw comes from a generator that is named, never from a global state.

The same seed and names give the same numbers, in whatever order and in whichever process clients run.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import torch

Name = str | int


def derive_seed(seed: int, *names: Name) -> int:
    """A 63-bit seed that depends on ``seed`` and on every name, and on nothing else.

    Example:
        >>> derive_seed(0, "client", 3) == derive_seed(0, "client", 3)
        True
        >>> derive_seed(0, "client", 3) == derive_seed(0, "client", "3")
        False
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *names: Name) -> torch.Generator:
    """A torch generator for one purpose, e.g. ``generator(seed, "client", 3, "round", 7, "dropout")``."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *names))


def numpy_generator(seed: int, *names: Name) -> numpy.random.Generator:
    """The same for code that draws with numpy."""
    import numpy

    return numpy.random.default_rng(derive_seed(seed, *names))
