"""Messages to bytes and back, in every runtime. No pickle.

Layout: ``GSM1``, header length (u32), header (msgpack), padding to 64 bytes, then the tensors, each aligned to 64
bytes. The header is ``[wire name, {field: plain value or tensor references}, payload length]``; a tensor reference is
``[dtype, shape, offset]``. Decoding gives views of the received bytes, not copies.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError, nearest, shown
from graphsilo.federation.kinds import LARGEST, LARGEST_WHOLE, WEIGHTS
from graphsilo.federation.message import DTYPES, FieldSpec, Message, message_shapes

MAGIC = b"GSM1"
ALIGN = 64
DEFAULT_LIMIT = 2 * 1024**3
"""Bytes a message may have unless the receiver sets another limit."""
MAX_HEADER = 256 << 10
"""Bytes that the header of a message may have, enough for some thousand tensors; read, it may take 70 times as much."""
MAX_DIMENSIONS = 16
_LARGE = 1 << 22
"""Bytes of a message that is worth large pages of memory."""
_LARGEST = 2**40
"""An empty tensor may claim any size, but torch cannot compute strides of every one."""

_CODES = {dtype: code for code, dtype in DTYPES.items()}
_SIZES = {code: dtype.itemsize for code, dtype in DTYPES.items()}
_SCALARS = {int, float, str}
_FLOATS = {torch.float32, torch.float64, torch.float16, torch.bfloat16}

M = TypeVar("M", bound=Message)

_Shape: TypeAlias = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=MAX_DIMENSIONS)]
_Code: TypeAlias = Literal["f4", "f8", "f2", "b2", "i8", "i4", "i2", "i1", "u1", "bo"]
_Reference: TypeAlias = tuple[_Code, _Shape, Annotated[int, msgspec.Meta(ge=0)]]
_FORMS: dict[str, Any] = {"tensor": _Reference, "tensors": dict[str, _Reference], "tensor_list": list[_Reference]}

_unpack = msgspec.msgpack.Decoder().decode
_unpack_header = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw, Annotated[int, msgspec.Meta(ge=0)]]).decode
_NOTHING = msgspec.Raw()
_NONE = b"\xc0"
_DAMAGED = (msgspec.DecodeError, RecursionError, TypeError, ValueError, OverflowError)


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


def encode(message: Message) -> Encoded:
    """The bytes of a message.

    Raises:
        MessageError: A field holds something else than its declaration says.
    """
    kind = type(message)
    contents = _contents(message)
    if contents is not None:
        known = _TEMPLATES.get((kind, contents.key))
        if known is not None and known.matches(contents):
            return known.fill(contents.tensors)
    packer = _Packer()
    body: dict[str, Any] = {}
    sizes = []
    for spec in message.specs():
        value = getattr(message, spec.name)
        before = packer.length
        if value is None:
            if not spec.optional:
                raise MessageError(f"{type(message).__name__}.{spec.name} must not be None.")
            body[spec.name] = None
        elif spec.form == "plain":
            body[spec.name] = value
        elif spec.form == "tensor":
            body[spec.name] = packer.add(value, message, spec)
        elif spec.form == "tensors":
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise MessageError(f"{type(message).__name__}.{spec.name} must hold tensors named by text.")
            body[spec.name] = {key: packer.add(tensor, message, spec) for key, tensor in value.items()}
        elif not isinstance(value, list | tuple):
            raise MessageError(f"{type(message).__name__}.{spec.name} must hold a list of tensors.")
        else:
            body[spec.name] = [packer.add(tensor, message, spec) for tensor in value]
        sizes.append((spec.name, spec.kind, packer.length - before))
    name = message.wire_name()
    prefix, places = packer.layout([name, body, packer.length])
    if len(prefix) > MAX_HEADER:
        raise MessageError(
            f"{type(message).__name__} holds so many tensors or plain values that its header has {len(prefix)} bytes; "
            f"at most {MAX_HEADER} are read. Join tensors, and send numbers as tensors."
        )
    template = _Template(contents, prefix, places, packer.length, name, tuple(sizes))
    if contents is not None and len(prefix) <= _MAX_KEPT_HEADER:
        if len(_TEMPLATES) >= _MAX_LAYOUTS:
            _TEMPLATES.clear()
        _TEMPLATES[kind, contents.key] = template.kept()
    return template.fill([tensor for _, tensor in packer.parts])


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a message holds besides the numbers in its tensors: all that its header depends on.

    Attributes:
        key: The plain numbers and texts, to find a template by.
        plain: All plain values, the names of named tensors, the lengths of lists, None for what is left out.
        types: Of the plain values: 1, 1.0 and True are equal, but not the same on the wire.
        facts: Type, sizes and layout of every tensor.
        tensors: The tensors, in field order.
    """

    key: tuple[Any, ...]
    plain: list[Any]
    types: list[type]
    facts: list[tuple[Any, ...]]
    tensors: list[Tensor]


def _contents(message: Message) -> _Contents | None:
    """A message's contents, or None where two equal ones might not be the same on the wire."""
    plain: list[Any] = []
    tensors: list[Any] = []
    for spec in message.specs():
        value = getattr(message, spec.name)
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
            plain.append(value)
    try:
        facts = [(tensor.dtype, tensor.shape, tensor.layout) for tensor in tensors]
    except AttributeError:
        return None
    types = list(map(type, plain))
    return _Contents(tuple([value for value in plain if type(value) in _SCALARS]), plain, types, facts, tensors)


def _ambiguous(value: Any) -> bool:
    """Whether something may be equal to this value and yet differ on the wire: 0.0 and -0.0, in containers too."""
    return value == 0.0 if isinstance(value, int | float) else bool(value)


@dataclass(frozen=True, slots=True)
class _Template:
    """The constant part of a message's bytes: the next message with the same contents needs only its numbers copied.

    Attributes:
        contents: What the header was made from; None where it must not be used again.
        prefix: Magic, header and padding.
        places: Per tensor, where it begins in the payload, its bytes, and where the next one begins.
        length: Bytes of the payload.
        name, sizes: As in Encoded.
    """

    contents: _Contents | None
    prefix: bytes
    places: tuple[tuple[int, int, int], ...]
    length: int
    name: str
    sizes: tuple[tuple[str, str, int], ...]

    def matches(self, other: _Contents) -> bool:
        mine = self.contents
        return (
            mine is not None and mine.facts == other.facts and mine.types == other.types and mine.plain == other.plain
        )

    def fill(self, tensors: Sequence[Tensor]) -> Encoded:
        start = len(self.prefix)
        placed = self._placed(tensors) if self.length >= _LARGE else None
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

    def kept(self) -> _Template:
        """The same without the tensors, and with plain values that nobody else can change."""
        mine = self.contents
        return self if mine is None else replace(self, contents=replace(mine, plain=_copied(mine.plain), tensors=[]))


_TEMPLATES: dict[tuple[type[Message], tuple[Any, ...]], _Template] = {}

_HEADROOM = 4096
_OUTGOING: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()
"""Room for a header and what ``outgoing`` made, by the address of the first tensor, until it is sent."""


def outgoing(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors to be filled in that a message which holds nothing else sends from where they lie, without a copy.

    What was sent belongs to the message: nobody may write into these tensors any more. If they are sent again, or
    with others, they are copied like any other tensor, and so are small ones.

    Args:
        like: Gives names, types and shapes.

    Returns:
        By name, uninitialised.
    """
    packer = _Packer()
    offsets = [packer.add(tensor, None, None)[2] for tensor in like.values()]
    memory = aligned_bytes(_HEADROOM + packer.length)
    payload = torch.from_numpy(memory)[_HEADROOM:]
    found = {
        name: payload[offset : offset + tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
        for (name, tensor), offset in zip(like.items(), offsets, strict=True)
    }
    if found:
        _OUTGOING[payload.data_ptr()] = memory
    return found


def decode(
    data: NDArray[np.uint8] | bytes | bytearray | memoryview,
    kind: type[M],
    *,
    limit: int = DEFAULT_LIMIT,
    largest_value: float | None = None,
) -> M:
    """The message in ``data``; its tensors are views of ``data``.

    Args:
        data: What ``encode`` made.
        kind: The message type that is expected.
        limit: Most bytes that are accepted.
        largest_value: Largest size of a weight that is taken; of other kinds of numbers it is what ``LARGEST`` or the
            field says. None: any that is finite.

    Raises:
        MessageError: Too long, cut off, of another type, with unknown, missing or wrongly typed fields, with shapes
            that do not fit, with bytes of no field, with numbers that are too large, or with NaN or infinity where
            they are not allowed.
    """
    return decode_known(data, kind, limit=limit, largest_value=largest_value)[0]


def decode_known(
    data: NDArray[np.uint8] | bytes | bytearray | memoryview,
    kind: type[M],
    *,
    limit: int = DEFAULT_LIMIT,
    largest_value: float | None = None,
) -> tuple[M, Mapping[str, Any]]:
    """What ``decode`` gives, and names and shapes of its tensors by field (``message_shapes``)."""
    size = data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)
    if size > limit:
        raise MessageError(
            f"{kind.__name__}: at most {limit} bytes are accepted, {size} came. Raise the limit if this "
            f"message is meant to be so large, or ask the sender's owner why it is."
        )
    buffer = _writable(data)
    key = _header_bytes(buffer, kind.__name__, MAX_HEADER)
    layout = _LAYOUTS.get((kind, largest_value, key))
    if layout is not None and layout.size == buffer.shape[0]:
        return kind(**layout.read(buffer, kind.__name__)), layout.shapes
    (name, body, length), start = _open(key, kind.__name__, _unpack_header)
    if name != kind.wire_name():
        raise MessageError(f"{kind.wire_name()} was expected, {shown(name)} came.")
    if start + length != buffer.shape[0]:
        raise MessageError(
            f"{kind.__name__}: {start + length} bytes were announced, {buffer.shape[0]} came; the message was cut or "
            f"extended on its way."
        )
    fields = _fields(cast("Hashable", kind))
    came = fields.split(body)
    unpacker = _Unpacker(buffer, start, length, kind.__name__, len(key), largest_value)
    values = {}
    for spec, read in fields.readers:
        raw = getattr(came, spec.name)
        if raw is not _NOTHING:
            values[spec.name] = unpacker.field(spec, raw, read)
        elif spec.required:
            raise MessageError(f"{kind.__name__}.{spec.name} is missing.")
    unpacker.finish()
    message = kind(**values)
    shapes = message_shapes(message)
    if len(key) <= _MAX_KEPT_HEADER:
        if len(_LAYOUTS) >= _MAX_LAYOUTS:
            _LAYOUTS.clear()
        _LAYOUTS[kind, largest_value, key] = unpacker.layout(
            [(spec, values[spec.name]) for spec in kind.specs() if spec.name in values], shapes
        )
    return message, shapes


@dataclass(frozen=True, slots=True)
class _Fields:
    """How the fields of a message are read: each as what it is declared, so that anything else ends the reading.

    Attributes:
        kind: The message.
        decode: A header's fields, each still as bytes.
        readers: Of each field.
    """

    kind: type[Message]
    decode: Callable[[msgspec.Raw], Any]
    readers: tuple[tuple[FieldSpec, Callable[[msgspec.Raw], Any]], ...]

    def split(self, body: msgspec.Raw) -> Any:
        """The fields that came.

        Raises:
            MessageError: They are no fields, or others than the message has.
        """
        try:
            return self.decode(body)
        except _DAMAGED as error:
            unknown = re.search(r"unknown field `(.*)`", str(error), re.DOTALL)
            if unknown is None:
                raise MessageError(f"{self.kind.__name__}: the header cannot be read ({str(error)[:200]}).") from None
            names = [spec.name for spec, _ in self.readers]
            raise MessageError(
                f"{self.kind.__name__} has no field '{unknown[1][:100]}'; {nearest(unknown[1][:100], names)}"
            ) from None


@cache
def _fields(kind: type[Message]) -> _Fields:
    specs = kind.specs()
    raw = [(spec.name, msgspec.Raw, _NOTHING) for spec in specs]
    struct = msgspec.defstruct(kind.__name__, raw, forbid_unknown_fields=True)
    readers = tuple((spec, msgspec.msgpack.Decoder(_FORMS.get(spec.form, spec.plain_type)).decode) for spec in specs)
    return _Fields(kind, msgspec.msgpack.Decoder(struct).decode, readers)


def encode_tree(tree: Any) -> NDArray[np.uint8]:
    """The bytes of a state: nested dicts and lists of tensors and plain values."""
    packer = _Packer()

    def walk(value: Any) -> Any:
        if isinstance(value, Tensor):
            return {"\x00t": packer.add(value, None, None)}
        if isinstance(value, Mapping):
            return {"\x00d": [[key, walk(item)] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return value
        raise MessageError(f"a state holds tensors and plain values only; {type(value).__name__} came.")

    return packer.finish(["state", walk(tree), packer.length])


def decode_tree(data: NDArray[np.uint8] | bytes | bytearray | memoryview) -> Any:
    """What ``encode_tree`` was given; tensors are copies."""
    buffer = _writable(data)
    key = _header_bytes(buffer, "state")
    header, start = _open(key, "state", _unpack)
    if (
        not isinstance(header, list)
        or len(header) != 3
        or header[0] != "state"
        or type(header[2]) is not int
        or start + header[2] != len(buffer)
    ):
        raise MessageError("these bytes are not a complete graphsilo state.")
    unpacker = _Unpacker(buffer, start, header[2], "state", len(key))

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if "\x00t" in value:
                return unpacker.tensor(value["\x00t"], None).clone()
            return {_key(key): walk(item) for key, item in value["\x00d"]}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return value

    try:
        return walk(header[1])
    except (KeyError, TypeError, ValueError):
        raise MessageError("these bytes are not a graphsilo state: its tree is malformed.") from None


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


_pack = msgspec.msgpack.Encoder(enc_hook=lambda value: _plain_out(value)).encode  # noqa: PLW0108 - defined further down


def _wrong_type(where: str, spec: FieldSpec, dtype: torch.dtype) -> str:
    wanted, came = (" or ".join(str(one).removeprefix("torch.") for one in some) for some in (spec.dtypes, (dtype,)))
    return (
        f"{where} must hold {wanted}; {came} came. Convert it, or declare the field with "
        f'`sends("{spec.kind}", dtype=torch.{came})` if that is what it is meant to hold.'
    )


class _Packer:
    def __init__(self) -> None:
        self.parts: list[tuple[int, Tensor]] = []
        self.length = 0

    def add(self, tensor: Any, message: Message | None, spec: FieldSpec | None) -> list[Any]:
        code = _CODES.get(tensor.dtype) if isinstance(tensor, Tensor) and tensor.layout is torch.strided else None
        if code is None:
            what = f"{tensor.dtype}, {tensor.layout}" if isinstance(tensor, Tensor) else type(tensor).__name__
            where = f"{type(message).__name__}.{spec.name}" if spec else "a state"
            raise MessageError(f"{where} must hold dense tensors of plain numbers; {what} came.")
        if spec is not None and tensor.dtype not in spec.dtypes:
            raise MessageError(_wrong_type(f"{type(message).__name__}.{spec.name}", spec, tensor.dtype))
        offset = self.length
        shape = list(tensor.shape)
        size = math.prod(shape) * _SIZES[code]
        self.parts.append((offset, tensor))
        self.length = offset + (size + ALIGN - 1) // ALIGN * ALIGN
        return [code, shape, offset]

    def layout(self, header: list[Any]) -> tuple[bytes, tuple[tuple[int, int, int], ...]]:
        """Everything before the payload; per tensor, where it begins, its bytes, and where the next one begins."""
        try:
            packed = _pack(header)
        except (TypeError, OverflowError, ValueError) as error:
            raise MessageError(f"{header[0]} holds something that no message can carry ({error}).") from None
        prefix = MAGIC + struct.pack("<I", len(packed)) + packed
        ends = [*[offset for offset, _ in self.parts[1:]], self.length]
        places = tuple(
            (offset, tensor.numel() * tensor.element_size(), end)
            for (offset, tensor), end in zip(self.parts, ends, strict=False)
        )
        return prefix.ljust(_aligned(len(prefix)), b"\0"), places

    def finish(self, header: list[Any]) -> NDArray[np.uint8]:
        prefix, places = self.layout(header)
        template = _Template(None, prefix, places, self.length, "", ())
        return template.fill([tensor for _, tensor in self.parts]).data


@dataclass(frozen=True, slots=True)
class _Slot:
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

    def read(self, buffer: NDArray[np.uint8]) -> tuple[Tensor]:
        return (self.tensor(buffer),)

    def tensor(self, buffer: NDArray[np.uint8]) -> Tensor:
        if not self.count:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(buffer.data, dtype=self.dtype, count=self.count, offset=self.offset)
        if self.dtype is torch.bool and int(flat.view(torch.uint8).max()) > 1:
            raise MessageError(f"{self.where} holds bytes that are no truth values.")
        return flat if len(self.shape) == 1 else flat.view(self.shape)


@dataclass(frozen=True, slots=True)
class _Run:
    """The named tensors of one field, read as one piece of memory: whoever sums models can take them as one.

    Attributes:
        dtype: Of all of them.
        offset: Of the first one, in bytes.
        count: Entries from there to the end of the last one.
        parts: Shape, stride and place of each.
    """

    dtype: torch.dtype
    offset: int
    count: int
    parts: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]

    @classmethod
    def of(cls, slots: Sequence[_Slot]) -> tuple[_Slot | _Run, ...]:
        """One run where the tensors allow it, else each tensor by itself."""
        dtypes = {slot.dtype for slot in slots}
        if len(slots) < 2 or len(dtypes) > 1 or torch.bool in dtypes or not all(slot.count for slot in slots):
            return tuple(slots)
        dtype, start = slots[0].dtype, slots[0].offset
        parts = tuple(
            (
                tuple(slot.shape),
                torch.empty(slot.shape, device="meta").stride(),
                (slot.offset - start) // dtype.itemsize,
            )
            for slot in slots
        )
        return (cls(dtype, start, parts[-1][2] + slots[-1].count, parts),)

    def read(self, buffer: NDArray[np.uint8]) -> list[Tensor]:
        flat = torch.frombuffer(buffer.data, dtype=self.dtype, count=self.count, offset=self.offset)
        return [flat.as_strided(*part) for part in self.parts]


@dataclass(frozen=True, slots=True)
class _Layout:
    """A header that was read and found right: the next message with the same header needs no more reading.

    Attributes:
        size: Bytes of the whole message.
        start: Where the payload begins.
        fields: Name, form, and a plain field's value, the keys of named tensors, or the length of a list.
        slots: The tensors, in field order.
        runs: The same tensors as they are read.
        gaps: Where bytes begin and end that belong to no tensor and not to the header.
        largest: The smallest of the bounds of all tensors that have one, where these are float32; else None.
        shapes: As ``message_shapes`` gives them.
    """

    size: int
    start: int
    fields: tuple[tuple[str, str, Any], ...]
    slots: tuple[_Slot, ...]
    runs: tuple[_Slot | _Run, ...]
    gaps: tuple[tuple[int, int], ...]
    largest: float | None
    shapes: Mapping[str, Any]

    def read(self, buffer: NDArray[np.uint8], owner: str) -> dict[str, Any]:
        _check_gaps(buffer, self.gaps, owner)
        tensors = [tensor for run in self.runs for tensor in run.read(buffer)]
        if self.largest is None or not _whole_below(buffer, self.start, self.largest):
            _check_numbers(self.slots, tensors)
        found = iter(tensors)
        values: dict[str, Any] = {}
        for name, form, content in self.fields:
            if form == "plain" or content is None:
                values[name] = _copied(content)
            elif form == "tensor":
                values[name] = next(found)
            elif form == "tensors":
                values[name] = MappingProxyType({key: next(found) for key in content})
            else:
                values[name] = tuple(next(found) for _ in range(content))
        return values


_LAYOUTS: dict[tuple[type[Message], float | None, bytes], _Layout] = {}
_MAX_LAYOUTS = 512
_MAX_KEPT_HEADER = 4096


def _copied(value: Any) -> Any:
    """A plain value of one's own."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _check_gaps(buffer: NDArray[np.uint8], gaps: Sequence[tuple[int, int]], owner: str) -> None:
    whole = buffer.data
    for begin, end in gaps:
        if whole[begin:end].tobytes().count(0) != end - begin:
            raise MessageError(f"{owner}: bytes between the tensors are not zero, and belong to no field.")


def _common_largest(slots: Sequence[_Slot]) -> float | None:
    bounds = [slot.largest for slot in slots if slot.largest is not None]
    narrow = all(slot.dtype is torch.float32 for slot in slots if slot.largest is not None)
    return min(bounds) if bounds and narrow else None


def _whole_below(buffer: NDArray[np.uint8], start: int, largest: float) -> bool:
    """Whether no entry of a message of float32 tensors is above a bound, all at once: padding is zero."""
    count = (buffer.shape[0] - start) // 4
    return _all_below(torch.frombuffer(buffer.data, dtype=torch.float32, count=count, offset=start), largest)


def _check_numbers(slots: Sequence[_Slot], tensors: Sequence[Tensor]) -> None:
    """Refuse NaN, infinity and numbers that are too large, where they are not allowed."""
    for slot, tensor in zip(slots, tensors, strict=True):
        largest = slot.largest
        if largest is None or (slot.dtype in _FLOATS and _all_below(tensor.view(-1), largest)):
            continue
        low, high = (float(edge) for edge in torch.aminmax(tensor))
        size = max(-low, high)
        if not math.isfinite(size):
            raise MessageError(f"{slot.where} contains NaN or infinity, which this field does not allow.")
        if size > largest:
            raise MessageError(_too_large(slot.where, size, largest))


def _all_below(flat: Tensor, largest: float) -> bool:
    """Whether the sum of squares is below the bound's square.

    Then no entry is above the bound: rounding never makes such a sum smaller than its largest term, up to the rounding
    of that. It takes as long as a sum.
    """
    squares = float(torch.dot(flat, flat))
    return squares < 0.99 * largest * largest and math.isfinite(squares)


def _too_large(where: str, size: float, largest: float) -> str:
    return (
        f"{where} holds {size:.3g}; at most {largest:.3g} is taken. Either the training diverged (a smaller learning "
        f"rate, features that are scaled), or its sender is not honest. The bound of weights is run.largest_value."
    )


class _Unpacker:
    def __init__(
        self, buffer: NDArray[np.uint8], start: int, length: int, owner: str, header: int, largest: float | None = None
    ):
        self.buffer, self.start, self.length, self.owner = buffer, start, length, owner
        self.header, self.largest = header, largest
        self.sizes: dict[str, int] = {}
        self.position = 0
        self.slots: list[_Slot] = []
        self.tensors: list[Tensor] = []

    def finish(self) -> None:
        """Every byte belongs to a declared field or is zero, and numbers are such as they must be."""
        if self.position != self.length:
            raise MessageError(f"{self.owner}: {self.length - self.position} bytes of the payload belong to no field.")
        _check_gaps(self.buffer, self.gaps(), self.owner)
        _check_numbers(self.slots, self.tensors)

    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Where bytes begin and end that only fill up."""
        ends = [slot.offset + slot.count * slot.dtype.itemsize for slot in self.slots]
        begins = [*[slot.offset for slot in self.slots], self.start + self.length]
        pairs = zip([self.header, *ends], begins, strict=True)
        return tuple((end, begin) for end, begin in pairs if end < begin)

    def layout(self, values: list[tuple[FieldSpec, Any]], shapes: Mapping[str, Any]) -> _Layout:
        """What was read, for the next message with the same header."""
        fields: list[tuple[str, str, Any]] = []
        runs: list[_Slot | _Run] = []
        slots = iter(self.slots)
        for spec, value in values:
            content = value
            tensors = 0 if value is None or spec.form == "plain" else 1 if spec.form == "tensor" else len(value)
            mine = [next(slots) for _ in range(tensors)]
            runs += _Run.of(mine) if spec.form == "tensors" else mine
            if value is not None and spec.form == "tensor":
                content = True
            elif value is not None and spec.form == "tensors":
                content = tuple(value)
            elif value is not None and spec.form == "tensor_list":
                content = len(value)
            fields.append((spec.name, spec.form, _copied(content)))
        size = self.start + self.length
        return _Layout(
            size,
            self.start,
            tuple(fields),
            tuple(self.slots),
            tuple(runs),
            self.gaps(),
            _common_largest(self.slots),
            shapes,
        )

    def field(self, spec: FieldSpec, raw: msgspec.Raw, read: Callable[[msgspec.Raw], Any]) -> Any:
        where = f"{self.owner}.{spec.name}"
        if bytes(raw) == _NONE:
            if not spec.optional:
                raise MessageError(f"{where} must not be None.")
            return None
        try:
            value = read(raw)
        except _DAMAGED as error:
            raise MessageError(f"{where} is malformed, or not of the type that it has: {str(error)[:200]}.") from None
        if spec.form == "plain":
            _check_plain(value, spec, where, self.largest)
            return value
        if spec.form == "tensor":
            return self.tensor(value, spec)
        if spec.form == "tensors":
            return MappingProxyType({key: self.tensor(item, spec) for key, item in value.items()})
        return tuple(self.tensor(item, spec) for item in value)

    def tensor(self, reference: Any, spec: FieldSpec | None) -> Tensor:
        where = f"{self.owner}.{spec.name}" if spec else self.owner
        try:
            code, shape, offset = reference
            dtype = DTYPES[code]
            if type(shape) is not list or len(shape) > MAX_DIMENSIONS or not {type(size) for size in shape} <= {int}:
                raise ValueError
            count = math.prod(shape)
            size = count * _SIZES[code]
            # Tensors follow each other as the encoder wrote them: none overlaps, and no byte lies between them.
            if min(shape, default=0) < 0 or type(offset) is not int or offset != self.position:
                raise ValueError
            if count == 0 and math.prod(max(size, 1) for size in shape) > _LARGEST:
                raise ValueError
            self.position += _aligned(size)
            if self.position > self.length:
                raise ValueError
        except (TypeError, ValueError, KeyError):
            raise MessageError(f"{where}: a tensor reference points outside the message or is malformed.") from None
        if spec is not None and dtype not in spec.dtypes:
            raise MessageError(_wrong_type(where, spec, dtype))
        largest = _largest(spec, dtype, self.largest) if spec is not None and count else None
        slot = _Slot(where, dtype, shape, count, self.start + offset, largest)
        tensor = slot.tensor(self.buffer)
        if spec is not None and spec.shape is not None:
            self._check_shape(spec, tuple(shape), where)
        self.slots.append(slot)
        self.tensors.append(tensor)
        return tensor

    def _check_shape(self, spec: FieldSpec, shape: tuple[int, ...], where: str) -> None:
        wanted = spec.shape or ()
        fits = len(wanted) == len(shape)
        if fits:
            for want, size in zip(wanted, shape, strict=True):
                expected = want if isinstance(want, int) else self.sizes.setdefault(want, size)
                fits = fits and expected == size
        if not fits:
            known = {name: size for name, size in self.sizes.items() if name in wanted}
            raise MessageError(f"{where} must have shape {wanted} {known or ''}; {shape} came.")


def _largest(spec: FieldSpec, dtype: torch.dtype | None, weights: float | None) -> float | None:
    """Largest size of a field's numbers: infinity where they need only be finite, None where they may be anything.

    Args:
        spec: The field.
        dtype: Of a tensor; None for plain numbers.
        weights: As ``largest_value`` in ``decode``.
    """
    whole = dtype is not None and dtype not in _FLOATS
    if spec.allow_nan or dtype is torch.bool:
        return None
    if weights is None:
        return None if whole else math.inf
    if spec.largest is not None:
        return spec.largest
    if whole:  # shorter ones are smaller anyway
        return float(LARGEST_WHOLE) if dtype is torch.int64 else None
    return weights if spec.kind in WEIGHTS else LARGEST[spec.kind]


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Uninitialised memory that starts on 64 bytes, as torch's own: products over it run as on any other tensor."""
    if size >= _LARGE:
        # numpy asks for large pages here, torch does not: a message of many megabytes is written in half the time.
        memory: NDArray[np.uint8] = np.empty(size + ALIGN, dtype=np.uint8)
        start = -memory.ctypes.data % ALIGN
        return memory[start : start + size]
    data: NDArray[np.uint8] = torch.empty(size, dtype=torch.uint8).numpy()  # torch aligns every tensor so
    return data


def _aligned(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


def _writable(data: NDArray[np.uint8] | bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        return data
    # Copied into memory of our own: torch has no read-only tensors, and bytes must not be written to.
    return np.frombuffer(data, dtype=np.uint8).copy()


def _header_bytes(buffer: NDArray[np.uint8], owner: str, most: int | None = None) -> bytes:
    """Magic, length and header, as they came."""
    prefix = buffer[:8].tobytes()
    if len(prefix) < 8 or prefix[:4] != MAGIC:
        raise MessageError(f"{owner}: these bytes are not a graphsilo message (they do not start with {MAGIC!r}).")
    (length,) = struct.unpack("<I", prefix[4:])
    if most is not None and length > most:
        raise MessageError(f"{owner}: a header of {length} bytes came; at most {most} are read.")
    if 8 + length > buffer.shape[0]:
        raise MessageError(f"{owner}: the message was cut inside its header.")
    return buffer[: 8 + length].tobytes()


def _open(header_bytes: bytes, owner: str, read: Callable[[bytes], Any]) -> tuple[Any, int]:
    """The header, and where the payload begins."""
    try:
        header = read(header_bytes[8:])
    except _DAMAGED as error:
        raise MessageError(f"{owner}: the header cannot be read ({str(error)[:200]}).") from None
    return header, _aligned(len(header_bytes))


def _plain_out(value: Any) -> Any:
    """What msgpack does not know: numpy's numbers, and mappings that are no dictionaries."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise MessageError(f"a message carries tensors, numbers, truth values and text; {type(value).__name__} came.")


def _check_plain(value: Any, spec: FieldSpec, where: str, weights: float | None) -> None:
    """Refuse NaN, infinity and numbers that are too large."""
    largest = _largest(spec, None, weights)
    if largest is not None and (spec.has_floats or largest < math.inf):
        size = _size(value)
        if not math.isfinite(size):
            raise MessageError(f"{where} contains NaN or infinity, which this field does not allow.")
        if size > largest:
            raise MessageError(_too_large(where, size, largest))


def _size(value: Any) -> float:
    """The largest size of a number in a plain value; not a number where one is not."""
    if isinstance(value, int | float):
        return abs(float(value))
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return 0.0
    sizes = [_size(item) for item in value]
    return max(sizes, default=0.0) if all(map(math.isfinite, sizes)) else math.nan
