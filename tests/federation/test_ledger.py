"""Every byte is noted, by field and kind."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from graphsilo.federation.codec import encode
from graphsilo.federation.ledger import COLUMNS, Ledger
from graphsilo.federation.message import Message, Tensors, sends
from kit.messages import by_kind


class Note(Message):
    weights: Tensors = sends("model")
    rows: Tensor = sends("embedding", dtype=torch.float64)
    number: int = sends("counts")


def note() -> tuple[Ledger, int]:
    """Weights of 100 and 3 floats: 448 + 64 bytes; rows of 16 doubles: 128 bytes."""
    ledger = Ledger()
    encoded = encode(Note(weights={"a": torch.ones(100), "b": torch.ones(3)}, rows=torch.ones(16).double(), number=1))
    ledger.at("setup", 0)
    ledger.record(0, "down", "start", encoded)
    ledger.at("round", 1)
    for client in (0, 1):
        ledger.record(client, "up", "train", encoded)
        ledger.record(client, "up", "train", encoded)
    ledger.at("round", 2)
    ledger.record(1, "up", "train", encoded)
    return ledger, encoded.num_bytes - 640


def test_bytes_per_field_and_kind():
    ledger, header = note()
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in ledger.rows()]
    first = {row["field"]: row for row in rows if row["phase"] == "setup"}
    assert {name: row["bytes"] for name, row in first.items()} == {
        "weights": 512, "rows": 128, "number": 0, "(header)": header
    }  # fmt: skip
    assert {name: row["kind"] for name, row in first.items()} == {
        "weights": "model", "rows": "embedding", "number": "counts", "(header)": "control"
    }  # fmt: skip
    assert {row["direction"] for row in rows if row["phase"] == "setup"} == {"down"}
    assert {row["message"] for row in rows} == {"test_ledger.Note"}
    twice = [row for row in rows if row["round"] == 1 and row["field"] == "weights"]
    assert [(row["client"], row["bytes"], row["messages"]) for row in twice] == [(0, 1024, 2), (1, 1024, 2)]


def test_totals():
    ledger, header = note()
    one = 640 + header
    assert ledger.total("setup") == {"up": 0, "down": one}
    assert ledger.total("round") == {"up": 5 * one, "down": 0}
    assert ledger.total("round", 1) == {"up": 4 * one, "down": 0}
    assert ledger.total("round", 2) == {"up": one, "down": 0}
    assert ledger.total("evaluation") == {"up": 0, "down": 0}
    assert by_kind(ledger) == {"model": 5 * 512, "embedding": 5 * 128, "counts": 0, "control": 5 * header}
    assert by_kind(ledger, "down")["control"] == header
    assert sum(row[8] for row in ledger.rows()) == 6 * one


def test_rows_are_taken_once_and_stay_counted():
    ledger, header = note()
    before, total = ledger.rows(), ledger.total("round")
    pieces = Ledger()
    pieces.extend(msgspec.msgpack.decode(msgspec.msgpack.encode(ledger.take())))  # as a checkpoint's history keeps it
    assert pieces.rows() == ledger.rows() == before
    assert ledger.take() == pieces.take() == []
    assert pieces.total("round") == ledger.total("round") == total
    # A second message to a place that was taken: its own bytes are new, the row holds both.
    ledger.at("setup", 0)
    ledger.record(0, "down", "start", encode(Note(weights={}, rows=torch.ones(1).double(), number=1)))
    new = Ledger()
    new.extend(ledger.take())
    (one,) = [row for row in new.rows() if row[6] == "rows"]
    (both,) = [row for row in ledger.rows() if row[0] == "setup" and row[6] == "rows"]
    assert (one[8:], both[8:]) == ((64, 1), (192, 2))
    assert new.total("setup")["down"] == ledger.total("setup")["down"] - header - 640


def test_bytes_of_each_client_since_a_phase_began():
    ledger, _ = note()
    ledger.at("round", 3)
    one = encode(Note(weights={}, rows=torch.ones(1).double(), number=1))
    ledger.record(4, "down", "train", one)
    assert ledger.total("round", 3) == {"up": 0, "down": one.num_bytes}
    for client in (4, 2, 4):
        ledger.record(client, "up", "train", one)
    traffic = ledger.traffic()
    ledger.at("evaluation", 3)
    ledger.record(2, "up", "evaluate", one)
    assert traffic() == {
        4: {"up": 2 * one.num_bytes, "down": one.num_bytes}, 2: {"up": one.num_bytes, "down": 0}
    }  # fmt: skip
    assert ledger.traffic()() == {2: {"up": one.num_bytes, "down": 0}}


def test_rows_come_back_and_go_on():
    ledger, _ = note()
    again = Ledger()
    again.extend(ledger.take())
    assert again.total("round", 1) == ledger.total("round", 1)
    for one in (ledger, again):
        one.at("round", 3)
        one.record(5, "up", "train", encode(Note(weights={}, rows=torch.ones(1).double(), number=1)))
    assert again.rows() == ledger.rows()
    assert again.total("round") == ledger.total("round")
