"""The files of a finished run: tables of its rounds and of its ledger, and ``result.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.records import RunRecord, tree_of
from graphsilo.experiments.storage.views import flatten
from graphsilo.federation.ledger import COLUMNS, Ledger, Rows

LEDGER_ROWS = 1 << 18
"""Rows of the ledger after which a part of its table is written: what is held of it at once."""


def write(folder: Path, record: RunRecord, ledgers: list[tuple[int, Ledger]]) -> None:
    """The tables, then ``result.json``: where it stands, the run is complete."""
    flat = [{"seed": seed.seed, **flatten(tree_of(row))} for seed in record.seeds for row in seed.rounds]
    names = dict.fromkeys(["seed", *(name for row in flat for name in row)])
    disk.write_parquet(folder / "rounds.parquet", [{name: [row.get(name) for row in flat] for name in names}])
    disk.write_parquet(folder / "ledger.parquet", _ledger_parts(ledgers))
    write_record(folder, record)


def _ledger_parts(ledgers: Iterable[tuple[int, Ledger]]) -> Iterator[dict[str, Any]]:
    """The ledgers' rows, some hundred thousand at a time."""
    waiting: list[tuple[int, Rows]] = []
    count = 0
    for seed, ledger in ledgers:
        for rows in ledger.tables():
            waiting.append((seed, rows))
            count += len(rows.clients)
            if count >= LEDGER_ROWS:
                yield _ledger_columns(waiting)
                waiting, count = [], 0
    if waiting:
        yield _ledger_columns(waiting)


def _ledger_columns(rows: Sequence[tuple[int, Rows]]) -> dict[str, Any]:
    counts = [len(each.clients) for _, each in rows]
    own = {"client": "clients", "bytes": "bytes", "messages": "messages"}
    columns: dict[str, Any] = {"seed": disk.Repeated([seed for seed, _ in rows], counts)}
    for name in COLUMNS:
        if name in own:
            columns[name] = np.concatenate([getattr(each, own[name]) for _, each in rows]).astype(np.int64)
        else:
            columns[name] = disk.Repeated([getattr(each, name) for _, each in rows], counts)
    return columns


def write_record(folder: Path, record: RunRecord) -> None:
    """``result.json`` alone, in place of the one that is there."""
    disk.write_json(folder / "result.json", tree_of(record))
