"""Bytes that went wrong on the way."""

from __future__ import annotations

import resource
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from graphsilo.federation.message import Message

MEGABYTE = 1 << 20


EMPTY_DICT, EMPTY_LIST, EMPTY_TEXT, ZERO = b"\x80", b"\x90", b"\xa0", b"\x00"


# -- headers that take much more memory than they have bytes ------------------------------------------------------


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """The most bytes that Python objects took within."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """As on a disk that is full: no file grows beyond so many bytes within."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def array(count: int, item: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + item * count


def message(kind: type[Message], value: bytes) -> bytes:
    """A message whose one field holds any bytes."""
    name, key = msgspec.msgpack.encode(kind.wire_name()), msgspec.msgpack.encode("value")
    header = b"\x93" + name + b"\x81" + key + value + b"\x00"
    whole = b"GSM1" + struct.pack("<I", len(header)) + header
    return whole.ljust(-(-len(whole) // 64) * 64, b"\0")
