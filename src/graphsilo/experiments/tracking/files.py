"""Rounds as lines of a file: JSON, or CSV for a spreadsheet."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphsilo.experiments.observer import ClientRound, RunEnded, RunStarted, SeedEnded
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.records import tree_of
from graphsilo.experiments.storage.views import flatten
from graphsilo.experiments.tracking.base import Tracker
from graphsilo.spreadsheets import csv_text


class JSONLines(Tracker):
    """One JSON object a line for each event, such as ``{"event": "round", "run": ..., "label": "", "seed": 0, ...}``.

    A round has what result.json holds of it, and ``clients``.

    Args:
        path: File to write or to continue; None takes ``track.jsonl`` in the run's folder.
        clients: Whether what each client did is kept with every round.
    """

    kind = "jsonl"

    def __init__(self, path: str | Path | None = None, *, clients: bool = True):
        super().__init__(clients=clients)
        self._given = path

    def locate(self) -> None:
        self.path = self.place(self._given, "track.jsonl")

    def open(self, run: RunStarted) -> None:
        _end_line(self.path)
        facts = {name: getattr(run, name) for name in ("method", "data", "clients", "rule", "config", "fingerprint")}
        self._write(run.label, "started", resumed=run.resumed, **facts)

    def find_rounds(self, label: str, seed: int) -> Collection[int]:
        mine = (self.ids[label], label, seed)
        return {
            line.get("round", 0)
            for line in self._lines()
            if line["event"] in ("round", "set-up") and (line["run"], line["label"], line["seed"]) == mine
        }

    def keep(self, label: str, seed: int, number: int, row: Mapping[str, Any], clients: Sequence[ClientRound]) -> None:
        more = {"clients": [asdict(one) for one in clients]} if clients else {}
        self._write(label, "round" if number else "set-up", seed=seed, **row, **more)

    def note(self, text: str) -> None:
        self._write("", "warning", text=text)

    def close_seed(self, event: SeedEnded) -> None:
        result = {name: value for name, value in tree_of(event.result).items() if name not in ("rounds", "setup")}
        self._write(event.label, "seed", **result)

    def close(self, run: RunStarted, event: RunEnded) -> None:
        error = None if event.error is None else f"{type(event.error).__name__}: {event.error}"
        self._write(run.label, "ended", summary=event.result and event.result.summary, error=error)

    def _write(self, label: str, event: str, **more: Any) -> None:
        line = {"event": event, "run": self.ids.get(label, ""), "label": label, **more}
        with disk.open_to_append(self.path) as file:
            file.write(json.dumps(line, default=str).encode() + b"\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self.path.exists():
            with self.path.open(encoding="utf-8") as file:
                yield from map(json.loads, file)


class CSV(Tracker):
    """One line for each round, with what result.json holds of it under dotted names; round 0 is the set-up.

    Args:
        path: File to write or to continue; None takes ``track.csv`` in the run's folder.
        clients: Whether what each client did is kept with every round, as ``client.3.validation``.
    """

    kind = "csv"

    def __init__(self, path: str | Path | None = None, *, clients: bool = False):
        super().__init__(clients=clients)
        self._given = path

    def locate(self) -> None:
        self.path = self.place(self._given, "track.csv")

    def open(self, run: RunStarted) -> None:
        _end_line(self.path)
        self._columns = self._read()[0]

    def find_rounds(self, label: str, seed: int) -> Collection[int]:
        mine = (self.ids[label], label, str(seed))
        return {int(line["round"]) for line in self._read()[1] if (line["run"], line["label"], line["seed"]) == mine}

    def keep(self, label: str, seed: int, number: int, row: Mapping[str, Any], clients: Sequence[ClientRound]) -> None:
        each = {f"client.{one.client}": {**asdict(one), "client": None} for one in clients}
        line = {"run": self.ids[label], "label": label, "seed": seed, "round": number, **flatten({**row, **each})}
        line = {name: value for name, value in line.items() if value is not None}
        new = [name for name in line if name not in self._columns]
        if new:
            lines = self._read()[1]
            self._columns = [*self._columns, *new]
            disk.write_text(self.path, _csv(self._columns, lines, header=True))
        with disk.open_to_append(self.path) as file:
            file.write(_csv(self._columns, [line]).encode())

    def _read(self) -> tuple[list[str], list[dict[str, str]]]:
        if not self.path.exists():
            return [], []
        with self.path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or ()), list(reader)


def _csv(columns: Sequence[str], lines: Sequence[Mapping[str, Any]], *, header: bool = False) -> str:
    return csv_text([*([columns] if header else []), *([line.get(name) for name in columns] for line in lines)])


def _end_line(path: Path) -> None:
    """Take away the last line of a file where it was cut off, by a full disk or a machine that went down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
        disk.write_bytes(path, text[: text.rfind(b"\n") + 1])
