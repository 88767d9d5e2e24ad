"""Rounds are appended, never written anew, and come back as they were."""

from __future__ import annotations

import pytest

from graphsilo.errors import RunError
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.history import History


def rows(number: int) -> dict[str, list]:
    return {"ledger": [("round", number, 0, 8)], "rounds": [{"round": number, "test": {"accuracy": number / 10}}]}


def test_rows_come_back_in_order(tmp_path):
    history = History(tmp_path / "deep" / "seed-0.history")
    for number in (1, 2):
        history.append(rows(number))
    found = History(history.path).read(history.mark)
    assert found == {
        "ledger": [["round", 1, 0, 8], ["round", 2, 0, 8]],
        "rounds": [{"round": 1, "test": {"accuracy": 0.1}}, {"round": 2, "test": {"accuracy": 0.2}}],
    }


def test_what_no_checkpoint_knows_of_is_cut_off(tmp_path):
    first = History(tmp_path / "h")
    first.append(rows(1))
    known = first.mark
    first.append(rows(2))  # and here the process was killed, before its checkpoint
    again = History(tmp_path / "h")
    assert len(again.read(known)["rounds"]) == 1
    again.append(rows(3))
    assert [row["round"] for row in History(tmp_path / "h").read(again.mark)["rounds"]] == [1, 3]
    new = History(tmp_path / "h")  # a run that begins anew
    new.append(rows(4))
    assert [row["round"] for row in History(tmp_path / "h").read(new.mark)["rounds"]] == [4]


@pytest.mark.parametrize("spoil", ["gone", "short", "changed"])
def test_damage_is_told(tmp_path, spoil):
    history = History(tmp_path / "h")
    history.append(rows(1))
    data = bytearray(history.path.read_bytes())
    if spoil == "gone":
        history.path.unlink()
    else:
        data[-1] ^= spoil == "changed"
        history.path.write_bytes(data[: len(data) - (spoil == "short")])
    with pytest.raises(RunError, match=r"h, which holds the rounds before a checkpoint, is missing or damaged"):
        History(tmp_path / "h").read(history.mark)


def test_a_checkpoint_does_not_grow_with_the_rounds(small, tmp_path, monkeypatch):
    """Bytes written per checkpoint: the same after 4 rounds and after 40, where each used to hold all before it."""
    from graphsilo.experiments.storage import checkpoint

    written, appended = [], []
    write, append = checkpoint.write_bytes, History.append
    monkeypatch.setattr(checkpoint, "write_bytes", lambda path, data: (written.append(len(data)), write(path, data))[1])

    def count(self, part):
        before = self.mark["bytes"]
        append(self, part)
        appended.append(self.mark["bytes"] - before)

    monkeypatch.setattr(History, "append", count)
    tree = run(small(method__rounds=42, run__checkpoint_every=2), out=tmp_path / "run").tree
    assert len(written) == 21  # rounds 2, 4, ... 40, and the finished seed
    assert abs(written[1] - written[19]) <= 128  # numbers of more digits
    assert abs(appended[2] - appended[19]) <= 128
    (seed,) = tree["seeds"]
    spent = [row.get("checkpoint_cpu_seconds", 0.0) for row in seed["rounds"]]
    assert [round for round, cpu in enumerate(spent, 1) if cpu > 0] == list(range(2, 41, 2))
    assert seed["checkpoint_cpu_seconds"] == pytest.approx(sum(spent))


def test_how_often_a_checkpoint_is_due(small, tmp_path):
    """By number where one is given; else when they would take a twentieth of the time since the last one."""
    from graphsilo.experiments.seed import LEAST_SECONDS, SeedRun

    def due(every, since, took, number=6):
        one = SeedRun.__new__(SeedRun)
        one.config = small(run__checkpoint_every=every)
        one._since_save, one._save_seconds = since, took
        return one._is_due(number)

    assert [due(3, 0.0, 9.0, number) for number in (5, 6)] == [False, True]
    assert not due(0, 1e9, 0.0)
    assert [due(None, seconds, 0.2) for seconds in (3.9, 4.1)] == [False, True]
    assert [due(None, 19 * LEAST_SECONDS, took=0.0), due(None, 21 * LEAST_SECONDS, took=0.0)] == [False, True]
