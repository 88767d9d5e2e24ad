"""A file of lines, kept with a silo's data, of what was let out for good: it only grows, and fails closed."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from graphsilo.data.sources.atomic import lock_file
from graphsilo.errors import DisclosureError


class Record(ABC):
    """The record of one silo.

    Args:
        path: A file of which only the owner can read anything, and which processes may share; None keeps the record in
            memory.

    Attributes:
        what: Its name in words.
        stops: What does not happen without it, in words.
        removed: What coordinators can do once it is gone, in words.
    """

    what: ClassVar[str]
    stops: ClassVar[tuple[str, str]]
    removed: ClassVar[str]

    def __init__(self, path: Path | None = None):
        self.path = path
        self._forget()

    @abstractmethod
    def _empty(self) -> None:
        """Begin with nothing."""

    @abstractmethod
    def _take(self, line: dict[str, Any]) -> None:
        """What one line says."""

    def _add(self, line: dict[str, Any], check: Callable[[], None]) -> None:
        """Put a line on the disk, if a check passes while nobody else can.

        Raises:
            DisclosureError: It cannot be written; or as the check.
        """
        if self.path is None:
            check()
            self._take(line)
            return
        try:
            with lock_file(self.path) as handle:
                check()  # another process may have been first
                _append(handle, json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise DisclosureError(
                f"the {self.what} cannot be written ({error.strerror}), and nothing is {self.stops[0]} that is not "
                f"recorded. The silo's owner must make room for it, in sums/ beside silo.yaml."
            ) from None

    def _forget(self) -> None:
        self._empty()
        self._taken = 0  # bytes of the file

    def _read_on(self) -> None:
        """Take the lines that were added.

        Raises:
            DisclosureError: They cannot be read.
        """
        if self.path is None:
            return
        try:
            if not self.path.exists() or self.path.stat().st_size < self._taken:
                self._forget()  # its owner has removed it
            if not self.path.exists():
                return
            with self.path.open("rb") as file:
                file.seek(self._taken)
                lines = file.read()
            # Of a line that was cut when the power failed, nothing has left.
            lines = lines[: lines.rfind(b"\n") + 1]
            for line in lines.splitlines():
                self._take(json.loads(line))
            self._taken += len(lines)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DisclosureError(
                f"the {self.what} {self.path.name} cannot be read ({type(error).__name__}), and without it "
                f"{self.stops[1]}. The silo's owner must mend it, or remove it: then coordinators can {self.removed}."
            ) from None


def _append(handle: int, line: bytes) -> None:
    end = os.lseek(handle, 0, os.SEEK_END)
    if end:  # a line that was cut when the power failed goes
        whole = os.pread(handle, end, 0)
        os.ftruncate(handle, whole.rfind(b"\n") + 1)
        os.lseek(handle, 0, os.SEEK_END)
    while line:
        line = line[os.write(handle, line) :]
    os.fsync(handle)
