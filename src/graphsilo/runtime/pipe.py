"""Whole byte strings over a stream socket of this machine: eight bytes of length, then the bytes. No torch, no numpy.

Between the processes of one party only (a site's engine and its supervisor, a coordinator's engine and its runner),
over unix sockets in a folder that belongs to the user alone. What crosses machines goes through an engine.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import stat
import struct
from pathlib import Path

from graphsilo.errors import RunError

_LENGTH = struct.Struct("<4sQ")
_MAGIC = b"GSP1"
_BACKLOG = 64
_LARGE = 1 << 22
"""Bytes from which received ones are worth large pages of memory."""
_PATH_LIMIT = 100  # the system allows 107 bytes in a unix socket's path


def send(connection: socket.socket, *parts: bytes | bytearray | memoryview) -> None:
    """Send the parts as one byte string.

    Raises:
        OSError: The other side has gone, or a timeout of the socket has passed.
    """
    connection.sendall(_LENGTH.pack(_MAGIC, sum(memoryview(part).nbytes for part in parts)))
    for part in parts:
        if memoryview(part).nbytes:  # after an empty string the other side may have gone already
            connection.sendall(part)


def receive(connection: socket.socket, *, limit: int | None = None) -> bytearray | memoryview:
    """Receive one byte string; a large one into memory that begins at a page.

    Raises:
        EOFError: The other side has gone, is out of step, or sends more than ``limit``.
        OSError: A timeout of the socket has passed.
    """
    magic, length = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if magic != _MAGIC:
        raise EOFError("the stream between processes is out of step")
    if limit is not None and length > limit:
        raise EOFError(f"{length} bytes were announced, at most {limit} are taken")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytearray | memoryview:
    data = bytearray(size) if size < _LARGE else _pages(size)
    fill(connection, memoryview(data))
    return data


def _pages(size: int) -> memoryview:
    """Writable memory in large pages, where the system has them: most of what receiving costs is new small pages."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def fill(connection: socket.socket, view: memoryview) -> None:
    """Receive exactly as many bytes as the view has room for.

    Raises:
        EOFError: The other side has gone.
    """
    done = 0
    while done < view.nbytes:
        count = connection.recv_into(view[done:])
        if count == 0:
            raise EOFError("the other process has ended")
        done += count


def check_path(path: Path) -> Path:
    """The path, if a socket can have it.

    Raises:
        RunError: It is too long.
    """
    if len(os.fsencode(path)) > _PATH_LIMIT:
        raise RunError(
            f"the path {path} is too long for a socket ({_PATH_LIMIT} bytes are allowed): put the folder nearer to the "
            f"root of the file system."
        )
    return path


def listen(path: Path) -> socket.socket:
    """A unix socket that only this user can connect to; what a killed process left behind is replaced.

    Raises:
        RunError: The path is too long for a socket, or somebody listens there.
    """
    check_path(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        if _answers(path):
            raise RunError(f"another process listens at {path}: stop it first.")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the socket belongs to this user alone from its first moment
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    return listener


def connect(path: Path | str, *, timeout: float | None = None) -> socket.socket:
    """Connect to a unix socket.

    Raises:
        OSError: Nobody listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def _answers(path: Path) -> bool:
    try:
        connect(path, timeout=1.0).close()
    except OSError:
        return False
    return True
