"""The bytes of a message: what stands where, and what numbers may be in them.

    GSM1 | H: length of the header, u32 | header, H bytes of msgpack | zeros to a multiple of 64 | payload

- All numbers are little-endian. The header is ``[name, fields, length of the payload]``, with the name of the message
  (``Message.wire_name``).
- ``fields`` has an entry by name for each field that is sent: a plain value as msgpack has it, nil where it is left
  out, and for tensors a reference, named references, or a list of them.
- A reference is ``[type, shape, offset]``: one of the types of ``message.DTYPES``, the sizes, and where in the payload
  the tensor begins. Tensors lie row by row, in the order of the header, each at the next multiple of 64 with zeros
  before it: every byte belongs to a field or is zero.
- A state on a disk is the same with ``["state", tree, length]``, where ``{"\\0t": reference}`` is a tensor and
  ``{"\\0d": [[key, value], ...]}`` a dictionary.

:mod:`graphsilo.federation.codec` writes and reads it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.message import DTYPES

MAGIC = b"GSM1"
ALIGN = 64
MAX_HEADER = 256 << 10
"""Bytes that the header of a message may have, enough for some thousand tensors; read, it may take 70 times as much."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message as bytes.

    Attributes:
        data: [bytes] uint8, writable or not.
        name: Wire name of the message.
        field_bytes: Payload bytes per field, in field order; the rest of ``data`` is header.
    """

    data: NDArray[np.uint8]
    name: str
    field_bytes: tuple[tuple[str, str, int], ...]

    @property
    def num_bytes(self) -> int:
        return int(self.data.shape[0])


LARGE_MESSAGE = 1 << 22
"""Bytes of a message that is worth large pages of memory."""

SIZES = {code: dtype.itemsize for code, dtype in DTYPES.items()}
FLOATS = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
DAMAGED = (msgspec.DecodeError, RecursionError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor lies in a message, and what is looked at when it is read.

    Attributes:
        largest: Largest size of its entries; infinity where they need only be finite, None where they may be anything.
    """

    where: str
    dtype: torch.dtype
    shape: list[int]
    count: int
    offset: int
    largest: float | None

    def tensor(self, buffer: NDArray[np.uint8]) -> Tensor:
        if not self.count:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(buffer.data, dtype=self.dtype, count=self.count, offset=self.offset)
        if self.dtype is torch.bool and int(flat.view(torch.uint8).max()) > 1:
            raise MessageError(f"{self.where} holds bytes that are no truth values.")
        return flat if len(self.shape) == 1 else flat.view(self.shape)


Part: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, stride and place of a tensor in a larger one."""


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


def join_slots(slots: Mapping[str, Slot]) -> tuple[Slot, dict[str, Part]] | None:
    """The memory of named tensors as that of one tensor, and what is where in it; None where that cannot be.

    Args:
        slots: In the order of the payload.
    """
    dtypes = {slot.dtype for slot in slots.values()}
    if len(slots) < 2 or len(dtypes) > 1 or torch.bool in dtypes or not all(slot.count for slot in slots.values()):
        return None
    first, *_, last = slots.values()
    places = {name: (slot.offset - first.offset) // slot.dtype.itemsize for name, slot in slots.items()}
    parts = {
        name: (tuple(slot.shape), torch.empty(slot.shape, device="meta").stride(), places[name])
        for name, slot in slots.items()
    }
    count = (last.offset - first.offset) // last.dtype.itemsize + last.count
    return replace(first, shape=[count], count=count), parts


@dataclass(frozen=True, slots=True)
class Layout:
    """What a header says, once it was found right: the next message with the same header needs no more reading.

    Attributes:
        size: Bytes of the whole message.
        start: Where the payload begins.
        fields: Name, form, and a plain field's value, a tensor's place, the places of named tensors by name or
            ``join_slots``, or the places in a list.
        slots: The tensors, in field order.
        gaps: Where bytes begin and end that belong to no tensor and not to the header.
        largest: The smallest of the bounds of all tensors that have one, where these are float32; else None.
    """

    size: int
    start: int
    fields: tuple[tuple[str, str, Any], ...]
    slots: tuple[Slot, ...]
    gaps: tuple[tuple[int, int], ...]
    largest: float | None

    def read(self, buffer: NDArray[np.uint8], owner: str) -> dict[str, Any]:
        check_gaps(buffer, self.gaps, owner)
        values: dict[str, Any] = {}
        for name, form, content in self.fields:
            if form == "plain" or content is None:
                values[name] = copy_plain(content)
            elif form == "tensor":
                values[name] = content.tensor(buffer)
            elif isinstance(content, tuple) and form == "tensors":
                slot, parts = content
                values[name] = JoinedTensors(slot.tensor(buffer), parts)
            elif form == "tensors":
                values[name] = MappingProxyType({key: slot.tensor(buffer) for key, slot in content.items()})
            else:
                values[name] = tuple([slot.tensor(buffer) for slot in content])
        if self.largest is None or not _whole_below(buffer, self.start, self.largest):
            check_numbers(self.slots, buffer)
        return values


def copy_plain(value: Any) -> Any:
    """A plain value of one's own."""
    if isinstance(value, dict):
        return {key: copy_plain(item) for key, item in value.items()}
    return [copy_plain(item) for item in value] if isinstance(value, list) else value


def common_largest(slots: Sequence[Slot]) -> float | None:
    bounds = [slot.largest for slot in slots if slot.largest is not None]
    narrow = all(slot.dtype is torch.float32 for slot in slots if slot.largest is not None)
    return min(bounds) if bounds and narrow else None


def _whole_below(buffer: NDArray[np.uint8], start: int, largest: float) -> bool:
    """Whether no entry of a message of float32 tensors is above a bound, all at once: padding is zero."""
    count = (buffer.shape[0] - start) // 4
    return all_below(torch.frombuffer(buffer.data, dtype=torch.float32, count=count, offset=start), largest)


def check_gaps(buffer: NDArray[np.uint8], gaps: Sequence[tuple[int, int]], owner: str) -> None:
    whole = buffer.data
    for begin, end in gaps:
        if whole[begin:end].tobytes().count(0) != end - begin:
            raise MessageError(f"{owner}: bytes between the tensors are not zero, and belong to no field.")


def check_numbers(slots: Sequence[Slot], buffer: NDArray[np.uint8]) -> None:
    """Refuse NaN, infinity and numbers that are too large, where they are not allowed."""
    for slot in slots:
        if (largest := slot.largest) is None:
            continue
        tensor = slot.tensor(buffer)
        if slot.dtype in FLOATS and all_below(tensor.view(-1), largest):
            continue
        low, high = (float(edge) for edge in torch.aminmax(tensor))
        size = max(-low, high)
        if not math.isfinite(size):
            raise MessageError(describe_not_finite(slot.where))
        if size > largest:
            raise MessageError(describe_too_large(slot.where, size, largest))


def all_below(flat: Tensor, largest: float) -> bool:
    """Whether the sum of squares is below the bound's square.

    Then no entry is above the bound: rounding never makes such a sum smaller than its largest term, up to the rounding
    of that. It takes as long as a sum.
    """
    squares = float(torch.dot(flat, flat))
    return squares < 0.99 * largest * largest and math.isfinite(squares)


def describe_not_finite(where: str) -> str:
    return (
        f"{where} contains NaN or infinity, which this field does not allow. Either the training diverged (a smaller "
        f"learning rate, features that are scaled), or a silo is not honest: its sender, or one that had a share in "
        f"what its sender was sent."
    )


def describe_too_large(where: str, size: float, largest: float) -> str:
    return (
        f"{where} holds {size:.3g}; at most {largest:.3g} is taken. Either the training diverged (a smaller learning "
        f"rate, features that are scaled), or a silo is not honest: its sender, or one that had a share in what its "
        f"sender was sent. The bound of weights is run.largest_value."
    )


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Uninitialised memory that starts on 64 bytes, as torch's own: products over it run as on any other tensor."""
    if size >= LARGE_MESSAGE:
        # numpy asks for large pages here, torch does not: a message of many megabytes is written in half the time.
        memory: NDArray[np.uint8] = np.empty(size + ALIGN, dtype=np.uint8)
        start = -memory.ctypes.data % ALIGN
        return memory[start : start + size]
    data: NDArray[np.uint8] = torch.empty(size, dtype=torch.uint8).numpy()  # torch aligns every tensor so
    return data


def aligned_view(payload: memoryview) -> NDArray[np.uint8]:
    """The bytes where they are, if that is such memory and may be written to; else a copy."""
    data = np.frombuffer(payload, dtype=np.uint8)
    if not payload.readonly and data.ctypes.data % ALIGN == 0:
        return data
    copy = aligned_bytes(payload.nbytes)
    copy[:] = data
    return copy


def align(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


def make_writable(data: NDArray[np.uint8] | bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        return data
    # Copied into memory of our own: torch has no read-only tensors, and bytes must not be written to.
    return np.frombuffer(data, dtype=np.uint8).copy()


def header_bytes(buffer: NDArray[np.uint8], owner: str, limit: int | None = None) -> bytes:
    """Magic, length and header, as they came."""
    prefix = buffer[:8].tobytes()
    if len(prefix) < 8 or prefix[:4] != MAGIC:
        raise MessageError(f"{owner}: these bytes are not a graphsilo message (they do not start with {MAGIC!r}).")
    (length,) = struct.unpack("<I", prefix[4:])
    if limit is not None and length > limit:
        raise MessageError(f"{owner}: a header of {length} bytes came; at most {limit} are read.")
    if 8 + length > buffer.shape[0]:
        raise MessageError(f"{owner}: the message was cut inside its header.")
    return buffer[: 8 + length].tobytes()


def open_header(header_bytes: bytes, owner: str, read: Callable[[bytes], Any]) -> tuple[Any, int]:
    """The header, and where the payload begins."""
    try:
        header = read(header_bytes[8:])
    except DAMAGED as error:
        raise MessageError(f"{owner}: the header cannot be read ({str(error)[:200]}).") from None
    return header, align(len(header_bytes))
