"""What several clients of one process would each make or keep, made and kept once: it is found by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import ReferenceType, WeakValueDictionary, ref

import torch
from torch import Tensor

T = TypeVar("T")

_SHARED: WeakValueDictionary[str, Any] = WeakValueDictionary()


def share(names: Sequence[object], tensors: Sequence[Tensor], make: Callable[[], T]) -> T:
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


def are_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether these are the same tensors by the same names, or copies."""
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


class SharedTensors(dict[str, Tensor]):
    """Tensors by name that may be read by several clients and are written by none.

    In a client's state they are kept once on disk and once in memory, however many clients hold them.

    Attributes:
        digest: Of their contents, once they had to be distinguished from others; given by ``register_digest``.
    """

    digest: str | None = None

    def __init__(self, *tensors: Any):
        super().__init__(*tensors)
        self._kept: dict[str, tuple[tuple[ReferenceType[SharedTensors], ...], Tensor]] = {}

    def keep(self, name: str, others: Sequence[SharedTensors], make: Callable[[], Tensor]) -> Tensor:
        """What ``make`` gives of these tensors and others like them, made by one of the clients that hold them.

        Args:
            name: Of what is made; the last one of each name is kept, as long as these tensors are.
            others: What else it is made of.
            make: Must depend on nothing else. Nobody writes to its result.
        """
        known = self._kept.get(name)
        if (
            known is None
            or len(known[0]) != len(others)
            or any(a() is not b for a, b in zip(known[0], others, strict=True))
        ):
            known = self._kept[name] = tuple(map(ref, others)), make()
        return known[1]


_BY_DIGEST: WeakValueDictionary[str, SharedTensors] = WeakValueDictionary()


def register_digest(tensors: SharedTensors, digest: str) -> SharedTensors:
    """Have these found under that digest while somebody holds them."""
    tensors.digest = digest
    _BY_DIGEST[digest] = tensors
    return tensors


def find_by_digest(digest: str) -> SharedTensors | None:
    """What this process holds under a digest, on whichever device."""
    return _BY_DIGEST.get(digest)


class _Copied(NamedTuple):
    """A copy that was made; nothing here keeps it or what it was made of alive."""

    device: str
    tensors: Sequence[tuple[str, ReferenceType[Tensor], int]]
    copy: ReferenceType[SharedTensors]

    def of(self, tensors: Mapping[str, Tensor], device: str) -> SharedTensors | None:
        """The copy, if it is one of these very tensors, which nobody has written to since."""
        same = (
            device == self.device
            and len(tensors) == len(self.tensors)
            and all(
                name == known and reference() is tensor and tensor._version == version
                for (name, tensor), (known, reference, version) in zip(tensors.items(), self.tensors, strict=True)
            )
        )
        return self.copy() if same else None


_last: _Copied | None = None


def shared_copy(tensors: Mapping[str, Tensor], device: str = "cpu") -> SharedTensors:
    """A copy of tensors that were received, one for all clients of the process that received the same.

    A received tensor is a view of its whole message; who keeps it keeps the message. What is shared already and lies
    on the device is given back as it is, so that ``load_state`` may call this on what ``state`` gave.
    """
    global _last

    def make() -> SharedTensors:
        return SharedTensors((name, tensor.detach().to(device, copy=True)) for name, tensor in tensors.items())

    if isinstance(tensors, SharedTensors) and all(tensor.to(device) is tensor for tensor in tensors.values()):
        return tensors
    # The clients of a process are asked one after the other, with one broadcast: its contents are hashed once.
    found = None if _last is None else _last.of(tensors, device)
    if found is None:
        found = share(("copy", device, *tensors), list(tensors.values()), make)
        seen = [(name, ref(tensor), tensor._version) for name, tensor in tensors.items()]
        _last = _Copied(device, seen, ref(found))
    if isinstance(tensors, SharedTensors) and tensors.digest is not None:
        register_digest(found, tensors.digest)
    return found
