"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of ``path`` only when everything is on disk.

    ``mode`` says who may read and write it, from its first byte on; the umask is taken off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_path(path)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_names(path.parent)


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """A file that only its owner can read, for one process at a time; made where there is none."""
    import fcntl  # not on every system

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the file's name, where it is new: whoever relies on it is told where that fails
    finally:
        os.close(folder)


def _temporary_path(path: Path) -> Path:
    """A new name beside a file, under which it is written until it is whole."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def remove_unfinished(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left in a folder; nobody else may be writing there."""
    for path in folder.rglob(".*.tmp"):
        if re.fullmatch(r"\..+\.[0-9a-f]{32}\.tmp", path.name):
            path.unlink(missing_ok=True)


MANY_FILES = 32
"""Files from which on flushing everything once is faster than flushing each; measured with 500, it takes a third."""


@contextlib.contextmanager
def atomic_files() -> Iterator[Callable[[Path, bytes | memoryview], None]]:
    """Writes files that take their places together, when all of them are on disk; none does where something fails."""
    waiting: dict[Path, Path] = {}

    def write(path: Path, data: bytes | memoryview) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = waiting.setdefault(path, _temporary_path(path))
        temporary.write_bytes(data)

    try:
        yield write
        if len(waiting) >= MANY_FILES and hasattr(os, "sync"):
            os.sync()
        else:
            for temporary in waiting.values():
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
        for path, temporary in waiting.items():
            temporary.replace(path)
    finally:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in waiting}:
        _flush_names(folder)


def _flush_names(folder: Path) -> None:
    """A rename survives a power cut only once its folder is on disk, too; not every platform can open one."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
