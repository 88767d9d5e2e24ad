"""What several clients of one process would each make or keep, made and kept once: it is found by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from torch import Tensor

T = TypeVar("T")

_SHARED: WeakValueDictionary[str, Any] = WeakValueDictionary()


def shared(names: Sequence[object], tensors: Sequence[Tensor], make: Callable[[], T]) -> T:
    """What ``make`` gives for this content, made once while somebody holds it.

    Args:
        names: Plain values that decide the result, beside the tensors: settings, seeds, sizes.
        tensors: On the CPU.
        make: Must depend on nothing else.
    """
    digest = hashlib.blake2b(repr(tuple(names)).encode(), digest_size=16)
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    key = digest.hexdigest()
    found = _SHARED.get(key)
    if found is None:
        found = _SHARED[key] = make()
    return found


class SharedTensors(dict[str, Tensor]):
    """Tensors by name that may be read by several clients and are written by none."""


def shared_copy(tensors: Mapping[str, Tensor], device: str = "cpu") -> SharedTensors:
    """A copy of tensors that were received, one for all clients of the process that received the same.

    A received tensor is a view of its whole message; who keeps it keeps the message.

    Args:
        tensors: On the CPU.
        device: Where the copy lies.
    """

    def make() -> SharedTensors:
        return SharedTensors((name, tensor.detach().to(device, copy=True)) for name, tensor in tensors.items())

    return shared(("copy", device, *tensors), list(tensors.values()), make)
