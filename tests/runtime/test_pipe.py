"""Byte strings between processes of one machine."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from graphsilo.federation.wire import ALIGN, aligned_view
from graphsilo.runtime import pipe
from graphsilo.runtime.protocol import pack, parts, unpack
from graphsilo.runtime.transport import Broadcast, views_of


def through(*pieces: bytes | memoryview, limit: int | None = None) -> bytearray | memoryview:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        sender = threading.Thread(target=pipe.send, args=(mine, *pieces))
        sender.start()
        try:
            return pipe.receive(theirs, limit=limit)
        finally:
            sender.join()


@pytest.mark.parametrize("size", [0, 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 5])
def test_what_was_sent_in_pieces_comes_in_one(size: int) -> None:
    content = np.random.default_rng(0).bytes(size)
    assert bytes(through(content[: size // 3], content[size // 3 :])) == content


def test_more_than_the_limit_is_not_received() -> None:
    with pytest.raises(EOFError, match="12 bytes were announced, at most 11 are taken"):
        through(b"twelve bytes", limit=11)


def test_a_large_payload_is_used_where_it_came() -> None:
    """Memory that is received begins at a page, payloads at a multiple of 64 bytes in it."""
    model = np.arange(1 << 20, dtype=np.float32)
    packet = unpack(through(*views_of(parts({"id": "a"}, [Broadcast(model)]))))
    (payload,) = packet.payloads
    data = aligned_view(payload)
    assert data.ctypes.data % ALIGN == 0
    assert data.ctypes.data == np.frombuffer(payload, dtype=np.uint8).ctypes.data
    assert (data.view(np.float32) == model).all()


def test_what_cannot_be_used_where_it_came_is_copied() -> None:
    body = pack({"id": "a"}, [b"x" * 64])
    for payload in (memoryview(bytes(body))[-64:], memoryview(bytearray(b"." + body))[-64:]):
        data = aligned_view(payload)
        assert data.ctypes.data % ALIGN == 0
        assert data.flags.writeable
        assert data.tobytes() == b"x" * 64
