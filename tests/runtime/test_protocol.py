"""Headers of packets that are too large."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from graphsilo.runtime import protocol
from graphsilo.runtime.protocol import ProtocolError, unpack
from kit.damage import EMPTY_DICT, MEGABYTE, ZERO, array, memory


def packet(field: str, value: bytes, **more: Any) -> bytearray:
    """A packet whose header holds any bytes in one field."""
    known = msgspec.msgpack.encode({"v": protocol.VERSION, "id": "a", "sizes": [], "check": 0, **more})
    header = bytes([known[0] + 1]) + known[1:] + msgspec.msgpack.encode(field) + value
    return bytearray(b"GSR1" + struct.pack("<I", len(header)) + header)


def test_large_header_of_a_packet_is_not_read() -> None:
    data = packet("answers", array(17 * MEGABYTE, EMPTY_DICT))
    with memory() as most, pytest.raises(ProtocolError, match=r"has a header of 178\d+ bytes; at most 540672 are read"):
        unpack(data)
    assert most() < MEGABYTE
    many = packet("answers", array(2 * protocol.MAX_HEADER, ZERO))
    with pytest.raises(ProtocolError, match="are read"):
        unpack(many, clients=32)
    assert len(unpack(many, clients=33).header["answers"]) == 2 * protocol.MAX_HEADER


def test_header_of_a_packet_that_is_just_short_enough_takes_little_memory() -> None:
    for field, junk, error in (("answers", EMPTY_DICT, None), ("sizes", EMPTY_DICT, "cannot be read")):
        data = packet(field, array(protocol.MAX_HEADER, junk))
        with memory() as most:
            if error is None:
                assert len(unpack(data).header["answers"]) == protocol.MAX_HEADER
            else:
                with pytest.raises(ProtocolError, match=error):
                    unpack(data)
        assert most() < (50 if error is None else 5) * MEGABYTE
