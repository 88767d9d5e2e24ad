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
from typing import Any

import msgspec

from graphsilo.errors import FederationError
from graphsilo.runtime.transport import Body

VERSION = 1
_HEAD = struct.Struct("<4sI")
_MAGIC = b"GSR1"
MAX_HEADER = 64 << 20
"""Most bytes of a header: a thousand clients of one site fit many times."""


OPERATIONS = frozenset({"cards", "open", "call", "remember", "save", "restore", "finish", "result", "memory"})
"""What a worker can be asked to do; its supervisor answers ``hello`` and ``poll`` itself."""


class ProtocolError(FederationError):
    """A request or an answer is damaged, or is not one."""


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


def pack(header: Mapping[str, Any], payloads: Sequence[Any] = ()) -> bytearray:
    """The bytes of a packet.

    Args:
        header: Plain values; must hold ``id``.
        payloads: Anything with a buffer, e.g. numpy arrays of bytes.
    """
    views = [memoryview(payload).cast("B") for payload in payloads]
    check = 0
    for view in views:
        check = zlib.crc32(view, check)
    sizes = [view.nbytes for view in views]
    packed = msgspec.msgpack.encode({"v": VERSION, **header, "sizes": sizes, "check": check})
    body = bytearray(_HEAD.size + len(packed) + sum(sizes))
    _HEAD.pack_into(body, 0, _MAGIC, len(packed))
    start = _HEAD.size
    body[start : start + len(packed)] = packed
    start += len(packed)
    whole = memoryview(body)
    for view, size in zip(views, sizes, strict=True):
        whole[start : start + size] = view
        start += size
    return body


def unpack(body: Body, *, limit: int | None = None) -> Packet:
    """The packet in some bytes.

    Args:
        body: What came.
        limit: Most bytes that are taken.

    Raises:
        ProtocolError: It is cut short, damaged, larger than ``limit``, of another version, or no packet at all.
    """
    view = memoryview(body).cast("B")
    if limit is not None and view.nbytes > limit:
        raise ProtocolError(f"{view.nbytes} bytes came, at most {limit} are taken.")
    if view.nbytes < _HEAD.size:
        raise ProtocolError(f"{view.nbytes} bytes are no packet.")
    magic, length = _HEAD.unpack_from(view)
    if magic != _MAGIC or length > MAX_HEADER:
        raise ProtocolError("these bytes are no packet of graphsilo.")
    if _HEAD.size + length > view.nbytes:
        raise ProtocolError("the packet was cut inside its header.")
    try:
        header = msgspec.msgpack.decode(view[_HEAD.size : _HEAD.size + length])
        sizes = header["sizes"]
        version, check = header["v"], header["check"]
        known = isinstance(header["id"], str) and isinstance(sizes, list) and all(type(size) is int for size in sizes)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the packet's header cannot be read ({type(error).__name__}: {error}).") from None
    if version != VERSION:
        raise ProtocolError(
            f"the packet is of version {version}, this graphsilo speaks version {VERSION}: install the same release "
            f"everywhere."
        )
    start = _HEAD.size + length
    if not known or min(sizes, default=0) < 0 or start + sum(sizes) != view.nbytes:
        raise ProtocolError(f"the packet was cut or lengthened: {view.nbytes - start} bytes follow its header.")
    payloads, computed = [], 0
    for size in sizes:
        payload = view[start : start + size]
        computed = zlib.crc32(payload, computed)
        payloads.append(payload)
        start += size
    if computed != check:
        raise ProtocolError("the packet was damaged on its way: its checksum does not fit.")
    return Packet({key: value for key, value in header.items() if key not in ("v", "sizes", "check")}, payloads)


def header_of(body: Body) -> Mapping[str, Any]:
    """The header of a packet made by a process of the same machine; its payloads are not looked at."""
    view = memoryview(body).cast("B")
    _, length = _HEAD.unpack_from(view)
    header: Mapping[str, Any] = msgspec.msgpack.decode(view[_HEAD.size : _HEAD.size + length])
    return header


def failed(identity: str, kind: str, text: str, trace: str = "") -> bytearray:
    """An answer that says why there is none."""
    return pack({"id": identity, "ok": False, "kind": kind, "text": text, "trace": trace})
