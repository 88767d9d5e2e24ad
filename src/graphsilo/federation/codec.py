"""Messages to bytes and back, in every runtime. No pickle.

The layout of the bytes is :mod:`graphsilo.federation.wire`'s. Decoding gives views of the received bytes, not copies. A
round brings the same header many times: what reading and checking it gave is kept.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError, nearest, quote
from graphsilo.federation.kinds import LARGEST, LARGEST_WHOLE, WEIGHTS
from graphsilo.federation.message import DTYPES, FieldSpec, Message, message_shapes
from graphsilo.federation.wire import (
    DAMAGED,
    FLOATS,
    MAGIC,
    MAX_HEADER,
    SIZES,
    Encoded,
    Layout,
    Slot,
    align,
    aligned_bytes,
    common_largest,
    describe_not_finite,
    describe_too_large,
    header_bytes,
    join_slots,
    make_writable,
    open_header,
)

DEFAULT_LIMIT = 2 * 1024**3
"""Bytes a message may have unless the receiver sets another limit."""

MAX_DIMENSIONS = 16
_LARGEST = 2**40
"""An empty tensor may claim any size, but torch cannot compute strides of every one."""
MAX_KEPT = 512
MAX_KEPT_HEADER = 4096

_CODES = {dtype: code for code, dtype in DTYPES.items()}
M = TypeVar("M", bound=Message)
_Shape: TypeAlias = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=MAX_DIMENSIONS)]
_Code: TypeAlias = Literal["f4", "f8", "f2", "b2", "i8", "i4", "i2", "i1", "u1", "bo"]
_Reference: TypeAlias = tuple[_Code, _Shape, Annotated[int, msgspec.Meta(ge=0)]]
_FORMS: dict[str, Any] = {"tensor": _Reference, "tensors": dict[str, _Reference], "tensor_list": list[_Reference]}
_unpack = msgspec.msgpack.Decoder().decode
_unpack_header = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw, Annotated[int, msgspec.Meta(ge=0)]]).decode
_NOTHING = msgspec.Raw()
_NONE = b"\xc0"

LAYOUTS: dict[tuple[type[Message], float | None, bytes], tuple[Layout, Mapping[str, Any]]] = {}
"""What headers were found to say, by message, bound of weights and the header itself; and ``message_shapes``."""


def encode(message: Message) -> Encoded:
    """The bytes of a message.

    Raises:
        MessageError: A field holds something else than its declaration says.
    """
    packer = Packer()
    body: dict[str, Any] = {}
    sizes = []
    for spec in message.specs():
        before = packer.length
        body[spec.name] = _pack_field(packer, message, spec)
        sizes.append((spec.name, spec.kind, packer.length - before))
    name = message.wire_name()
    data = packer.finish([name, body, packer.length], limit=MAX_HEADER)
    return Encoded(data, name, tuple(sizes))


def _pack_field(packer: Packer, message: Message, spec: FieldSpec) -> Any:
    """What stands in the header for a field."""
    value = getattr(message, spec.name)
    if value is None:
        if not spec.optional:
            raise MessageError(f"{type(message).__name__}.{spec.name} must not be None.")
        return None
    if spec.form == "plain":
        return value
    if spec.form == "tensor":
        return packer.add(value, message, spec)
    if spec.form == "tensors":
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise MessageError(f"{type(message).__name__}.{spec.name} must hold tensors named by text.")
        return {key: packer.add(tensor, message, spec) for key, tensor in value.items()}
    if not isinstance(value, list | tuple):
        raise MessageError(f"{type(message).__name__}.{spec.name} must hold a list of tensors.")
    return [packer.add(tensor, message, spec) for tensor in value]


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
    buffer = make_writable(data)
    key = header_bytes(buffer, kind.__name__, MAX_HEADER)
    place = kind, largest_value, key
    layout, shapes = LAYOUTS.get(place, (None, None))
    if layout is None or layout.size != buffer.shape[0]:
        layout, shapes = _layout(key, kind, buffer.shape[0], largest_value), None
    message = kind(**layout.read(buffer, kind.__name__))
    if shapes is None:
        shapes = message_shapes(message)
        if len(key) <= MAX_KEPT_HEADER:
            if len(LAYOUTS) >= MAX_KEPT:
                LAYOUTS.clear()
            LAYOUTS[place] = layout, shapes
    return message, shapes


def _layout(header: bytes, kind: type[M], size: int, largest: float | None) -> Layout:
    """What the header of so many bytes says, if that is what such a message can hold."""
    (name, body, length), start = open_header(header, kind.__name__, _unpack_header)
    if name != kind.wire_name():
        raise MessageError(f"{kind.wire_name()} was expected, {quote(name)} came.")
    if start + length != size:
        raise MessageError(
            f"{kind.__name__}: {start + length} bytes were announced, {size} came; the message was cut or "
            f"extended on its way."
        )
    split, readers = _readers(cast("Hashable", kind))
    try:
        came = split(body)
    except DAMAGED as error:
        raise _make_header_error(kind, error) from None
    reader = Reader(start, length, kind.__name__, largest)
    found: list[tuple[str, str, Any]] = []
    for spec, read in readers:
        raw = getattr(came, spec.name)
        if raw is not _NOTHING:
            found.append((spec.name, spec.form, reader.field(spec, raw, read)))
        elif spec.required:
            raise MessageError(f"{kind.__name__}.{spec.name} is missing.")
    return reader.layout(found, len(header))


_Read: TypeAlias = Callable[[msgspec.Raw], Any]


@cache
def _readers(kind: type[Message]) -> tuple[_Read, tuple[tuple[FieldSpec, _Read], ...]]:
    """How a message's fields are distinguished, and each is read as what it is declared: anything else ends it."""
    specs = kind.specs()
    raw = [(spec.name, msgspec.Raw, _NOTHING) for spec in specs]
    struct = msgspec.defstruct(kind.__name__, raw, forbid_unknown_fields=True)
    readers = tuple((spec, msgspec.msgpack.Decoder(_FORMS.get(spec.form, spec.plain_type)).decode) for spec in specs)
    return msgspec.msgpack.Decoder(struct).decode, readers


def _make_header_error(kind: type[Message], error: Exception) -> MessageError:
    """What to say of fields that are none, or others than the message has."""
    unknown = re.search(r"unknown field `(.*)`", str(error), re.DOTALL)
    if unknown is None:
        return MessageError(f"{kind.__name__}: the header cannot be read ({str(error)[:200]}).")
    names = [spec.name for spec in kind.specs()]
    return MessageError(f"{kind.__name__} has no field '{unknown[1][:100]}'; {nearest(unknown[1][:100], names)}")


def encode_tree(tree: Any) -> NDArray[np.uint8]:
    """The bytes of a state: nested dicts and lists of tensors and plain values."""
    packer = Packer()

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
    buffer = make_writable(data)
    key = header_bytes(buffer, "state")
    header, start = open_header(key, "state", _unpack)
    if (
        not isinstance(header, list)
        or len(header) != 3
        or header[0] != "state"
        or type(header[2]) is not int
        or start + header[2] != len(buffer)
    ):
        raise MessageError("these bytes are not a complete graphsilo state.")
    reader = Reader(start, header[2], "state")

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if "\x00t" in value:
                return reader.slot(value["\x00t"], None).tensor(buffer).clone()
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


_pack = msgspec.msgpack.Encoder(enc_hook=lambda value: _to_plain(value)).encode  # noqa: PLW0108 - defined further down


def _describe_wrong_type(where: str, spec: FieldSpec, dtype: torch.dtype) -> str:
    wanted, came = (" or ".join(str(one).removeprefix("torch.") for one in some) for some in (spec.dtypes, (dtype,)))
    return (
        f"{where} must hold {wanted}; {came} came. Convert it, or declare the field with "
        f'`sends("{spec.kind}", dtype=torch.{came})` if that is what it is meant to hold.'
    )


class Packer:
    """Collects tensors, and lays them behind a header that says where they lie."""

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
            raise MessageError(_describe_wrong_type(f"{type(message).__name__}.{spec.name}", spec, tensor.dtype))
        offset = self.length
        self.parts.append((offset, tensor))
        self.length += align(tensor.nbytes)
        return [code, list(tensor.shape), offset]

    def finish(self, header: list[Any], *, limit: int | None = None) -> NDArray[np.uint8]:
        """The whole bytes.

        Raises:
            MessageError: The header holds something that none can, or is longer than it may be.
        """
        try:
            packed = _pack(header)
        except (TypeError, OverflowError, ValueError) as error:
            raise MessageError(f"{header[0]} holds something that no message can carry ({error}).") from None
        end = 8 + len(packed)
        start = align(end)
        if limit is not None and start > limit:
            raise MessageError(
                f"{header[0].rpartition('.')[2]} holds so many tensors or plain values that its header has {start} "
                f"bytes; at most {limit} are read. Join tensors, and send numbers as tensors."
            )
        data = aligned_bytes(start + self.length)
        address = int(data.__array_interface__["data"][0])  # half the time of data.ctypes
        ctypes.memmove(address, MAGIC + struct.pack("<I", len(packed)) + packed, end)
        for offset, tensor in self.parts:
            flat = tensor if tensor.is_cpu and tensor.is_contiguous() else tensor.detach().cpu().contiguous()
            begin = start + offset
            if begin > end:
                ctypes.memset(address + end, 0, begin - end)
            # A quarter of the time of a copy between arrays, which must be made first.
            end = begin + flat.nbytes
            ctypes.memmove(address + begin, flat.data_ptr(), flat.nbytes)
        ctypes.memset(address + end, 0, len(data) - end)
        return data


class Reader:
    """Finds out of a header what lies where, and refuses what no message of its kind has.

    Args:
        start: Where the payload begins.
        length: Its bytes.
        owner: What is read, in words.
        largest: Largest size of a weight that is taken; None: any that is finite.
    """

    def __init__(self, start: int, length: int, owner: str, largest: float | None = None):
        self.start, self.length, self.owner, self.largest = start, length, owner, largest
        self.sizes: dict[str, int] = {}
        self.position = 0
        self.slots: list[Slot] = []

    def layout(self, fields: list[tuple[str, str, Any]], header: int) -> Layout:
        """All of it, when every field was read: each byte belongs to one, or only fills up."""
        if self.position != self.length:
            raise MessageError(f"{self.owner}: {self.length - self.position} bytes of the payload belong to no field.")
        size = self.start + self.length
        ends = [header, *(slot.offset + slot.count * slot.dtype.itemsize for slot in self.slots)]
        begins = [*(slot.offset for slot in self.slots), size]
        gaps = tuple((end, begin) for end, begin in zip(ends, begins, strict=True) if end < begin)
        return Layout(size, self.start, tuple(fields), tuple(self.slots), gaps, common_largest(self.slots))

    def field(self, spec: FieldSpec, raw: msgspec.Raw, read: _Read) -> Any:
        """A plain value, or where the tensors of a field lie."""
        where = f"{self.owner}.{spec.name}"
        if bytes(raw) == _NONE:
            if not spec.optional:
                raise MessageError(f"{where} must not be None.")
            return None
        try:
            value = read(raw)
        except DAMAGED as error:
            raise MessageError(f"{where} is malformed, or not of the type that it has: {str(error)[:200]}.") from None
        if spec.form == "plain":
            _check_plain(value, spec, where, self.largest)
            return value
        if spec.form == "tensor":
            return self.slot(value, spec)
        if spec.form == "tensors":
            named = {key: self.slot(item, spec) for key, item in value.items()}
            return join_slots(named) or named
        return tuple([self.slot(item, spec) for item in value])

    def slot(self, reference: Any, spec: FieldSpec | None) -> Slot:
        """Where a tensor lies."""
        where = f"{self.owner}.{spec.name}" if spec else self.owner
        try:
            code, shape, offset = reference
            dtype = DTYPES[code]
            if type(shape) is not list or len(shape) > MAX_DIMENSIONS or not {type(size) for size in shape} <= {int}:
                raise ValueError
            count = math.prod(shape)
            size = count * SIZES[code]
            # Tensors follow each other as the encoder wrote them: none overlaps, and no byte lies between them.
            if min(shape, default=0) < 0 or type(offset) is not int or offset != self.position:
                raise ValueError
            if count == 0 and math.prod(max(size, 1) for size in shape) > _LARGEST:
                raise ValueError
            self.position += align(size)
            if self.position > self.length:
                raise ValueError
        except (TypeError, ValueError, KeyError):
            raise MessageError(f"{where}: a tensor reference points outside the message or is malformed.") from None
        if spec is not None and dtype not in spec.dtypes:
            raise MessageError(_describe_wrong_type(where, spec, dtype))
        largest = _largest(spec, dtype, self.largest) if spec is not None and count else None
        if spec is not None and spec.shape is not None:
            self._check_shape(spec, tuple(shape), where)
        slot = Slot(where, dtype, shape, count, self.start + offset, largest)
        self.slots.append(slot)
        return slot

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
    """Largest size of a field's numbers: infinity where they need only be finite, None where they may be anything."""
    whole = dtype is not None and dtype not in FLOATS
    if spec.allow_nan or dtype is torch.bool:
        return None
    if weights is None:
        return None if whole else math.inf
    if spec.largest is not None:
        return spec.largest
    if whole:  # shorter ones are smaller anyway
        return float(LARGEST_WHOLE) if dtype is torch.int64 else None
    return weights if spec.kind in WEIGHTS else LARGEST[spec.kind]


def _to_plain(value: Any) -> Any:
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
            raise MessageError(describe_not_finite(where))
        if size > largest:
            raise MessageError(describe_too_large(where, size, largest))


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
