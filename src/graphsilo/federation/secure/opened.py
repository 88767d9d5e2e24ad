"""What a silo has opened: it helps to open the same answer in one sum only.

Training is the same to the last bit when it is repeated. A coordinator that opened the sum of all silos, went back to
its checkpoint and opened the sum of all but one would have that one's answer as the difference. So a silo notes which
answer it opened together with whom, on the disk, before it opens it, and neither sends nor opens that answer in a sum
with others again: not in another round, run, or after a restart. The same sum of the same silos it opens as often as it
is asked. Nor does it open two answers to the same call of a run with different silos.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from graphsilo.errors import DisclosureError


class OpenedSums:
    """The record of one silo.

    Args:
        path: A file of lines, of which only the owner can read anything; None keeps the record in memory.

    Raises:
        DisclosureError: The file cannot be read.
    """

    def __init__(self, path: Path | None = None):
        self.path = path
        self._answers: dict[str, frozenset[str]] = {}
        self._calls: dict[str, frozenset[str]] = {}
        if path is None or not path.exists():
            return
        try:
            lines = path.read_bytes().split(b"\n")
            # Of a line that was cut when the power failed, nothing has been opened.
            for line in lines[:-1]:
                self._take(json.loads(line))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DisclosureError(
                f"the record of opened sums {path} cannot be read ({type(error).__name__}), and without it no sum is "
                f"opened. The silo's owner must mend it, or remove it: then coordinators can compute differences of "
                f"sums that were opened before."
            ) from None

    def check(self, answer: bytes, call: str, silos: Collection[bytes]) -> None:
        """Refuse a sum of which another one was opened.

        Args:
            answer: [32] hash of the silo's answer.
            call: Which call of which run it answers.
            silos: Who is in the sum: hashes of their identities.

        Raises:
            DisclosureError: The same answer, or one to the same call, was opened with others.
        """
        wanted = _named(silos)
        for what, before in (("answer", self._answers.get(answer.hex())), ("call", self._calls.get(call))):
            if before is not None and before != wanted:
                more, fewer = len(wanted - before), len(before - wanted)
                raise DisclosureError(
                    f"this {what} was opened before in a sum with other silos ({more} are new, {fewer} are not there "
                    f"any more): the difference of both sums would say what single silos sent. Run with the same "
                    f"silos as before, or begin a run whose answers are others (another seed or other settings)."
                )

    def note(self, answer: bytes, call: str, silos: Collection[bytes]) -> None:
        """Note a sum that is about to be opened; it is on the disk when this returns.

        Raises:
            DisclosureError: As ``check``; or the record cannot be written, and nothing may be opened.
        """
        self.check(answer, call, silos)
        line = {"answer": answer.hex(), "call": call, "silos": sorted(_named(silos))}
        if self._answers.get(answer.hex()) is not None and self._calls.get(call) is not None:
            return
        if self.path is not None:
            try:
                _append(self.path, json.dumps(line).encode() + b"\n")
            except OSError as error:
                raise DisclosureError(
                    f"the record of opened sums cannot be written ({error.strerror}), and nothing is opened that is "
                    f"not recorded. The silo's owner must make room for it."
                ) from None
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        silos = frozenset(map(str, line["silos"]))
        self._answers[str(line["answer"])] = self._calls[str(line["call"])] = silos


def _named(silos: Collection[bytes]) -> frozenset[str]:
    return frozenset(silo.hex() for silo in silos)


def call_of(run: str, seed: int, round: int, handler: str, repeat: int) -> str:
    """Which call of which run."""
    parts: Sequence[Any] = (run, seed, round, handler, repeat)
    return json.dumps(parts)


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = os.lseek(handle, 0, os.SEEK_END)
        if end:  # a line that was cut when the power failed goes
            whole = os.pread(handle, end, 0)
            os.ftruncate(handle, whole.rfind(b"\n") + 1)
            os.lseek(handle, 0, os.SEEK_END)
        while line:
            line = line[os.write(handle, line) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the file's name, where it is new
    finally:
        os.close(folder)
