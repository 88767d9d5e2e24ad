"""From trials to a plan: the arithmetic on numbers worked by hand, and plans against the runs that they are of."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow.parquet as pq
import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments import runner
from graphsilo.experiments.config import load_config
from graphsilo.planning import Connection, plan
from graphsilo.planning.estimate import Trial, plan_of
from graphsilo.runtime.machine import Memory
from kit.silos import CLASSES, write_tables

PLENTY = Memory(16 * 10**9, 8 * 10**9)


def step(phase: str, number: int, clients: int, each: float, server: float, up: int, down: int) -> dict[str, Any]:
    """A step in which every client works for so many seconds and moves so many bytes."""
    cost = {
        "cpu": server + clients * each, "server": server, "wall": server + each, "sites": 0.0, "up": clients * up,
        "down": clients * down, "max_up": up, "max_down": down,
    }  # fmt: skip
    memory = {"now": 300_000_000, "peak": 350_000_000}
    moved = {str(client): (up, down) for client in range(clients)}
    return {"event": "step", "phase": phase, "round": number, "cost": cost, "moved": moved, "lasted": 0.0, **memory}


def taking_turns(drawn: list[list[int]], *, rounds: int) -> Trial:
    """Three clients without set-up; in each round some of them send 100 bytes each and get 200."""
    found = trial(3, len(drawn), rounds=rounds)
    del found.steps[0]
    for clients, one in zip(drawn, found.steps[::2], strict=True):
        one["moved"] = {str(client): (100, 200) for client in clients}
        one["cost"] |= {"up": 100 * len(clients), "down": 200 * len(clients)}
    return found


def trial(clients: int, done: int, *, setup: float = 4, rounds: int = 20, workers: int = 1) -> Trial:
    """Set-up of so many seconds per client, then rounds of a second per client and two of the server."""
    silos = [{"client": k, "bytes": 1000, "work": 10 * (k + 1), "place": k % workers} for k in range(clients)]
    loaded = {
        "cpu": 3.0, "now": 250_000_000, "peak": 260_000_000, "silos": silos, "rounds": rounds, "rule": "random",
        "data": {"name": "data"}, "method": {"name": "m", "title": "M"},
    }  # fmt: skip
    events: dict[str, Any] = {"started": {"cpu": 2.0, "now": 200_000_000}, "loaded": loaded}
    found = Trial(events)
    if done:
        found.steps.append(step("setup", 0, clients, setup, 0.0, 50, 5))
        for number in range(1, done + 1):
            found.steps.append(step("round", number, clients, 1.0, 2.0, 100, 200))
            found.steps.append(step("evaluation", number, clients, 0.1, 0.2, 8, 9))
    return found


def test_rounds_of_two_kinds_count_as_often_as_the_run_has_them(small):
    """Three rounds of 5 s for the first eight, then two of 7 s that move nothing for the other twelve."""
    known = trial(3, 5)
    known.events["turned"] = {"done": 3, "before": 8}
    for measured in [each for each in known.steps if each["phase"] == "round"][3:]:
        measured["moved"] = {}
        measured["cost"] |= {"cpu": 7.0, "up": 0, "down": 0}
    found = plan_of(small(run__seeds=[0]), known, machine=PLENTY)
    assert found.seed.cpu == pytest.approx(12 + 8 * 5 + 12 * 7 + 20 * 0.5)
    assert found.round.cpu == pytest.approx((8 * 5 + 12 * 7) / 20)
    assert (found.seed.up, found.seed.down) == (150 + 8 * 300, 15 + 8 * 600)
    assert found.seed.max_up == 50 + 8 * 100
    assert not found.exact


def test_a_row_that_no_seed_changes_counts_once(small):
    """5 s of what followed training were its; 2 s are results and page. Rows that were not made are named."""
    known = trial(3, 5)
    plain = plan_of(small(run__seeds=[0, 1]), known, machine=PLENTY)
    known.events["trained"] = {"cpu": 3.0, "now": 0, "peak": 0, "sizes": {}}  # nothing beside data and steps
    known.events["finished"] = {"cpu": 10.0, "sizes": {}}
    known.rows["trees_alone"] = 5.0
    found = plan_of(small(run__seeds=[0, 1], run__references=["trees_alone", "fedavg"]), known, machine=PLENTY)
    assert (found.rows.cpu, found.finish.cpu, found.about["rows"]) == (5.0, 2.0, ["trees_alone"])
    assert found.run.cpu == pytest.approx(plain.run.cpu + 5 + 2)
    (note,) = [each.text for each in found.findings if "reference rows" in each.text]
    assert note.startswith("the reference rows (fedavg) are runs of their own")


@pytest.mark.slow
def test_a_plan_of_tables_counts_trees_alone(tmp_path):
    path = write_tables(tmp_path, "north", seed=1, labels=CLASSES)
    config = load_config({"data": str(path), "partition": {"clients": 2}, "method": "fedridge"})
    found = plan(config, seconds=1)
    assert found.about["rows"] == ["trees_alone"]
    assert 0 < found.rows.cpu < found.run.cpu
    assert plan(config.with_settings({"run.references": []}), seconds=1).about["rows"] == []


def test_a_measured_trial_is_carried_over_to_all_rounds_and_seeds(small):
    config = small(run__seeds=[0, 1], evaluation__every=2)
    known = trial(3, 5)
    found = plan_of(config, known, machine=PLENTY)
    assert (found.setup.cpu, found.round.cpu, found.evaluation.cpu) == (12, 5, pytest.approx(0.5))
    assert found.seed.cpu == pytest.approx(12 + 20 * 5 + 10 * 0.5)
    assert found.run.cpu == pytest.approx(3 + 2 * found.seed.cpu)
    assert found.run.wall == found.run.cpu
    assert (found.setup.up, found.round.up, found.evaluation.down) == (150, 300, 27)
    assert (found.seed.up, found.seed.down) == (150 + 20 * 300, 15 + 20 * 600)
    assert (found.is_whole, found.is_steady) == (True, True)
    assert found.run.max_up == 2 * (50 + 20 * 100 + 10 * 8)
    assert not found.findings
    assert not found.is_refused
    # 50 MB more than before the trial, and 50 MB that steps take as they go on
    assert found.processes[0].bytes == 350_000_000
    # 39.5 s are those of the steps; making the clients took half a second, the results two
    known.events["trained"] = {"cpu": 3 + 39.5 + 0.5, "now": 1, "peak": 1, "sizes": {}}
    known.events["finished"] = {"cpu": 45.0, "sizes": {}}
    assert plan_of(config, known, machine=PLENTY).run.cpu == pytest.approx(3 + 2 * found.seed.cpu + 2 * 0.5 + 2)


@pytest.mark.slow
def test_the_client_that_moves_most_is_one_and_the_same(small):
    """Of one client in each of four rounds, 1 sends twice; scored are all of them, in every round."""
    found = plan_of(small(), taking_turns([[0], [1], [2], [1]], rounds=4), machine=PLENTY)
    assert (found.seed.up, found.seed.max_up, found.seed.max_down) == (400, 200, 400)
    assert (found.run.max_up, found.run.max_down) == (200 + 4 * 8, 400 + 4 * 9)
    assert (found.round.max_up, found.exact) == (100, ("seed", "seed_max", "run", "run_max"))


def test_turns_that_were_not_seen_are_taken_to_be_as_many_for_each(small):
    """Client 1 was asked in two of four rounds; in each of the other sixteen, a third of 100 bytes for each."""
    found = plan_of(small(), taking_turns([[0], [1], [2], [1]], rounds=20), machine=PLENTY)
    assert found.seed.up == 20 * 100
    assert found.seed.max_up == pytest.approx(200 + 16 * 100 / 3)
    assert found.exact == ("seed", "run")
    # 2 was not asked yet: it is taken to send what the others do
    found = plan_of(small(), taking_turns([[0], [1], [0], [1]], rounds=20), machine=PLENTY)
    assert found.seed.max_down == pytest.approx(400 + 16 * 200 / 3)


def test_bytes_of_other_seeds_are_exact_where_nothing_is_drawn(small):
    seeds = small(run__seeds=[0, 1])
    everyone = [[0, 1, 2]] * 4
    assert plan_of(seeds, taking_turns(everyone, rounds=4), machine=PLENTY).exact == (
        "seed", "seed_max", "run", "run_max",
    )  # fmt: skip
    # other seeds draw other clients, which send as much in all
    turns = taking_turns([[0], [1], [2], [1]], rounds=4)
    assert plan_of(seeds, turns, machine=PLENTY).exact == ("seed", "seed_max", "run")
    # what differs from round to round may differ from seed to seed; so may set-up
    vary = taking_turns([[0, 1, 2], [0, 1], [0, 1, 2], [0, 1]], rounds=4)
    assert plan_of(seeds, vary, machine=PLENTY).exact == ("seed", "seed_max")
    assert plan_of(seeds, trial(3, 4, rounds=4), machine=PLENTY).exact == ("seed", "seed_max")
    late = taking_turns([[0]], rounds=4)
    assert plan_of(small(), late, machine=PLENTY).exact == ()


def test_evaluations_that_vary_are_exact_where_the_run_has_those_that_were_seen(small):
    known = taking_turns([[0, 1, 2]] * 4, rounds=4)
    known.steps[3]["moved"]["0"] = (9, 9)  # in the second evaluation
    assert plan_of(small(), known, machine=PLENTY).exact == ("seed", "seed_max", "run", "run_max")
    assert plan_of(small(evaluation__every=2), known, machine=PLENTY).exact == ("seed", "seed_max")


def test_memory_with_workers(small):
    known = trial(3, 5, workers=2)  # clients 0 and 2 beside the server
    first, worker = plan_of(small(run__workers=2), known, machine=PLENTY).processes
    assert (first.name, worker.name, worker.count) == ("coordinator", "worker", 1)
    assert first.bytes == 350_000_000  # no more than in one process
    assert worker.bytes == int(200_000_000 + (3000 + 50_000_000) * 20 / 60) + 50_000_000


def test_too_little_memory_is_refused_and_scarce_memory_warned_of(small):
    known = trial(3, 5)
    refused = plan_of(small(), known, machine=Memory(200_000_000, 100_000_000))
    assert refused.is_refused
    assert "0.3 GB would be needed, and this machine has 0.2 GB" in refused.findings[0].text
    scarce = plan_of(small(), known, machine=Memory(600_000_000, 300_000_000))
    assert [finding.level for finding in scarce.findings] == ["warning"]
    out = trial(3, 0)
    out.out_of_memory, out.peak = True, 9 * 10**9
    first = plan_of(small(), out, machine=PLENTY).findings[0]
    assert (first.level, "more than 9.0 GB" in first.text) == ("refused", True)


def test_no_room_on_the_disk_is_refused(small, tmp_path, monkeypatch):
    known = trial(3, 5)
    known.checkpoints = [{"round": number, "bytes": 1000 + number, "spent": 0.5} for number in (1, 3)]
    sizes = {"models/seed0/a": 100, "result.json": 10, "report.html": 7}
    known.events["finished"] = {"cpu": 0.0, "sizes": sizes}
    known.events["trained"] = {"cpu": 0.0, "now": 1, "peak": 1, "sizes": {}}
    found = plan_of(small(), known, machine=PLENTY, out=tmp_path)
    assert found.disk == {"models": 100, "results": 10 * 4 + 7, "kept": 147, "checkpoint": 1003, "peak": 147 + 2006}
    assert found.run.cpu == pytest.approx(3 + found.seed.cpu + 0.5 * 14)  # after set-up, and 13: a twentieth of 122 s
    monkeypatch.setattr("graphsilo.planning.estimate.free_disk", lambda folder: 100)
    assert plan_of(small(), known, machine=PLENTY, out=tmp_path).findings[0].text.startswith("disk: up to 0.0 MB")


def test_what_could_not_be_tried_is_said_to_be_at_least(small):
    late = trial(4, 0, rounds=9)
    late.steps = [{**step("setup", 0, 2, 1.5, 0.0, 5, 5), "event": "partial"}]
    found = plan_of(small(), late, machine=PLENTY)
    assert (found.setup.cpu, found.is_whole) == (3.0, False)
    assert found.basis == "set-up not finished when time was up"
    assert "at least" in found.findings[0].text


def test_events_are_read_up_to_where_the_process_was_ended(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text(
        '{"event": "rounds", "rounds": 7, "peak": 1}\n{"event": "partial", "phase": "setup", "peak": 5}\n'
        '{"event": "step", "phase": "setup", "peak": 9}\n{"event": "partial", "phase": "round", "peak": 6}\n'
        '{"event": "st'
    )
    found = Trial()
    found.read(path)
    assert [(each["event"], each["phase"]) for each in found.steps] == [("step", "setup"), ("partial", "round")]
    assert (found.done, found.peak, found.events["rounds"]["rounds"]) == (0, 9, 7)


# -- plans of real runs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned(small):
    return plan(small(method__rounds=12), seconds=2.0)


def test_bytes_are_those_of_the_run(small, planned):
    tree = runner.run(small(method__rounds=12)).tree
    assert planned.is_steady
    assert planned.seed.up == tree["summary"]["upload_bytes"]
    assert planned.seed.down == tree["summary"]["download_bytes"]


@pytest.mark.slow
def test_the_client_that_moves_most_is_that_of_the_ledger(small, tmp_path):
    """With two of five clients in a round, nobody is in all of them."""
    config = small(partition__clients=5, method__rounds=8, method__participation=0.4)
    found = plan(config, seconds=2.0)
    runner.run(config, out=tmp_path / "run")
    for direction, most in (("up", found.seed.max_up), ("down", found.seed.max_down)):
        sent: dict[int, int] = defaultdict(int)
        for row in pq.read_table(tmp_path / "run" / "ledger.parquet").to_pylist():
            if row["phase"] != "evaluation" and row["direction"] == direction:
                sent[row["client"]] += row["bytes"]
        assert most == max(sent.values()) < 8 * found.round.up / 2
    assert "seed_max" in found.exact


@pytest.mark.slow
def test_bytes_of_secure_sums_are_those_of_the_run(small):
    """Keys and shares as well as masked answers, eight bytes for four; scores are summed, too."""
    config = small(method__rounds=12, run__secure_sums=True, evaluation__report="federation")
    planned = plan(config, seconds=2.0)
    tree = runner.run(config).tree
    assert planned.is_steady
    assert planned.seed.up == tree["summary"]["upload_bytes"]
    assert planned.seed.down == tree["summary"]["download_bytes"]


@pytest.mark.slow
def test_between_machines_a_key_comes_with_a_kits_word_for_it(small):
    """About 1.5 kB from each silo to each in every sum: of three silos and one sum in a round, three times and nine."""
    config = small(method__rounds=2, run__secure_sums=True)
    here, there = plan(config, seconds=0.1), plan(config, seconds=0.1, line=Connection(100, 10))
    assert 3 * 1450 < there.round.up - here.round.up < 3 * 1600
    assert 9 * 1450 < there.round.down - here.round.down < 9 * 1600


def test_a_plan_is_complete(planned):
    assert planned.about["clients"] == 3
    assert planned.run.cpu > planned.seed.cpu > 0
    assert planned.run.wall == pytest.approx(planned.run.cpu)
    assert planned.processes[0].bytes > 10**8
    assert planned.disk["kept"] == 0  # nothing is written
    assert planned.seed.sites == 0
    assert planned.to_dict()["seed"]["up"] == planned.seed.up


@pytest.mark.slow
def test_more_seconds_are_asked_for_where_the_trial_ends_too_early(small):
    found = plan(small(partition__clients=20, method__local_epochs=2000), seconds=0.05)
    assert not found.is_whole
    assert "Give more --seconds" in found.findings[0].text


@pytest.mark.slow
def test_workers_and_sites(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = plan(small(run__workers=2), seconds=1.0, line=Connection(8, 10), out=tmp_path)
    assert [(process.name, process.count) for process in found.processes] == [
        ("coordinator", 1), ("worker", 1), ("site", 3),
    ]  # fmt: skip
    assert found.memory["needed"] == sum(process.bytes * process.count for process in found.processes[:2])
    assert found.seed.wall <= found.seed.cpu
    assert found.round.sites >= 2 * 0.01 + (found.round.max_up + found.round.max_down) / 1e6
    assert found.disk["kept"] > 0
    assert not list(tmp_path.iterdir())  # nothing is left behind


@pytest.mark.slow
def test_offloaded_clients_are_weighed_without_checkpoints(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = plan(small(run__resident_clients=1, run__checkpoint_every=0), seconds=1.0, out=tmp_path)
    assert found.disk["peak"] == found.disk["kept"] + found.disk["checkpoint"] > found.disk["kept"]


@pytest.mark.slow
def test_what_the_run_would_refuse_is_refused(small):
    with pytest.raises(ConfigError, match=r"method\.min_clients wants 9 answers"):
        plan(small(method__min_clients=9))
