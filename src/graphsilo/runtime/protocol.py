"""What a coordinator and a site say to each other: one request, one answer, each a msgpack header and raw payloads.

A request carries an identity. A site that gets the same request twice (because the answer was lost on the way) answers
the second time what it answered the first; a coordinator that gets an answer to another request than it asked refuses
it. No torch: the supervisor of a site reads headers, and only its worker makes tensors of payloads.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import msgspec

from graphsilo.errors import FederationError
from graphsilo.runtime.transport import Body, Broadcast, Parts, views_of

VERSION = 2
MAX_BODY = 4 << 30
"""Most bytes of a packet that are taken from another machine."""
_HEAD = struct.Struct("<4sI")
_ALIGN = 64
"""Payloads begin at a multiple of so many bytes: in memory that begins at a page they can be used where they came."""
_MAGIC = b"GSR1"
MAX_HEADER = 512 << 10
"""Most bytes of a header, beside those for each client of the site: read, it takes up to 75 times as much."""
HEADER_PER_CLIENT = 16 << 10
"""Bytes more for each client that is asked, answers, or is sent its result."""


_Tree: TypeAlias = dict[str, Any]
_Pairs: TypeAlias = list[tuple[int, int]]
_Spec: TypeAlias = tuple[str, _Tree, str]
_OF_RUN: list[Any] = [("run", str), ("seed", int)]
_SCHEMA = msgspec.defstruct("schema", [
    ("task", str), ("num_features", int), ("num_classes", int), ("feature_names", list[Any] | None),
    ("class_names", list[Any] | None), ("booleans", _Tree), ("directed", bool), ("weighted", bool),
])  # fmt: skip
OPERATIONS = {operation: msgspec.defstruct(operation, fields) for operation, fields in {
    "cards": [("of", list[int], ())],
    "open": [
        *_OF_RUN, ("method", str), ("task", str), ("device", str), ("select_by", str), ("config", _Tree),
        ("schema", _SCHEMA), ("scaling", _Tree), ("compression", list[Any]), ("sparse", bool | None),
        ("common", _Spec), ("models", list[tuple[int, _Spec]]), ("agreeing", bool), ("counting", bool, False),
        ("alone", bool, False), ("beside", str | None, None), ("mark", str | None, None),
        ("secure_sums", bool, False), ("report", str | None, None),
    ],
    "call": [*_OF_RUN, ("handler", str), ("round", int), ("to", _Pairs), ("step", int, 0), ("back", _Pairs, ())],
    "remember": [*_OF_RUN, ("clients", list[int]), ("view", str)],
    "save": [*_OF_RUN, ("mark", str), ("back", _Pairs, ())],
    "restore": [*_OF_RUN, ("mark", str)],
    "finish": [*_OF_RUN, ("client", int), ("embeddings", bool), ("view", str | None), ("agreed", list[float], ())],
    "result": [("run", str), ("results", list[tuple[int, _Tree]]), ("config", _Tree)],
    "memory": [],
}.items()}  # fmt: skip
"""What a worker can be asked to do, and what the header holds then; its supervisor answers ``hello`` and ``poll``."""


class ProtocolError(FederationError):
    """A request or an answer is damaged, or is not one."""


def check_header(header: Mapping[str, Any]) -> None:
    """Refuse what no worker can carry out: before anything of it is looked at.

    Raises:
        ProtocolError: The operation is unknown, or something else stands in the header than it needs.
    """
    if header["do"] not in OPERATIONS:
        raise ProtocolError("a site cannot do what was asked of it.")
    try:
        msgspec.convert(header, OPERATIONS[header["do"]])
    except msgspec.ValidationError as error:
        raise ProtocolError(f"what '{header['do']}' was asked with cannot be read: {str(error)[:200]}.") from None


@dataclass(frozen=True)
class Packet:
    """A request or an answer.

    Attributes:
        header: ``id`` and what is asked (``do``) or answered (``ok``), with its settings; plain values.
        payloads: Raw bytes, in the order in which the header speaks of them; views of what was received.
    """

    header: Mapping[str, Any]
    payloads: Sequence[memoryview] = field(default_factory=tuple)

    @property
    def id(self) -> str:
        return str(self.header["id"])


def parts(header: Mapping[str, Any], payloads: Sequence[Any] = (), *, checked: bool = True) -> Parts:
    """A packet: everything before its payloads, and the payloads where they are.

    Args:
        header: Plain values; must hold ``id``.
        payloads: Anything with a buffer, e.g. numpy arrays of bytes; or a ``Broadcast``.
        checked: Whether it holds a checksum, which nobody looks at who reads it as ``whole``.
    """
    pieces = [payload if isinstance(payload, Broadcast) else memoryview(payload).cast("B") for payload in payloads]
    check, sizes = 0, []
    for place, piece in enumerate(pieces):
        view = piece.view if isinstance(piece, Broadcast) else piece
        if checked:
            check = piece.check if isinstance(piece, Broadcast) and place == 0 else zlib.crc32(view, check)
        sizes.append(view.nbytes)
    packed = msgspec.msgpack.encode({"v": VERSION, **header, "sizes": sizes, "check": check})
    head = _HEAD.pack(_MAGIC, len(packed)) + packed
    return [head.ljust(_begin(len(packed), sizes), b"\0"), *pieces]


def pack(header: Mapping[str, Any], payloads: Sequence[Any] = ()) -> bytearray:
    """The bytes of a packet, in one piece; see ``parts``."""
    return bytearray().join(views_of(parts(header, payloads)))


def _begin(header: int, sizes: Sequence[int]) -> int:
    """Where the payloads begin behind a header of some bytes."""
    end = _HEAD.size + header
    return -(-end // _ALIGN) * _ALIGN if sizes else end


class _Envelope(msgspec.Struct):
    """What every header holds; read before anything else of it is."""

    id: str
    v: int
    sizes: list[Annotated[int, msgspec.Meta(ge=0)]]
    check: int


_envelope = msgspec.msgpack.Decoder(_Envelope).decode
_header = msgspec.msgpack.Decoder(dict[str, Any]).decode
_DAMAGED = (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError)


def unpack(body: Body, *, limit: int | None = None, clients: int = 1, whole: bool = False) -> Packet:
    """The packet in some bytes.

    Args:
        body: What came.
        limit: Most bytes that are taken.
        clients: How many clients the site has: its header may be as long as they need.
        whole: The checksum is not looked at: a process of this machine made it, or has done so.

    Raises:
        ProtocolError: It is cut short, damaged, larger than ``limit``, of another version, or no packet at all.
    """
    view = memoryview(body).cast("B")
    if limit is not None and view.nbytes > limit:
        raise ProtocolError(f"{view.nbytes} bytes came, at most {limit} are taken.")
    if view.nbytes < _HEAD.size:
        raise ProtocolError(f"{view.nbytes} bytes are no packet.")
    magic, length = _HEAD.unpack_from(view)
    if magic != _MAGIC:
        raise ProtocolError("these bytes are no packet of graphsilo.")
    limit = MAX_HEADER + HEADER_PER_CLIENT * clients
    if length > limit:
        raise ProtocolError(
            f"the packet has a header of {length} bytes; at most {limit} are read. Names of features and classes are "
            f"in some headers: a table of very many columns needs shorter ones."
        )
    if _HEAD.size + length > view.nbytes:
        raise ProtocolError("the packet was cut inside its header.")
    packed = view[_HEAD.size : _HEAD.size + length]
    try:
        envelope, header = _envelope(packed), _header(packed)
    except _DAMAGED as error:
        raise ProtocolError(
            f"the packet's header cannot be read ({type(error).__name__}: {str(error)[:200]})."
        ) from None
    if envelope.v != VERSION:
        raise ProtocolError(
            f"the packet is of version {envelope.v}, this graphsilo speaks version {VERSION}: install the same release "
            f"everywhere."
        )
    start = _begin(length, envelope.sizes)
    if start + sum(envelope.sizes) != view.nbytes or any(view[_HEAD.size + length : start]):
        raise ProtocolError(
            f"the packet was cut or lengthened: {view.nbytes - _HEAD.size - length} bytes follow its header."
        )
    payloads, computed = [], 0
    for size in envelope.sizes:
        payload = view[start : start + size]
        if not whole:
            computed = zlib.crc32(payload, computed)
        payloads.append(payload)
        start += size
    if not whole and computed != envelope.check:
        raise ProtocolError("the packet was damaged on its way: its checksum does not fit.")
    return Packet({key: value for key, value in header.items() if key not in ("v", "sizes", "check")}, payloads)


def header_of(body: Body) -> Mapping[str, Any]:
    """The header of a packet made by a process of the same machine; its payloads are not looked at."""
    view = memoryview(body).cast("B")
    _, length = _HEAD.unpack_from(view)
    header: Mapping[str, Any] = msgspec.msgpack.decode(view[_HEAD.size : _HEAD.size + length])
    return header


def pack_error(identity: str, kind: str, text: str) -> bytearray:
    """An answer that says why there is none."""
    return pack({"id": identity, "ok": False, "kind": kind, "text": text})
