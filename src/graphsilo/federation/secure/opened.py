"""What a silo has opened: it helps to open sums over its data with one set of silos only.

A coordinator that opens a sum over five silos, and one over four of them, has the fifth one's answer as the difference,
be it the same answer to the last bit or one to a question that is as good as the same. More than two sums can be
combined as well, and no silo knows of those that it is not in. So the rule is the strictest there is: a silo notes on
the disk, before it opens a sum, with whom that is. From then on it neither masks nor opens an answer with others, as
long as its data stay as they are: in no round, run or federation, of no step or method, and not after a restart. Sums
with one honest silo in common are then over the same silos, and sums without one over different silos: no combination
of them says more than they do. Nor is one answer opened with others, should it be the same after the data changed.

An offer tells by itself how large the silo's numbers are, and that there is one that the question could be answered. So
the record holds what was offered, too, each time that it was asked for, and few wait there that were never opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from graphsilo.errors import DisclosureError
from graphsilo.federation.record import Record

MOST_OFFERED = 32
"""Answers that a silo offers and that are not opened, for good: runs that break off leave one each."""


class OpenedSums(Record):
    """What one silo has opened, as lines of a file, read when it is made; ``path`` and errors are a ``Record``'s."""

    what = "record of opened sums"
    stops = "offered or opened", "no sum is opened"
    removed = "compute differences of sums that were opened before"

    def __init__(self, path: Path | None = None):
        super().__init__(path)
        self._read_on()

    @property
    def data(self) -> Collection[str]:
        """Hashes of the data that sums were opened of."""
        return self._data.keys()

    def check(self, answer: bytes, data: str, silos: Collection[bytes]) -> None:
        """Refuse a sum of which another one was opened.

        Args:
            answer: [32] hash of the silo's answer.
            data: Hash of the data that it was made of; empty: nobody says, and only the answer counts.
            silos: Who is in the sum: hashes of their identities.

        Raises:
            DisclosureError: The same answer, or one from the same data, was opened with others; or the file cannot be
                read.
        """
        self._read_on()
        wanted = _name_silos(silos)
        known = ("this answer was", self._answers.get(answer.hex())), ("these data were", self._data.get(data))
        for what, before in known:
            if before is not None and before != wanted:
                more, fewer = len(wanted - before), len(before - wanted)
                raise DisclosureError(
                    f"{what} opened before in a sum with other silos ({more} are new, {fewer} are not there any more): "
                    f"the difference of both sums would say what single silos sent. Run with the same silos as before. "
                    f"Where one has joined, or left for good, the owner of every other silo decides: by removing the "
                    f"record of opened sums, sums/{self._name} beside its silo.yaml."
                )

    def note(self, answer: bytes, data: str, silos: Collection[bytes], question: bytes = b"") -> None:
        """Note a sum that is about to be opened; it is on the disk when this returns.

        Args:
            answer, data, silos: As for ``check``.
            question: That it was offered to.

        Raises:
            DisclosureError: As ``check``; or the record cannot be written, and nothing may be opened.
        """
        self.check(answer, data, silos)
        if answer.hex() in self._answers and (not data or data in self._data):
            self.free(answer, question)
            return
        line = {"answer": answer.hex(), "data": data, "silos": sorted(_name_silos(silos))}
        self._add(line | self._free_entry(answer, question), lambda: self.check(answer, data, silos))

    def free(self, answer: bytes, question: bytes) -> None:
        """Note that an offer is about to be opened of which nothing else is kept.

        Raises:
            DisclosureError: The record cannot be written.
        """
        if line := self._free_entry(answer, question):
            self._add(line, lambda: None)

    def _free_entry(self, answer: bytes, question: bytes) -> dict[str, str]:
        self._read_on()
        offer = _offer_of(answer, question)
        return {"freed": offer} if offer in self._offered else {}

    def offer(self, answer: bytes, question: bytes = b"") -> None:
        """Note an answer that is about to be offered; it is on the disk when this returns.

        The same answer to another question is another offer: that it is the same says something, too. In memory, within
        one process, nothing is noted: there nobody is deceived.

        Args:
            answer: [32] hash of it.
            question: Hash of all that the silo was asked so far.

        Raises:
            DisclosureError: Too many others wait; or the record cannot be read or written, and nothing may be offered.
        """
        offer = _offer_of(answer, question)

        def check() -> None:
            self._read_on()
            if len(self._offered) >= MOST_OFFERED and offer not in self._offered:
                raise DisclosureError(
                    f"{MOST_OFFERED} answers of this silo were offered for sums that were never opened. As that there "
                    f"is an answer may say something of its rows, no other is offered. Runs that broke off may have "
                    f"left them: the silo's owner, who knows whether so many did, takes the lines with "
                    f'"offered", and no others, out of sums/{self._name} beside its silo.yaml.'
                )

        self._read_on()
        if self.path is not None and offer not in self._offered:
            self._add({"offered": offer}, check)

    @property
    def _name(self) -> str:
        return "NAME.opened" if self.path is None else self.path.name

    def _empty(self) -> None:
        self._answers: dict[str, frozenset[str]] = {}
        self._data: dict[str, frozenset[str]] = {}
        self._offered: set[str] = set()

    def _take(self, line: dict[str, Any]) -> None:
        if "offered" in line:
            self._offered.add(str(line["offered"]))
            return
        self._offered.discard(str(line.get("freed", "")))
        if "answer" not in line:
            return
        silos = frozenset(map(str, line["silos"]))
        self._answers[str(line["answer"])] = silos
        if data := line.get("data"):
            self._data[str(data)] = silos


def _offer_of(answer: bytes, question: bytes) -> str:
    return hashlib.sha256(answer + question).hexdigest()


def _name_silos(silos: Collection[bytes]) -> frozenset[str]:
    return frozenset(silo.hex() for silo in silos)
