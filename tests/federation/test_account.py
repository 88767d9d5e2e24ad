"""What has left a silo in all: no damaged, moved or deleted file lowers it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from graphsilo.errors import DisclosureError
from graphsilo.federation.account import Account, Spent
from graphsilo.federation.journal import Journal
from graphsilo.federation.noise import epsilon_of
from graphsilo.federation.policy import DisclosurePolicy
from graphsilo.federation.release import Release


def journal(folder: Path, name: str = "one", **options: Any) -> Journal:
    return Journal(folder / name / "x.jsonl", sync=False, account=Account(folder / "sums" / "x.account"), **options)


def send(log: Journal, mu: float) -> None:
    """Three numbers of 8 bytes, and two."""
    numbers = torch.zeros(3, dtype=torch.int64)
    log.note_message("sent", "run", "fedridge", 0, "release", Release(numbers=numbers, clients=1, mu=mu, honest=1))


def test_releases_add_up_as_squares(tmp_path: Path) -> None:
    log = journal(tmp_path)
    assert log.reconcile() == Spent()
    send(log, 3.0)
    send(log, 4.0)
    assert log.reconcile().mu == 5.0
    assert log.account is not None
    assert stat.S_IMODE(log.account.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("harm", ["damage", "delete", "other kit"])
def test_no_harm_to_the_log_lowers_it(harm: str, tmp_path: Path) -> None:
    log = journal(tmp_path)
    send(log, 3.0)
    if harm == "damage":
        log.path.write_bytes(log.path.read_bytes().replace(b'"way": "sent"', b'"way": "snet"'))
    elif harm == "delete":
        log.path.unlink()
    else:  # another federation's log of the same silo
        log = journal(tmp_path, "two")
    assert log.reconcile().mu == 3.0
    send(log, 4.0)
    assert log.reconcile().mu == 5.0


def test_a_deleted_account_is_made_of_the_log_where_all_of_it_can_be_read(tmp_path: Path) -> None:
    log = journal(tmp_path)
    send(log, 3.0)
    assert log.account is not None
    log.account.path.unlink()
    assert log.reconcile().mu == 3.0
    log.account.path.unlink()
    with log.path.open("ab") as file:
        file.write(b"{cut\n")
    for refused in (log.reconcile, lambda: send(log, 4.0)):
        with pytest.raises(DisclosureError, match=r"1 line of the silo's log .* --repair SILO\.yaml"):
            refused()
    assert log.repair().mu == 3.0
    send(log, 4.0)
    assert log.reconcile().mu == 5.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bytes": 1}', '{"bytes": 1, "squared_mu": -1}'])
def test_an_account_that_cannot_be_read_lets_nothing_leave(text: str, tmp_path: Path) -> None:
    log = journal(tmp_path)
    send(log, 3.0)
    assert log.account is not None
    log.account.path.write_text(text)
    lines = log.path.read_bytes()
    for refused in (log.reconcile, lambda: send(log, 4.0)):
        with pytest.raises(DisclosureError, match=r"the silo's account .* cannot be read"):
            refused()
    assert log.path.read_bytes() == lines
    assert log.repair().mu == 3.0


def test_bytes_are_counted_where_somebody_bounds_them(tmp_path: Path) -> None:
    send(journal(tmp_path), 3.0)
    account = Account(tmp_path / "sums" / "x.account")
    assert account.read() == Spent(9.0, 0)
    log = journal(tmp_path, policy=DisclosurePolicy(max_total_bytes=10**6))
    before = log.reconcile().bytes  # of the lines so far, which the account takes over
    assert before > 24
    assert account.read() == Spent(9.0, before)
    send(log, 4.0)
    log.path.unlink()
    assert log.reconcile() == Spent(25.0, 2 * before)


@pytest.mark.parametrize(
    ("bound", "words"),
    [({"max_epsilon": epsilon_of(5.0, 1e-5)}, r"policy\.max_epsilon"), ({"max_total_bytes": 100}, "100")],
)
def test_federations_that_are_open_at_once_have_one_bound(bound: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Each began when nothing had left: 3 and 4 are 5 together, two messages of 48 bytes less than 100."""
    logs = [journal(tmp_path, name, policy=DisclosurePolicy(**bound)) for name in ("one", "two", "three")]
    for log, mu in zip(logs, (3.0, 4.0), strict=False):
        send(log, mu)
    before = logs[0].reconcile()
    with pytest.raises(DisclosureError, match=words):
        send(logs[2], 0.5)
    assert not logs[2].path.exists()
    assert logs[0].reconcile() == before
    assert before.mu == 5.0


def test_what_is_masked_anew_passed_the_bound_before(tmp_path: Path) -> None:
    log = journal(tmp_path, policy=DisclosurePolicy(max_epsilon=epsilon_of(3.0, 1e-5)))
    numbers = torch.zeros(3, dtype=torch.int64)
    for again in (False, True):
        answer = Release(numbers=numbers, clients=1, mu=3.0, honest=1)
        log.note_message("sent", "run", "fedridge", 0, "release", answer, again=again)


def test_it_is_counted_before_the_message_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stops in between has counted too much, not too little."""
    log = journal(tmp_path)
    monkeypatch.setattr(log, "_write", lambda *arguments: pytest.fail("stopped"))
    with pytest.raises(pytest.fail.Exception):
        send(log, 3.0)
    assert json.loads((tmp_path / "sums" / "x.account").read_text())["squared_mu"] == 9.0


def test_where_nothing_can_be_written_nothing_leaves(tmp_path: Path) -> None:
    (tmp_path / "sums").write_text("in the way of the folder")
    log = journal(tmp_path)
    with pytest.raises(DisclosureError, match=r"the silo's account .* cannot be written \("):
        send(log, 3.0)
    assert not log.path.exists()
