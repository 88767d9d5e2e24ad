"""Frames over a socket."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from graphsilo.runtime import frames


def pair():
    return socket.socketpair()


@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 0, 5], [2_000_000, 7]])
def test_frames_come_back(sizes):
    mine, theirs = pair()
    payloads = [np.arange(size, dtype=np.int64).astype(np.uint8) for size in sizes]
    sender = threading.Thread(target=frames.send, args=(mine, {"do": "x", "n": 3}, payloads))
    sender.start()
    header, received = frames.receive(theirs)
    sender.join()
    assert (header["do"], header["n"]) == ("x", 3)
    assert len(received) == len(payloads)
    assert all(np.array_equal(*one) for one in zip(received, payloads, strict=True))
    mine.close()
    theirs.close()


def test_the_other_side_has_gone():
    mine, theirs = pair()
    mine.close()
    with pytest.raises(EOFError):
        frames.receive(theirs)
    theirs.close()


def test_gone_in_the_middle():
    mine, theirs = pair()
    mine.sendall(b"GSF1\x10\0\0\0")
    mine.close()
    with pytest.raises(EOFError):
        frames.receive(theirs)
    theirs.close()


def test_out_of_step():
    mine, theirs = pair()
    mine.sendall(b"XXXX" + bytes(12))
    with pytest.raises(EOFError, match="out of step"):
        frames.receive(theirs)
    mine.close()
    theirs.close()
