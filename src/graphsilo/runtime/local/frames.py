"""Frames between a process and one that it started: a msgpack header over a socket, payloads beside it. No pickle.

Payloads that are worth it go through memory that both processes map: written once, read once, where a socket's buffer
has the kernel copy them twice, piece by piece. What does not fit there at the moment goes over the socket.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from graphsilo.federation.wire import ALIGN, aligned_bytes
from graphsilo.runtime.pipe import fill

_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"GSF2"
_COUNT = struct.Struct("<Q")
_RING = 8 << 20
_SMALLEST = 4 << 10
"""Bytes from which a payload goes through shared memory: below, a socket is as fast."""
_SOCKET = -1
"""In place of a position: the payload follows on the socket."""
MAX_HEADER = 64 << 20
"""Most bytes of a header; the clients' settings of a start are in one."""
_MAX = 1 << 62
_OUT_OF_STEP = "the stream between processes is out of step"


class _Places(msgspec.Struct):
    """Size and place of each payload."""

    payloads: list[tuple[Annotated[int, msgspec.Meta(ge=0, le=_MAX)], Annotated[int, msgspec.Meta(ge=-1, le=_MAX)]]]


_places = msgspec.msgpack.Decoder(_Places).decode
_header = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Ring:
    """Memory that one process writes payloads to and one other reads them from, in order.

    Positions count all bytes ever written; where a payload stands is its position modulo the size. The reader says in
    the first bytes up to where it has read.

    Args:
        descriptor: Of the memory; this object closes it.
    """

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size - mmap.PAGESIZE
        self._memory = mmap.mmap(descriptor, self.size + mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._memory, dtype=np.uint8)
        self._end = self._base = 0

    @classmethod
    def make(cls, size: int = _RING) -> Ring | None:
        """New memory without a name, gone with the last process that has it; None where the system gives none."""
        if not hasattr(os, "memfd_create"):
            return None
        try:
            descriptor = os.memfd_create("graphsilo")
        except OSError:
            return None
        try:
            os.ftruncate(descriptor, mmap.PAGESIZE + size)
            return cls(descriptor)
        except OSError:
            os.close(descriptor)
            return None

    def put(self, payload: NDArray[np.uint8]) -> int:
        """Write a payload; returns its position, or ``_SOCKET`` where there is no room for it now."""
        length = int(payload.shape[0])
        if not _SMALLEST <= length <= self.size:
            return _SOCKET
        read = max(_COUNT.unpack_from(self._memory)[0], self._base)
        if read == self._end:  # all is read: the beginning again, which is still in the processor's cache
            start = read = self._base = _up(self._end, self.size)
        else:
            start = _up(self._end, ALIGN)
            if start % self.size + length > self.size:
                start = _up(start, self.size)
        if start + length - read > self.size:
            return _SOCKET
        place = mmap.PAGESIZE + start % self.size
        self._bytes[place : place + length] = payload
        self._end = start + length
        return start

    def take(self, position: int, length: int) -> NDArray[np.uint8]:
        """A copy of a payload, whose place can be written again from now on.

        Raises:
            EOFError: There can be no payload at that place.
        """
        place = mmap.PAGESIZE + position % self.size
        if position < 0 or place + length > len(self._bytes):
            raise EOFError(_OUT_OF_STEP)
        data = aligned_bytes(length)
        data[:] = self._bytes[place : place + length]
        _COUNT.pack_into(self._memory, 0, position + length)
        return data

    def close(self) -> None:
        """Let go of the memory. May be called twice."""
        if self.descriptor >= 0:
            del self._bytes
            self._memory.close()
            os.close(self.descriptor)
            self.descriptor = -1


class Channel:
    """One end of a connection between two processes.

    Args:
        connection: A stream socket.
        outgoing: Where this end writes large payloads; None for the socket alone.
        incoming: Where the other end does.
    """

    def __init__(self, connection: socket.socket, outgoing: Ring | None = None, incoming: Ring | None = None):
        self.connection, self.outgoing, self.incoming = connection, outgoing, incoming

    def fileno(self) -> int:
        """Of the socket, so that a selector can wait for the next frame."""
        return self.connection.fileno()

    def send(self, header: dict[str, Any], payloads: Sequence[NDArray[np.uint8]] = ()) -> None:
        """Send one frame. What an earlier frame brought to this end must have been received.

        Raises:
            OSError: The other side has gone.
        """
        where = [
            (int(payload.shape[0]), _SOCKET if self.outgoing is None else self.outgoing.put(payload))
            for payload in payloads
        ]
        packed = msgspec.msgpack.encode({**header, "payloads": where})
        follow = [payload for payload, (_, position) in zip(payloads, where, strict=True) if position == _SOCKET]
        length = sum(int(payload.shape[0]) for payload in follow)
        self.connection.sendall(_HEAD.pack(_MAGIC, len(packed), length) + packed)
        for payload in follow:
            self.connection.sendall(np.ascontiguousarray(payload).data)

    def receive(self) -> tuple[dict[str, Any], list[NDArray[np.uint8]]]:
        """Receive one frame.

        Raises:
            EOFError: The other side has gone, or has sent what is no frame.
            OSError: The connection is broken.
        """
        magic, length, follow = _HEAD.unpack(_exactly(self.connection, _HEAD.size).tobytes())
        if magic != _MAGIC or length > MAX_HEADER:
            raise EOFError(_OUT_OF_STEP)
        try:
            packed = _exactly(self.connection, length).tobytes()
            places = _places(packed).payloads
            header: dict[str, Any] = _header(packed)
            if sum(size for size, position in places if position == _SOCKET) != follow:
                raise EOFError(_OUT_OF_STEP)
            return header, [self._payload(size, position) for size, position in places]
        except OSError:
            raise
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError, MemoryError, RuntimeError) as error:
            raise EOFError(f"{_OUT_OF_STEP} ({type(error).__name__})") from None

    def _payload(self, size: int, position: int) -> NDArray[np.uint8]:
        if position == _SOCKET:
            return _exactly(self.connection, size)
        if self.incoming is None:
            raise EOFError(_OUT_OF_STEP)
        return self.incoming.take(position, size)

    def close(self) -> None:
        """Let go of the socket and the memory. May be called twice."""
        self.connection.close()
        for ring in (self.outgoing, self.incoming):
            if ring is not None:
                ring.close()


def _up(position: int, unit: int) -> int:
    """The next multiple of a unit, or the position itself if it is one."""
    return -(-position // unit) * unit


def _exactly(connection: socket.socket, size: int) -> NDArray[np.uint8]:
    data = aligned_bytes(size)
    fill(connection, data.data)
    return data
