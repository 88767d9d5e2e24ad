"""The ledger: every byte that crossed a silo's boundary, by field and kind of disclosure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from graphsilo.federation.codec import Encoded

Direction: TypeAlias = Literal["up", "down"]
Phase: TypeAlias = Literal["setup", "round", "evaluation"]

COLUMNS = ("phase", "round", "client", "direction", "handler", "message", "field", "kind", "bytes", "messages")


class Ledger:
    """Bytes and messages per (phase, round, client, direction, handler, message, field).

    Entries with the same key add up, so that its size does not depend on how often a method talks within a round.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple, list[int]] = {}
        self.phase: Phase = "setup"
        self.round = 0
        self._totals: dict[tuple[str, int, str], int] = {}

    def at(self, phase: Phase, round: int) -> None:
        """Say what happens now."""
        self.phase, self.round = phase, round

    def record(self, client: int, direction: Direction, handler: str, message: Encoded) -> None:
        """Note one message to or from a client. The header counts as ``control``."""
        payload = 0
        rows = self._rows
        for field, kind, size in message.field_bytes:
            payload += size
            key = (self.phase, self.round, client, direction, handler, message.name, field, kind)
            row = rows.get(key)
            if row is None:
                rows[key] = [size, 1]
            else:
                row[0] += size
                row[1] += 1
        size = message.num_bytes
        key = (self.phase, self.round, client, direction, handler, message.name, "(header)", "control")
        row = rows.get(key)
        if row is None:
            rows[key] = [size - payload, 1]
        else:
            row[0] += size - payload
            row[1] += 1
        total = (self.phase, self.round, direction)
        self._totals[total] = self._totals.get(total, 0) + size

    def total(self, phase: Phase, round: int | None = None) -> dict[str, int]:
        """``{"up": bytes, "down": bytes}`` of one phase (of one round)."""
        result = {"up": 0, "down": 0}
        for (where, number, direction), size in self._totals.items():
            if where == phase and (round is None or number == round):
                result[direction] += size
        return result

    def by_kind(self, direction: Direction = "up") -> dict[str, int]:
        """Bytes per kind of disclosure over the whole run."""
        result: dict[str, int] = {}
        for key, (size, _) in self._rows.items():
            if key[3] == direction:
                result[key[7]] = result.get(key[7], 0) + size
        return result

    def rows(self) -> list[tuple]:
        """One tuple per entry, in the order of ``COLUMNS``."""
        return [(*key, *value) for key, value in self._rows.items()]

    def state(self) -> dict[str, Any]:
        return {"rows": [list(row) for row in self.rows()]}

    def load_state(self, state: dict[str, Any]) -> None:
        self._rows, self._totals = {}, {}
        self.extend(tuple(row) for row in state["rows"])

    def extend(self, rows: Iterable[tuple]) -> None:
        for row in rows:
            key, (size, count) = tuple(row[:8]), row[8:]
            entry = self._rows.setdefault(key, [0, 0])
            entry[0] += size
            entry[1] += count
            total = (key[0], key[1], key[3])
            self._totals[total] = self._totals.get(total, 0) + size
