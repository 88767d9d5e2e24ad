"""Packets between processes: over a socket, large payloads through shared memory."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import threading

import numpy as np
import pytest

from graphsilo.runtime.local.frames import Channel, Ring
from kit.damage import small_files

MEGABYTE = 1 << 20


def pair(size=None):
    """Two ends of a line; with memory of that size each way."""
    sockets = socket.socketpair()
    if size is None:
        return Channel(sockets[0]), Channel(sockets[1])
    down, up = Ring.make(size), Ring.make(size)
    others = [Ring(os.dup(ring.descriptor)) for ring in (down, up)]
    return Channel(sockets[0], down, up), Channel(sockets[1], others[1], others[0])


def drawn(*sizes, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 256, size, dtype=np.uint8) for size in sizes]


def close(*lines):
    for line in lines:
        line.close()
        line.close()


@pytest.mark.parametrize("memory", [None, MEGABYTE, 8 * MEGABYTE])
@pytest.mark.parametrize("sizes", [[], [1], [3, 1, 5], [2_000_000, 7], [4096, 4095, 200_001, 64]])
def test_frames_come_back(sizes, memory):
    mine, theirs = pair(memory)
    payloads = drawn(*sizes)
    for one, other in ((mine, theirs), (theirs, mine)):
        sender = threading.Thread(target=one.send, args=({"do": "x", "n": 3}, payloads))
        sender.start()
        header, received = other.receive()
        sender.join()
        assert (header["do"], header["n"]) == ("x", 3)
        assert len(received) == len(payloads)
        assert all(np.array_equal(*each) for each in zip(received, payloads, strict=True))
    close(mine, theirs)


def test_many_frames_wait_and_none_is_written_over():
    """Written faster than read, and read in bursts: the ring wraps around, fills up, and is empty again."""
    mine, theirs = pair(MEGABYTE)
    generator = np.random.default_rng(5)
    sizes = generator.integers(1, 300_000, 400)
    read = threading.Semaphore(12)

    def write():
        for number, size in enumerate(sizes):
            read.acquire()
            mine.send({"number": number}, drawn(size, seed=number))

    writer = threading.Thread(target=write)
    writer.start()
    for number, size in enumerate(sizes):
        header, received = theirs.receive()
        assert header["number"] == number
        assert np.array_equal(received[0], drawn(size, seed=number)[0])
        read.release()
    writer.join()
    close(mine, theirs)


def test_a_ring_by_hand():
    """Positions of payloads in a ring of 64 KiB."""
    ring, kib = Ring.make(64 * 1024), 1024
    if ring is None:
        pytest.skip("this system has no memory without a name")
    payload = drawn(24 * kib)[0]
    assert ring.put(payload[: 2 * kib]) == -1  # as fast over the socket
    assert ring.put(payload) == 0
    assert ring.put(payload) == 24 * kib
    assert ring.put(payload) == -1  # 16 KiB are left
    assert ring.put(payload[: 8 * kib]) == 48 * kib
    assert np.array_equal(ring.take(0, 24 * kib), payload)
    assert ring.put(payload) == 64 * kib  # where the first was; the 8 KiB at the end are too few
    assert np.array_equal(ring.take(24 * kib, 24 * kib), payload)
    assert np.array_equal(ring.take(48 * kib, 8 * kib), payload[: 8 * kib])
    assert np.array_equal(ring.take(64 * kib, 24 * kib), payload)
    assert ring.put(payload) == 128 * kib  # nothing waits: the beginning again
    assert ring.put(payload) == 152 * kib  # though the reader has not said so yet
    with pytest.raises(EOFError, match="out of step"):
        ring.take(60 * kib, 8 * kib)
    with pytest.raises(EOFError, match="out of step"):
        ring.take(-1, 8)
    ring.close()


def test_a_system_without_shared_memory(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert Ring.make() is None


def test_a_system_that_gives_no_memory():
    with small_files(10_000):
        assert Ring.make() is None


def test_the_other_side_has_gone():
    mine, theirs = pair()
    mine.close()
    with pytest.raises(EOFError):
        theirs.receive()
    theirs.close()


@pytest.mark.parametrize("number", [0, 1100])
def test_what_has_come_is_known_without_receiving_it(number):
    """Also where a process has more files open than select can number."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] <= number:
        pytest.skip("this process may not open so many files")
    mine, theirs = pair()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], number + 1), limits[1]))
    try:
        line = Channel(socket.socket(fileno=fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, number)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert line.fileno() >= number
    mine.send({"number": 1})
    assert line.receive()[0]["number"] == 1
    mine.close()
    theirs.close()
    line.close()


def test_gone_in_the_middle():
    mine, theirs = pair()
    mine.connection.sendall(b"GSP1\x10\0\0\0")
    mine.close()
    with pytest.raises(EOFError):
        theirs.receive()
    theirs.close()


def test_out_of_step():
    mine, theirs = pair()
    mine.connection.sendall(b"XXXX" + bytes(12))
    with pytest.raises(EOFError, match="out of step"):
        theirs.receive()
    close(mine, theirs)
