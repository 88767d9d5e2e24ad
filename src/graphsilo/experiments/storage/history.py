"""What the finished rounds of a seed left behind: a file that grows at its end and is never rewritten.

A checkpoint names how much of the file belongs to it and what that part hashes to. So saving costs the same at round
10 and at round 1000, and whatever a killed process wrote beyond its last checkpoint is cut off again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from graphsilo.errors import RunError
from graphsilo.experiments.storage import disk

_LENGTH = 8
_decoder = msgspec.msgpack.Decoder(dict[str, list[Any]])


class History:
    """The rounds of one seed, kept in a file.

    Args:
        path: Of the file; what it holds is not looked at before ``read``, and replaced by ``append`` without it.
    """

    def __init__(self, path: Path):
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self._size = 0
        self._hash = hashlib.sha256()

    @property
    def mark(self) -> dict[str, Any]:
        """How far the file goes: what a checkpoint keeps, to find these rounds again."""
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def append(self, rows: Mapping[str, list[Any]]) -> None:
        """Add rows of plain values, by table; they are on disk when this returns.

        Raises:
            RunError: The disk is full or cannot be written; what the last mark stands for is unharmed.
        """
        data = msgspec.msgpack.encode(rows)
        part = len(data).to_bytes(_LENGTH, "little") + data
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with disk.open_to_append(self.path) as file:
                if file.tell() < self._size:
                    raise RunError(f"{self.path}, which holds the rounds so far, was shortened or removed by others.")
                file.truncate(self._size)  # a process that was killed may have written more
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(
                f"{self.path} could not be written ({error.strerror}). The last checkpoint is unharmed: "
                f"{disk.MAKE_ROOM}"
            ) from error
        self._size += len(part)
        self._hash.update(part)

    def read(self, mark: Mapping[str, Any]) -> dict[str, list[Any]]:
        """All rows that a mark stands for, by table; what is appended from now on follows them.

        Raises:
            RunError: The file is missing, shorter, or was changed.
        """
        self._begin()
        try:
            with self.path.open("rb") as file:
                data = file.read(mark["bytes"])
        except OSError:
            data = b""
        self._size = len(data)
        self._hash.update(data)
        if self.mark != dict(mark):
            self._begin()
            raise RunError(
                f"{self.path}, which holds the rounds before a checkpoint, is missing or damaged. Delete the "
                f"checkpoints of this seed beside it to start it again, then --resume."
            )
        tables: dict[str, list[Any]] = {}
        for part in _parts(data):
            for name, rows in part.items():
                tables.setdefault(name, []).extend(rows)
        return tables


def _parts(data: bytes) -> Iterator[dict[str, list[Any]]]:
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start : start + _LENGTH], "little")
        start += _LENGTH
        yield _decoder.decode(memoryview(data)[start : start + size])
        start += size
