"""The silo's log: whole lines or none, in words, and nothing sent that is not logged."""

from __future__ import annotations

import json
import multiprocessing
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphsilo.errors import DisclosureError, RunError
from graphsilo.federation import journal as module
from graphsilo.federation.codec import encode
from graphsilo.federation.journal import Entry, FieldNote, Journal, format_size, read, summarise
from graphsilo.federation.message import DTYPES, Empty, Message, Tensors, sends
from graphsilo.federation.policy import DisclosurePolicy, Gate
from graphsilo.federation.release import Release


class TrainReply(Message):
    """Five tensors and a number."""

    weights: Tensors = sends("model")
    num_samples: float = sends("counts")


ANY = tuple(DTYPES.values())


class Mixed(Message):
    """One of everything."""

    rows: torch.Tensor = sends("embedding", dtype=ANY)
    counts: torch.Tensor = sends("counts", dtype=ANY)
    number: int = sends("counts")
    other: int = sends("counts")
    listed: list[torch.Tensor] = sends("gradient", dtype=ANY, default=())
    text: str = sends("control", default="")
    yes: bool = sends("score", default=True)
    table: dict[str, list[float]] | None = sends("score", default=None)
    maybe: torch.Tensor | None = sends("logits", default=None)


def reply() -> TrainReply:
    """5 x 18 400 float32 numbers are 368 000 bytes, and the names have two letters each."""
    return TrainReply(weights={f"w{index}": torch.zeros(100, 184) for index in range(5)}, num_samples=248.0)


@pytest.fixture
def log(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "deep" / "north.jsonl", sync=False)


def test_a_line_in_words(log):
    log.note_message("sent", "cora-3", "fedavg", 12, "train", encode(reply()))
    log.note_message("received", "cora-3", "fedavg", 12, "train", reply(), 368_640)
    log.note_message("sent", "cora-3", "fedavg", 0, "mend", Empty())
    log.note("refused", "cora-3", "fedavg", 13, "train", "it is too large.")
    assert [str(entry) for entry in read(log.path)] == [
        "round 12, to the coordinator: model weights (5 tensors, 368 kB), counts (the number 248)",
        "round 12, from the coordinator: 369 kB (model weights, counts)",
        "set-up, to the coordinator: that it is done",
        "round 13, refused ('train'): it is too large.",
    ]


def test_everything_in_words(log):
    message = Mixed(
        rows=torch.zeros(3, 4), counts=torch.tensor([1, 2], dtype=torch.int64), number=3, other=4,
        listed=[torch.zeros(2), torch.zeros(2)], text="tanh\x1b[2J", table={"auc": [0.5, 2.0]},
    )  # fmt: skip
    log.note_message("sent", "r", "m", 1, "evaluate", encode(message))
    (entry,) = read(log.path)
    assert str(entry) == (
        "round 1, evaluation, to the coordinator: embeddings of single nodes (1 tensor of 3 × 4, 48 B), "
        "counts (1 tensor of 2, 16 B; the numbers 3 and 4), gradients (2 tensors, 16 B), "
        "control (the text 'tanh\\x1b[2J'), scores (true; table, 19 B)"
    )


@pytest.mark.parametrize(
    "message",
    [
        reply(),
        Mixed(rows=torch.zeros(0, 4), counts=torch.ones(2, dtype=torch.bool), number=-1, other=2**40, text="é"),
        Mixed(
            rows=torch.zeros(2, dtype=torch.bfloat16), counts=torch.zeros(2, 2, dtype=torch.uint8), number=0, other=0,
            listed=[torch.zeros(3, dtype=torch.float64)], table={"a": [1.0], "b": []}, maybe=torch.zeros(1),
        ),
        TrainReply(weights={}, num_samples=0.5),
    ],
)  # fmt: skip
def test_bytes_and_message_are_described_alike(log, message):
    """What is read from the bytes on their way is what the message holds, and what the gate counted."""
    log.note_message("sent", "r", "m", 1, "train", encode(message))
    log.note_message("sent", "r", "m", 1, "train", message)
    first, second = read(log.path)
    assert first.fields == second.fields
    assert first.bytes == second.bytes == encode(message).num_bytes
    counted = Gate(DisclosurePolicy(kinds=tuple(module.SHORT)), [1]).check("train", message)
    assert sum(note.bytes for note in first.fields) == counted
    assert log.sent_bytes("r") == 2 * counted
    assert log.sent_bytes("another") == Journal(log.path.with_name("none")).sent_bytes("r") == 0


def test_long_and_odd_values(log):
    class Odd(Message):
        many: list[int] = sends("counts")
        score: float = sends("score", allow_nan=True)
        small: float = sends("counts")

    log.note_message(
        "sent", "r", "m", 1, "x", encode(Odd(many=list(range(100)), score=float("nan"), small=np.float64(0.125)))
    )
    text = log.path.read_text()
    assert "NaN" not in text
    (entry,) = read(log.path)
    assert [note.value for note in entry.fields] == [None, "nan", 0.125]
    assert str(entry).endswith("counts (the number 0.125; many, 800 B), scores (the text 'nan')")


def test_a_text_of_two_hundred_signs_is_the_longest_that_is_kept(log):
    for length in (198, 199):  # and two quotes
        log.note_message(
            "sent",
            "r",
            "m",
            1,
            "x",
            Mixed(rows=torch.zeros(1), counts=torch.zeros(1), number=1, other=1, text="a" * length),
        )
    kept = [{note.name: note.value for note in entry.fields}["text"] for entry in read(log.path)]
    assert kept == ["a" * 198, None]


def test_sizes():
    assert [format_size(each) for each in (0, 9, 999, 1000, 9949, 9950, 999_499, 999_500, 61_400_000, 3 * 10**12)] == [
        "0 B", "9 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "61 MB", "3.0 TB",
    ]  # fmt: skip


def test_sums_per_kind(log):
    log.note_message("sent", "a", "fedavg", 1, "train", reply(), 368_640)
    log.note_message("sent", "a", "fedavg", 2, "train", reply(), 368_640)
    log.note_message("sent", "b", "fedavg", 1, "train", reply(), 368_640)
    log.note_message("received", "a", "fedavg", 2, "train", reply(), 368_640)
    log.note("refused", "a", "fedavg", 3, "train", "no")
    found = summarise(entry for entry in read(log.path) if entry.run == "a")
    assert (found.messages, found.bytes, found.refused) == (2, 737_280, 1)
    assert {kind: (part.messages, part.bytes) for kind, part in found.kinds.items()} == {
        "model": (2, 736_020),
        "counts": (2, 16),
        "control": (2, 737_280 - 736_020 - 16),
    }
    assert summarise(read(log.path)).messages == 3
    assert summarise([]).kinds == {}


def test_the_file_is_the_owners(log):
    log.note_message("sent", "r", "m", 1, "train", reply(), 1)
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700
    line = json.loads(log.path.read_text())
    assert line["time"].endswith("Z")
    assert line["fields"][0] == {"name": "weights", "kind": "model", "bytes": 368_010, "tensors": 5}
    assert line["fields"][1] == {"name": "num_samples", "kind": "counts", "bytes": 8, "value": 248.0}


@pytest.mark.parametrize(("sync", "waited"), [(True, [1, 1, 2, 2]), (False, [0, 0, 0, 0])])
def test_what_leaves_waits_for_the_disk_and_nothing_else_does(tmp_path, monkeypatch, sync, waited):
    synced = []
    monkeypatch.setattr(module.os, "fdatasync", synced.append)
    log, seen = Journal(tmp_path / "north.jsonl", sync=sync), []
    for write in (
        lambda: log.note_message("sent", "cora-3", "fedavg", 1, "train", Empty()),
        lambda: log.note_message("received", "cora-3", "fedavg", 1, "train", Empty(), 10),
        lambda: log.note("failed", "cora-3", "fedavg", 1, "train", "no data"),
        lambda: log.note("refused", "cora-3", "fedavg", 1, "train", "it is too large."),
    ):
        write()
        seen.append(len(synced))
    assert seen == waited


def test_a_large_file_is_set_aside(tmp_path):
    log = Journal(tmp_path / "n[o]rth.jsonl", largest=1000, sync=False)
    for number in range(1, 41):
        log.note_message("sent", "r", "m", number, "train", reply(), 10)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files[0] == "n[o]rth.jsonl"
    assert len(files) > 10
    assert f"{files[0]}.{len(files) - 1}" in files
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert [entry.round for entry in read(log.path)] == list(range(1, 41))  # .10 comes after .9
    log.path.unlink()
    assert len(list(read(log.path))) < 40  # what was set aside is read without it, too


def test_a_line_that_was_cut(log):
    log.note_message("sent", "r", "m", 1, "train", reply(), 10)
    with log.path.open("ab") as file:
        file.write(b'{"time": "2026-')
    log.note_message("sent", "r", "m", 2, "train", reply(), 10)
    with log.path.open("ab") as file:
        file.write(b'[1]\n{"unknown": 1}\n{"fields": 3}\n\xff\n')
    assert [entry.way for entry in read(log.path)] == ["sent", "damaged", "sent", *["damaged"] * 4]
    assert str(Entry()) == "a line that cannot be read"
    found = summarise(read(log.path))
    assert (found.messages, found.damaged) == (2, 5)


def test_there_is_no_log(tmp_path):
    with pytest.raises(RunError, match=r"is not there. A silo begins it with the first message"):
        list(read(tmp_path / "none.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(RunError, match="not there"):
        summarise(read(tmp_path / "folder.jsonl"))


def test_a_full_disk_is_a_refusal():
    with pytest.raises(DisclosureError, match=r"cannot be written \(No space left on device\), and nothing is sent"):
        Journal("/dev/full").note_message("sent", "r", "m", 1, "train", reply(), 10)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DisclosureError, match="cannot be written"):
        Journal(tmp_path / "file" / "north.jsonl").note_message("sent", "r", "m", 1, "train", reply(), 10)


class Number(Message):
    """A number."""

    number: int = sends("counts")


def fork(function: Callable[..., None], *arguments: object) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def ended(process: multiprocessing.Process) -> bool:
    process.join()
    return process.exitcode == 0


def fill_the_disk(path: Path) -> None:
    """Write a line, run out of room in the middle of the second, write a third."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = Journal(path)
    log.note_message("sent", "r", "m", 1, "train", Number(number=1), 10)
    before = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 50, resource.RLIM_INFINITY))
    with pytest.raises(DisclosureError, match=r"cannot be written \(File too large\)"):
        log.note_message("sent", "r", "m", 2, "train", Number(number=2), 10)
    assert path.stat().st_size == before
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.note_message("sent", "r", "m", 3, "train", Number(number=3), 10)


def test_a_line_is_written_whole_or_not_at_all(tmp_path):
    """The disk is full in the middle of a line: what was written of it is taken back."""
    path = tmp_path / "north.jsonl"
    assert ended(fork(fill_the_disk, path))
    assert [entry.round for entry in read(path)] == [1, 3]


def write_many(path: Path, name: str) -> None:
    log = Journal(path, largest=3000, sync=False)
    for number in range(200):
        log.note_message("sent", name, "m", number, "train", Number(number=number), 10)


def test_several_processes_write_one_log(tmp_path):
    """Lines neither mix nor get lost, even where files are set aside all the time."""
    path = tmp_path / "north.jsonl"
    writers = [fork(write_many, path, name) for name in ("a", "b", "c")]
    assert [ended(writer) for writer in writers] == [True] * 3
    entries = list(read(path))
    assert {entry.way for entry in entries} == {"sent"}
    for name in ("a", "b", "c"):
        assert [entry.round for entry in entries if entry.run == name] == list(range(200))
    assert len(list(tmp_path.iterdir())) > 10
    assert entries[0].fields == (FieldNote("number", "counts", 8, value=0),)


def test_reading_needs_no_torch():
    program = "import sys, graphsilo.federation.journal, graphsilo.federation.policy; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_releases_with_noise_tell_is_counted_from_the_log(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    assert journal.reconcile().mu == 0.0
    for way, mu in (("sent", 0.6), ("sent", 0.8), ("refused", 5.0)):
        message = Release(numbers=torch.zeros(3, dtype=torch.int64), clients=1, mu=mu, honest=1)
        journal.note_message(way, "run", "fedridge", 0, "noisy_statistics", message)
    assert journal.reconcile().mu == pytest.approx(1.0)


def test_a_release_that_does_not_say_in_a_number_what_it_tells_stops_the_count():
    for value in ("x", -1.0, [1.0]):
        entry = Entry(way="sent", fields=(FieldNote("mu", "control", 9, value=value),))
        with pytest.raises(RunError, match="is no number from 0 on"):
            module.compose_mu([entry])
