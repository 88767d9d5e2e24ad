"""The ledger: every byte that crossed a silo's boundary, by field and kind of disclosure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from graphsilo.federation.wire import Encoded

Direction: TypeAlias = Literal["up", "down"]
Phase: TypeAlias = Literal["setup", "round", "evaluation"]

COLUMNS = ("phase", "round", "client", "direction", "handler", "message", "field", "kind", "bytes", "messages")


class Ledger:
    """Bytes and messages per (phase, round, client, direction, handler, message, field).

    Entries with the same key add up, so that its size does not depend on how often a method talks within a round.
    """

    def __init__(self) -> None:
        # One entry per message and place: how many there were, their bytes, and the bytes of each field.
        self._entries: dict[tuple[Any, ...], list[Any]] = {}
        self._closed: dict[tuple[Any, ...], list[int]] = {}
        self.phase: Phase = "setup"
        self.round = 0
        self._totals: dict[tuple[str, int, str], int] = {}
        self.by_client: dict[int, dict[str, int]] = {}
        """Bytes up and down of each client since ``at`` was last called."""

    def at(self, phase: Phase, round: int) -> None:
        """Say what happens now."""
        self.phase, self.round = phase, round
        self.by_client = {}

    def record(self, client: int, direction: Direction, handler: str, message: Encoded) -> None:
        """Note one message to or from a client. The header counts as ``control``."""
        key = (self.phase, self.round, client, direction, handler, message.name)
        size = message.num_bytes
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = [1, size, message.field_bytes]
        else:
            entry[0] += 1
            entry[1] += size
            entry[2] = tuple(
                (field, kind, before + more)
                for (field, kind, before), (_, _, more) in zip(entry[2], message.field_bytes, strict=True)
            )
        total = (self.phase, self.round, direction)
        self._totals[total] = self._totals.get(total, 0) + size
        self.by_client.setdefault(client, {"up": 0, "down": 0})[direction] += size

    def total(self, phase: Phase, round: int | None = None) -> dict[str, int]:
        """``{"up": bytes, "down": bytes}`` of one phase (of one round)."""
        if round is not None:
            return {way: self._totals.get((phase, round, way), 0) for way in ("up", "down")}
        result = {"up": 0, "down": 0}
        for (where, _, direction), size in self._totals.items():
            if where == phase:
                result[direction] += size
        return result

    def rows(self) -> list[tuple[Any, ...]]:
        """One tuple per message and field, in the order of ``COLUMNS``."""
        rows = {key: list(value) for key, value in self._closed.items()}
        _add(rows, self._new_rows())
        return [(*key, *value) for key, value in rows.items()]

    def take(self) -> list[tuple[Any, ...]]:
        """The rows that came since the last call; a later one may add to the same place again."""
        rows = list(self._new_rows())
        _add(self._closed, rows)
        self._entries = {}
        return rows

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows of a ledger that was saved."""
        for row in rows:
            _add(self._closed, (row,))
            total = (row[0], row[1], row[3])
            self._totals[total] = self._totals.get(total, 0) + row[8]

    def _new_rows(self) -> Iterator[tuple[Any, ...]]:
        for place, (count, size, fields) in self._entries.items():
            for field, kind, part in fields:
                yield (*place, field, kind, part, count)
            yield (*place, "(header)", "control", size - sum(part for _, _, part in fields), count)


def _add(rows: dict[tuple[Any, ...], list[int]], more: Iterable[Sequence[Any]]) -> None:
    """Add bytes and messages of rows to those of the same place."""
    for row in more:
        entry = rows.setdefault(tuple(row[:8]), [0, 0])
        entry[0] += row[8]
        entry[1] += row[9]
