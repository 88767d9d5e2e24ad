"""How many answers of evaluation leave a silo: as many as its owner allows, whatever happens to process and file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from graphsilo.errors import DisclosureError
from graphsilo.federation.evaluations import Evaluation, Evaluations
from graphsilo.federation.policy import DisclosurePolicy

POLICY = DisclosurePolicy(max_run_evaluations=2, max_total_evaluations=3)
IN_RUN = r"2 evaluations of the same data in a run \(policy.max_run_evaluations\), and this run has asked for so many"
IN_ALL = r"3 evaluations .* in all runs together \(policy.max_total_evaluations\), and this run and earlier ones have"


def one(run: str = "a", data: str = "d", answer: bytes = b"", seed: int = 0) -> Evaluation:
    return Evaluation.of(run, data, seed, "evaluate", 1, b"asked before", b"asked now", answer)


def test_of_a_run_and_of_all(tmp_path: Path) -> None:
    record = Evaluations(tmp_path / "sums" / "x.evaluated")
    record.count(one(answer=b"1"), POLICY)
    record.count(one(answer=b"2"), POLICY)
    with pytest.raises(DisclosureError, match=IN_RUN):
        record.count(one(answer=b"3"), POLICY)
    record.count(one("b"), POLICY)
    for run in ("b", "c"):
        with pytest.raises(DisclosureError, match=IN_ALL):
            record.count(one(run, answer=b"4"), POLICY)
    record.count(one("b"), POLICY)  # the same again
    record.count(one("c", data="other rows"), POLICY)
    assert record.path is not None
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert len(record.path.read_text().splitlines()) == 4


def test_any_part_of_a_question_makes_another() -> None:
    usual = ("a", "d", 0, "evaluate", 1, b"before", b"now", b"answer")
    others = ("b", "e", 1, "evaluate_bins", 2, b"x", b"y", b"z")
    keys = {Evaluation.of(*(*usual[:n], others[n], *usual[n + 1 :])).key for n in range(len(usual))}  # type: ignore[arg-type]
    assert len(keys | {Evaluation.of(*usual).key}) == len(usual) + 1


def test_processes_count_together(tmp_path: Path) -> None:
    first, second = (Evaluations(tmp_path / "x.evaluated") for _ in range(2))
    first.count(one(answer=b"1"), POLICY)
    second.count(one(answer=b"2"), POLICY)
    with pytest.raises(DisclosureError, match=IN_RUN):
        first.count(one(answer=b"3"), POLICY)


@pytest.mark.parametrize("harm", ["{", "[]\n", '{"data": "d", "run": "a"}\n', "\ufffd\n"])
def test_a_damaged_line_lets_nothing_leave(harm: str, tmp_path: Path) -> None:
    path = tmp_path / "x.evaluated"
    Evaluations(path).count(one(), POLICY)
    path.write_text(f"{harm}\n{path.read_text()}")
    with pytest.raises(DisclosureError, match=r"record of evaluations x.evaluated cannot be read .* must mend it"):
        Evaluations(path).count(one(), POLICY)


def test_a_line_that_was_cut_counts_nothing_as_nothing_left(tmp_path: Path) -> None:
    path = tmp_path / "x.evaluated"
    Evaluations(path).count(one(answer=b"1"), POLICY)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    Evaluations(path).count(one(answer=b"2"), POLICY)
    assert path.read_bytes().startswith(whole)
    assert len(path.read_bytes().splitlines()) == 2


def test_what_cannot_be_counted_does_not_leave(tmp_path: Path) -> None:
    (tmp_path / "sums").write_text("in the way, as a full disk is")
    with pytest.raises(DisclosureError, match="the record of evaluations cannot be"):
        Evaluations(tmp_path / "sums" / "x.evaluated").count(one(), POLICY)


def test_a_run_that_will_ask_for_too_many_is_refused_before_it_begins(tmp_path: Path) -> None:
    record = Evaluations(tmp_path / "x.evaluated")
    record.check_room(2, "a", "d", POLICY)
    with pytest.raises(DisclosureError, match=r"in a run .*, and this run may ask for up to 3 of them"):
        record.check_room(3, "a", "d", POLICY)
    record.count(one(answer=b"1"), POLICY)
    record.count(one(answer=b"2"), POLICY)
    record.check_room(2, "a", "d", POLICY)  # it goes on: what it was answered is part of what it asks for
    record.check_room(1, "b", "d", POLICY)
    with pytest.raises(DisclosureError, match=r"in all runs .*, and this run may ask for up to 2 after those before"):
        record.check_room(2, "b", "d", POLICY)
    record.check_room(2, "b", "other rows", POLICY)
