"""``graphsilo silo log`` prints what left a silo."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphsilo.data.silos.own import read_silo_file
from graphsilo.federation.account import Account, Spent
from graphsilo.federation.codec import encode
from graphsilo.federation.journal import Journal
from graphsilo.methods.fedavg import TrainReply, TrainRequest
from kit.site_tables import write_tables


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two runs: 40 bytes of weights and a number in each round; the second is refused in round 2."""
    path = tmp_path / "north.jsonl"
    journal = Journal(path, sync=False)
    weights = {"w": torch.zeros(9)}
    for run, rounds in (("first", 3), ("second", 1)):
        for number in range(1, rounds + 1):
            journal.note_message("received", run, "fedavg", number, "train", TrainRequest(weights=weights), 100)
            journal.note_message(
                "sent", run, "fedavg", number, "train", encode(TrainReply(weights=weights, num_samples=7.0))
            )
    journal.note("refused", "second", "fedavg", 2, "train", "it is too large.")
    return path


def lines(text: str) -> list[str]:
    """Without the times, which are 19 characters behind two blanks."""
    return [line[23:] if line.startswith("  2") else line for line in text.splitlines()]


def test_every_message_and_the_sums(call, log):
    code, out, err = call("silo", "log", log)
    assert (code, err) == (0, "")
    each = "to the coordinator: model weights (1 tensor, 37 B), counts (the number 7)"
    assert lines(out)[:9] == [
        "run first (fedavg):",
        *[f"round {number}, {each}" for number in (1, 2, 3)],
        "",
        "run second (fedavg):",
        f"round 1, {each}",
        "round 2, refused ('train'): it is too large.",
        "",
    ]
    sums = [line.split() for line in lines(out)[9:]]
    assert sums[0] == ["what", "left", "the", "silo", "messages", "bytes"]
    assert ["model", "weights", "4", "148", "B"] in sums
    assert ["counts", "4", "32", "B"] in sums
    assert sums[-2][:2] == ["all", "4"]
    assert lines(out)[-1] == "1 message was not sent, because the silo refused; its lines say why."


def test_part_of_it(call, log):
    _, out, _ = call("silo", "log", log, "--run", "first", "--last", "2")
    assert [line[:7] for line in lines(out)[:4]] == ["run fir", "round 2", "round 3", ""]
    _, out, _ = call("silo", "log", log, "--received", "--run", "second")
    assert "round 1, from the coordinator: 100 B (model weights)" in lines(out)
    _, out, _ = call("silo", "log", log, "--summary")
    assert lines(out)[0].startswith("what left the silo")


def test_nothing_but_refusals(call, tmp_path):
    path = tmp_path / "south.jsonl"
    for number in (1, 2):
        Journal(path, sync=False).note("refused", "r", "fedlog", number, "train\x1b[2J", "no.")
    with path.open("a") as file:
        file.write("{")
    _, out, _ = call("silo", "log", path)
    assert "\x1b" not in out
    assert lines(out)[-3:] == [
        "Nothing has left the silo.",
        "2 messages were not sent, because the silo refused; its lines say why.",
        "1 line of the log cannot be read, as after a loss of power.",
    ]


def test_a_log_from_elsewhere_stays_text(call, log):
    log.write_text(log.read_text().replace('"model"', '"model\\u001b[2J"'))
    _, out, _ = call("silo", "log", log)
    assert "\x1b" not in out
    assert "model?[2J" in out


def test_what_is_not_there(call, log, tmp_path):
    code, _, err = call("silo", "log", tmp_path / "none.jsonl")
    assert code == 1
    assert "is not there. A silo begins it with the first message that it sends." in err
    code, _, err = call("silo", "log", log, "--run", "firts")
    assert code == 1
    assert "holds nothing of a run 'firts'; did you mean 'first'?" in err


def test_what_a_coordinator_calls_a_run_is_no_line_of_its_own(call, tmp_path):
    path = tmp_path / "north.jsonl"
    Journal(path, sync=False).note(
        "failed", "x\x1b[2J\nwhat left the silo", "fedavg\n", 0, "open", "no\nrun first (fedavg):"
    )
    _, out, _ = call("silo", "log", path)
    assert "\x1b" not in out
    assert lines(out)[:3] == [
        "run x?[2J?what left the silo (fedavg?):",
        "set-up, failed ('open'): no?run first (fedavg):",
        "",
    ]


def test_a_repaired_account_is_that_of_the_data_whatever_the_silo_is_called(call, log, tmp_path):
    file = write_tables(tmp_path / "data", "north", 0)
    account = Account(read_silo_file(file).record("account"))
    file.write_text(file.read_text().replace("name: north", "name: clinic"))
    code, out, _ = call("silo", "log", log, "--repair", file)
    assert code == 0
    assert str(account.path) in out.replace("\n", "")
    assert account.read() == Spent(0.0, 4 * 45)
