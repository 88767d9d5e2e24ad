"""Packets between a process and one that it started, over a socket, with large payloads beside it. No pickle.

Payloads that are worth it go through memory that both processes map: written once, read once, and whoever writes goes
on at once, where a socket has it wait until the other reads. What does not fit there now goes over the socket.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.federation.wire import ALIGN, aligned_bytes, aligned_view
from graphsilo.runtime import pipe
from graphsilo.runtime.protocol import ProtocolError, parts, unpack
from graphsilo.runtime.transport import views_of

_COUNT = struct.Struct("<Q")
_RING = 8 << 20
_SMALLEST = 4 << 10
"""Bytes from which a payload goes through shared memory: below, a socket is as fast."""
_SOCKET = -1
"""In place of a position: the payload follows on the socket."""
_CLIENTS = 1 << 12
"""A header may be as long as that of a site with so many clients: the settings of all clients of a start are in one."""
_OUT_OF_STEP = "the stream between processes is out of step"
_DAMAGED = (LookupError, TypeError, ValueError, OverflowError, MemoryError, RuntimeError, StopIteration)


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
            start = read = self._base = _round_up(self._end, self.size)
        else:
            start = _round_up(self._end, ALIGN)
            if start % self.size + length > self.size:
                start = _round_up(start, self.size)
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
        """Of the socket, so that a selector can wait for the next packet."""
        return self.connection.fileno()

    def send(self, header: Mapping[str, Any], payloads: Sequence[NDArray[np.uint8]] = ()) -> None:
        """Send one packet. What an earlier one brought to this end must have been received.

        Raises:
            OSError: The other side has gone.
        """
        where = [_SOCKET if self.outgoing is None else self.outgoing.put(payload) for payload in payloads]
        follow = [payload for payload, position in zip(payloads, where, strict=True) if position == _SOCKET]
        places = [[len(payload), position] for payload, position in zip(payloads, where, strict=True)]
        packet = parts({**header, "id": "", "places": places}, follow, checked=False)
        pipe.send(self.connection, *views_of(packet))

    def receive(self) -> tuple[Mapping[str, Any], list[NDArray[np.uint8]]]:
        """Receive one packet.

        Raises:
            EOFError: The other side has gone, or has sent what is no packet.
            OSError: The connection is broken.
        """
        try:
            packet = unpack(pipe.receive(self.connection), clients=_CLIENTS, whole=True)
            follow = map(aligned_view, packet.payloads)
            return packet.header, [
                next(follow) if position == _SOCKET else self._take(int(position), int(size))
                for size, position in packet.header["places"]
            ]
        except (*_DAMAGED, ProtocolError) as error:
            raise EOFError(f"{_OUT_OF_STEP} ({type(error).__name__})") from None

    def _take(self, position: int, size: int) -> NDArray[np.uint8]:
        if self.incoming is None:
            raise EOFError(_OUT_OF_STEP)
        return self.incoming.take(position, size)

    def close(self) -> None:
        """Let go of the socket and the memory. May be called twice."""
        self.connection.close()
        for ring in (self.outgoing, self.incoming):
            if ring is not None:
                ring.close()


def _round_up(position: int, unit: int) -> int:
    """The next multiple of a unit, or the position itself if it is one."""
    return -(-position // unit) * unit
