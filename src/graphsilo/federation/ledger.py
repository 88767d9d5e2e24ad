"""The ledger: every byte that crossed a silo's boundary, by field and kind of disclosure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.federation.wire import Encoded

Direction: TypeAlias = Literal["up", "down"]
Phase: TypeAlias = Literal["setup", "round", "evaluation"]
Traffic: TypeAlias = dict[int, dict[str, int]]
"""Bytes up and down by client."""

COLUMNS = ("phase", "round", "client", "direction", "handler", "message", "field", "kind", "bytes", "messages")


class _Alike(NamedTuple):
    """Messages of one phase and round that look alike, and whose they were: one broadcast is one of these."""

    phase: Phase
    round: int
    direction: Direction
    handler: str
    message: str
    size: int
    fields: tuple[tuple[str, str, int], ...]
    clients: NDArray[np.int32]

    def plain(self) -> list[Any]:
        """What ``of_plain`` takes, without arrays."""
        return [*self[:-1], self.clients.tobytes()]

    @classmethod
    def of_plain(cls, row: Sequence[Any]) -> _Alike:
        *place, fields, clients = row
        return cls._make([*place, tuple(map(tuple, fields)), np.frombuffer(clients, dtype=np.int32)])


class Rows(NamedTuple):
    """Rows of the ledger that differ in client, bytes and messages alone.

    Attributes:
        clients: [rows], ascending.
        bytes, messages: [rows], of each client.
    """

    phase: str
    round: int
    direction: str
    handler: str
    message: str
    field: str
    kind: str
    clients: NDArray[np.int32]
    bytes: NDArray[np.int64]
    messages: NDArray[np.int64]


class Ledger:
    """Bytes and messages per (phase, round, client, direction, handler, message, field).

    Entries with the same key add up, so that the size of its tables does not depend on how often a method talks within
    a round. In memory it is one number for each message.

    Args:
        exchanges: Whether anything of training leaves a silo. Where nothing does, only evaluation is noted: that each
            silo is told to go on is no exchange.
    """

    def __init__(self, *, exchanges: bool = True) -> None:
        self.exchanges = exchanges
        self.phase: Phase = "setup"
        self.round = 0
        self._open: dict[tuple[Any, ...], list[int]] = {}  # whose messages are alike, since it was last closed
        self._closed: list[_Alike] = []
        self._totals: dict[tuple[str, int, str], int] = {}
        self._began = self._taken = 0  # how much was closed when ``at`` and ``take`` were last called

    def at(self, phase: Phase, round: int) -> None:
        """Say what happens now."""
        self._close()
        self.phase, self.round, self._began = phase, round, len(self._closed)

    @property
    def counts(self) -> bool:
        """Whether messages are noted now."""
        return self.exchanges or self.phase == "evaluation"

    def record(self, client: int, direction: Direction, handler: str, message: Encoded) -> None:
        """Note one message to or from a client. The header counts as ``control``."""
        if not self.counts:
            return
        place = direction, handler, message.name, message.num_bytes, message.field_bytes
        clients = self._open.get(place)
        if clients is None:
            clients = self._open[place] = []
        clients.append(client)

    def total(self, phase: Phase, round: int | None = None) -> dict[str, int]:
        """``{"up": bytes, "down": bytes}`` of one phase (of one round)."""
        self._close()
        if round is not None:
            return {way: self._totals.get((phase, round, way), 0) for way in ("up", "down")}
        result = {"up": 0, "down": 0}
        for (where, _, direction), size in self._totals.items():
            if where == phase:
                result[direction] += size
        return result

    def traffic(self) -> Callable[[], Traffic]:
        """Gives the bytes of each client since ``at`` was last called, whenever it is asked."""
        self._close()
        return partial(_traffic, self._closed[self._began :])

    def senders(self, phase: Phase, handlers: Collection[str]) -> set[int]:
        """Who has sent anything but a header in a phase, in one of these steps."""
        self._close()
        return {
            client
            for alike in self._closed
            if alike.direction == "up" and alike.phase == phase and alike.fields and alike.handler in handlers
            for client in alike.clients.tolist()
        }

    def tables(self) -> Iterator[Rows]:
        """All rows, by phase and round in the order of time."""
        self._close()
        for _, alike in groupby(sorted(self._closed, key=_place), key=_place):
            yield from _rows(list(alike))

    def rows(self) -> list[tuple[Any, ...]]:
        """One tuple per message and field, in the order of ``COLUMNS``."""
        return [
            (each.phase, each.round, client, *each[2:7], size, count)
            for each in self.tables()
            for client, size, count in zip(
                each.clients.tolist(), each.bytes.tolist(), each.messages.tolist(), strict=True
            )
        ]

    def take(self) -> list[Any]:
        """What came since the last call, as plain values for ``extend``."""
        self._close()
        new, self._taken = self._closed[self._taken :], len(self._closed)
        return [alike.plain() for alike in new]

    def extend(self, taken: Iterable[Sequence[Any]]) -> None:
        """Add what was taken from a ledger."""
        self._close()
        for row in taken:
            self._add(_Alike.of_plain(row))
        self._began = self._taken = len(self._closed)

    def _close(self) -> None:
        """Turn what was recorded into arrays."""
        for (direction, handler, name, size, fields), clients in self._open.items():
            whose = np.array(clients, dtype=np.int32)
            self._add(_Alike(self.phase, self.round, direction, handler, name, size, fields, whose))
        self._open = {}

    def _add(self, alike: _Alike) -> None:
        self._closed.append(alike)
        total = alike.phase, alike.round, alike.direction
        self._totals[total] = self._totals.get(total, 0) + alike.size * len(alike.clients)


_PHASES = ("setup", "round", "evaluation")


def _place(alike: _Alike) -> tuple[Any, ...]:
    """Where it belongs: rows of the same place are those of different clients and fields."""
    return alike.round, _PHASES.index(alike.phase), alike.direction, alike.handler, alike.message


def _rows(alike: Sequence[_Alike]) -> Iterator[Rows]:
    """The rows of messages of one kind in one place: their fields may be of several sizes."""
    first, counts = alike[0], [len(each.clients) for each in alike]
    clients, whose = np.unique(np.concatenate([each.clients for each in alike]), return_inverse=True)
    messages = np.bincount(whose, minlength=len(clients)).astype(np.int64)
    sizes = np.array([[*(part for *_, part in each.fields), each.size] for each in alike], dtype=np.int64)
    sizes[:, -1] -= sizes[:, :-1].sum(1)  # what belongs to no field is the header
    names = [*((field, kind) for field, kind, _ in first.fields), ("(header)", "control")]
    for (field, kind), size in zip(names, sizes.T, strict=True):
        total = np.zeros(len(clients), dtype=np.int64)
        np.add.at(total, whose, np.repeat(size, counts))
        yield Rows(*first[:5], field, kind, clients, total, messages)


def _traffic(closed: Iterable[_Alike]) -> Traffic:
    found: Traffic = {}
    for alike in closed:
        for client in alike.clients.tolist():
            found.setdefault(client, {"up": 0, "down": 0})[alike.direction] += alike.size
    return found
