"""Messages that look like one before: only their numbers are copied, only their numbers are looked at.

A round sends and receives the same header many times. What writing it took is kept as a ``Template``, what reading and
checking it took as a ``Layout``: both are found by everything that the header depends on, so that a hit gives the bytes
and the message that :mod:`graphsilo.federation.codec` would give, and a miss leaves the work to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.federation.message import Message, tensors_in
from graphsilo.federation.wire import (
    LARGE_MESSAGE,
    Encoded,
    Slot,
    aligned,
    aligned_bytes,
    all_below,
    check_gaps,
    check_numbers,
)

Part: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, stride and place of a tensor in a larger one."""

_SCALARS = {int, float, str}
_HEADROOM = 4096
MAX_KEPT = 512
MAX_KEPT_HEADER = 4096


@dataclass(frozen=True, slots=True)
class Contents:
    """What a message holds besides the numbers in its tensors: all that its header depends on.

    Attributes:
        key: The plain numbers and texts, to find a template by.
        plain: All plain values as ``in_order`` gives them, the names of named tensors, the lengths of lists, None for
            what is left out.
        types: Of the fields: 1, 1.0 and True are equal, but not the same on the wire.
        facts: Type, sizes and layout of every tensor.
        tensors: The tensors, in field order.
    """

    key: tuple[Any, ...]
    plain: list[Any]
    types: list[type]
    facts: list[tuple[Any, ...]]
    tensors: list[Tensor]


def contents_of(message: Message) -> Contents | None:
    """A message's contents, or None where two equal ones might not be the same on the wire."""
    plain: list[Any] = []
    types: list[type] = []
    tensors: list[Any] = []
    for spec in message.specs():
        value = getattr(message, spec.name)
        types.append(type(value))
        if value is None:
            plain.append(None)
        elif spec.form == "tensor":
            tensors.append(value)
        elif spec.form == "tensors" and isinstance(value, Mapping):
            plain.append(tuple(value))
            tensors.extend(value.values())
        elif spec.form == "tensor_list" and isinstance(value, list | tuple):
            plain.append(len(value))
            tensors.extend(value)
        elif spec.form != "plain" or (spec.has_floats and _ambiguous(value)):
            return None
        else:
            plain.append(in_order(value))
    try:
        facts = [(tensor.dtype, tensor.shape, tensor.layout) for tensor in tensors]
    except AttributeError:
        return None
    return Contents(tuple([value for value in plain if type(value) in _SCALARS]), plain, types, facts, tensors)


def in_order(value: Any) -> Any:
    """A plain value of one's own, with its tables as lists of pairs: tables in another order are equal, but not on the
    wire, and an answer's counts stand in the order of its table."""
    if isinstance(value, dict):
        return [[key, in_order(item)] for key, item in value.items()]
    return [in_order(item) for item in value] if isinstance(value, list) else value


def _ambiguous(value: Any) -> bool:
    """Whether something may be equal to this value and yet differ on the wire: 0.0 and -0.0, in containers too."""
    return value == 0.0 if isinstance(value, int | float) else bool(value)


@dataclass(frozen=True, slots=True)
class Template:
    """The constant part of a message's bytes: the next message with the same contents needs only its numbers copied.

    Attributes:
        contents: What the header was made from; None where it must not be used again.
        prefix: Magic, header and padding.
        places: Per tensor, where it begins in the payload, its bytes, and where the next one begins.
        length: Bytes of the payload.
        name, sizes: As in Encoded.
    """

    contents: Contents | None
    prefix: bytes
    places: tuple[tuple[int, int, int], ...]
    length: int
    name: str
    sizes: tuple[tuple[str, str, int], ...]

    def matches(self, other: Contents) -> bool:
        mine = self.contents
        return (
            mine is not None and mine.facts == other.facts and mine.types == other.types and mine.plain == other.plain
        )

    def fill(self, tensors: Sequence[Tensor]) -> Encoded:
        start = len(self.prefix)
        placed = self._placed(tensors) if self.length >= LARGE_MESSAGE else None
        data = aligned_bytes(start + self.length) if placed is None else placed
        address = int(data.__array_interface__["data"][0])  # half the time of data.ctypes
        ctypes.memmove(address, self.prefix, start)
        payload = address + start
        for (offset, size, end), tensor in zip(self.places, tensors, strict=True):
            if size and placed is None:
                flat = tensor if tensor.is_cpu and tensor.is_contiguous() else tensor.detach().cpu().contiguous()
                # A quarter of the time of a copy between arrays, which must be made first.
                ctypes.memmove(payload + offset, flat.data_ptr(), size)
            if offset + size < end:
                ctypes.memset(payload + offset + size, 0, end - offset - size)
        return Encoded(data, self.name, self.sizes)

    def _placed(self, tensors: Sequence[Tensor]) -> NDArray[np.uint8] | None:
        """The memory of tensors from ``outgoing`` that lie as they are to be sent; None for any other."""
        memory = _OUTGOING.pop(tensors[0].data_ptr(), None)
        if memory is None or len(memory) != _HEADROOM + self.length or len(self.prefix) > _HEADROOM:
            return None
        begin = memory.ctypes.data + _HEADROOM
        lie = [tensor.data_ptr() - begin if tensor.is_contiguous() else -1 for tensor in tensors]
        wanted = [offset for offset, _, _ in self.places]
        return memory[_HEADROOM - len(self.prefix) :] if lie == wanted else None

    def kept(self) -> Template:
        """The same without the tensors."""
        mine = self.contents
        return self if mine is None else replace(self, contents=replace(mine, tensors=[]))


TEMPLATES: dict[tuple[type[Message], tuple[Any, ...]], Template] = {}
_OUTGOING: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()
"""Room for a header and what ``outgoing`` made, by the address of the first tensor, until it is sent."""


def outgoing(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors to be filled in that a message which holds nothing else sends from where they lie, without a copy.

    What was sent belongs to the message: nobody may write into these tensors any more. If they are sent again, or
    with others, they are copied like any other tensor, and so are small ones.

    Returns:
        By name, uninitialised.
    """
    sizes = [aligned(tensor.numel() * tensor.element_size()) for tensor in like.values()]
    offsets = [0, *accumulate(sizes)][: len(sizes)]
    memory = aligned_bytes(_HEADROOM + sum(sizes))
    payload = torch.from_numpy(memory)[_HEADROOM:]
    found = {
        name: payload[offset : offset + tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
        for (name, tensor), offset in zip(like.items(), offsets, strict=True)
    }
    if found:
        _OUTGOING[payload.data_ptr()] = memory
    return found


class JoinedTensors(Mapping[str, Tensor]):
    """Named tensors that lie behind each other in a message: whoever sums models takes them as one.

    Attributes:
        flat: All of them and the zeros between, [entries].
        parts: Shape, stride and place in ``flat`` of each, by name.
    """

    __slots__ = ("_views", "flat", "parts")

    def __init__(self, flat: Tensor, parts: Mapping[str, Part]):
        self.flat, self.parts = flat, parts
        self._views: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = self.flat.as_strided(*self.parts[name])
        return view

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


@dataclass(frozen=True, slots=True)
class TensorRun:
    """The named tensors of one field, read as one piece of memory.

    Attributes:
        dtype: Of all of them.
        offset: Of the first one, in bytes.
        count: Entries from there to the end of the last one.
        parts: As in JoinedTensors.
    """

    dtype: torch.dtype
    offset: int
    count: int
    parts: Mapping[str, Part]

    @classmethod
    def of(cls, slots: Mapping[str, Slot]) -> TensorRun | None:
        """None where the tensors do not allow it."""
        dtypes = {slot.dtype for slot in slots.values()}
        if len(slots) < 2 or len(dtypes) > 1 or torch.bool in dtypes or not all(slot.count for slot in slots.values()):
            return None
        (dtype,) = dtypes
        start = min(slot.offset for slot in slots.values())
        parts = {
            name: (
                tuple(slot.shape),
                torch.empty(slot.shape, device="meta").stride(),
                (slot.offset - start) // dtype.itemsize,
            )
            for name, slot in slots.items()
        }
        *_, last = slots.values()
        return cls(dtype, start, (last.offset - start) // dtype.itemsize + last.count, parts)

    def read(self, buffer: NDArray[np.uint8]) -> JoinedTensors:
        flat = torch.frombuffer(buffer.data, dtype=self.dtype, count=self.count, offset=self.offset)
        return JoinedTensors(flat, self.parts)


@dataclass(frozen=True, slots=True)
class Layout:
    """A header that was read and found right: the next message with the same header needs no more reading.

    Attributes:
        size: Bytes of the whole message.
        start: Where the payload begins.
        fields: Name, form, and a plain field's value, a tensor's place, the places of named tensors by name or as a
            run, or the places in a list.
        slots: The tensors, in field order.
        gaps: Where bytes begin and end that belong to no tensor and not to the header.
        largest: The smallest of the bounds of all tensors that have one, where these are float32; else None.
        shapes: As ``message_shapes`` gives them.
    """

    size: int
    start: int
    fields: tuple[tuple[str, str, Any], ...]
    slots: tuple[Slot, ...]
    gaps: tuple[tuple[int, int], ...]
    largest: float | None
    shapes: Mapping[str, Any]

    def read(self, buffer: NDArray[np.uint8], owner: str) -> dict[str, Any]:
        check_gaps(buffer, self.gaps, owner)
        values: dict[str, Any] = {}
        for name, form, content in self.fields:
            if form == "plain" or content is None:
                values[name] = copied(content)
            elif form == "tensor":
                values[name] = content.tensor(buffer)
            elif isinstance(content, TensorRun):
                values[name] = content.read(buffer)
            elif form == "tensors":
                values[name] = MappingProxyType({key: slot.tensor(buffer) for key, slot in content.items()})
            else:
                values[name] = tuple([slot.tensor(buffer) for slot in content])
        if self.largest is None or not _whole_below(buffer, self.start, self.largest):
            sent = (values[name] for name, form, content in self.fields if form != "plain" and content is not None)
            check_numbers(self.slots, [tensor for value in sent for tensor in tensors_in(value)])
        return values


LAYOUTS: dict[tuple[type[Message], float | None, bytes], Layout] = {}


def copied(value: Any) -> Any:
    """A plain value of one's own."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def common_largest(slots: Sequence[Slot]) -> float | None:
    bounds = [slot.largest for slot in slots if slot.largest is not None]
    narrow = all(slot.dtype is torch.float32 for slot in slots if slot.largest is not None)
    return min(bounds) if bounds and narrow else None


def _whole_below(buffer: NDArray[np.uint8], start: int, largest: float) -> bool:
    """Whether no entry of a message of float32 tensors is above a bound, all at once: padding is zero."""
    count = (buffer.shape[0] - start) // 4
    return all_below(torch.frombuffer(buffer.data, dtype=torch.float32, count=count, offset=start), largest)
