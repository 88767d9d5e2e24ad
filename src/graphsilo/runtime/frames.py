"""Frames between processes of one machine: a msgpack header and raw payloads, over a socket. No pickle."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from graphsilo.federation.codec import aligned_bytes
from graphsilo.runtime.pipe import fill

_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"GSF1"


def send(connection: socket.socket, header: dict[str, Any], payloads: Sequence[NDArray[np.uint8]] = ()) -> None:
    """Send one frame."""
    packed = msgspec.msgpack.encode({**header, "sizes": [int(payload.shape[0]) for payload in payloads]})
    connection.sendall(_HEAD.pack(_MAGIC, len(packed), sum(int(payload.shape[0]) for payload in payloads)) + packed)
    for payload in payloads:
        connection.sendall(np.ascontiguousarray(payload).data)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[NDArray[np.uint8]]]:
    """Receive one frame.

    Raises:
        EOFError: The other side has gone.
    """
    magic, length, _ = _HEAD.unpack(_exactly(connection, _HEAD.size).tobytes())
    if magic != _MAGIC:
        raise EOFError("the stream between processes is out of step")
    header = msgspec.msgpack.decode(_exactly(connection, length).tobytes())
    return header, [_exactly(connection, size) for size in header["sizes"]]


def _exactly(connection: socket.socket, size: int) -> NDArray[np.uint8]:
    data = aligned_bytes(size)
    fill(connection, data.data)
    return data
