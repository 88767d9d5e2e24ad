"""From trials to a plan: the arithmetic on numbers worked by hand, and plans against the runs that they are of."""

from __future__ import annotations

from typing import Any

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments import runner
from graphsilo.planning import Connection, plan
from graphsilo.planning.estimate import course_of, plan_of
from graphsilo.planning.trials import Trial, Tried
from graphsilo.runtime.machine import Memory

PLENTY = Memory(16 * 10**9, 8 * 10**9)


def step(phase: str, number: int, clients: int, each: float, server: float, up: int, down: int) -> dict[str, Any]:
    """A step in which every client works for so many seconds and moves so many bytes."""
    cost = {
        "cpu": server + clients * each, "server": server, "wall": server + each, "sites": 0.0, "up": clients * up,
        "down": clients * down, "max_up": up, "max_down": down,
    }  # fmt: skip
    memory = {"now": 300_000_000, "peak": 350_000_000, "files": 100_000_000}
    return {"event": "step", "phase": phase, "round": number, "cost": cost, "lasted": 0.0, **memory}


def trial(clients: int, rounds: int, *, setup: float, of: tuple[int, ...] | None = None, **more: Any) -> Trial:
    """Set-up of so many seconds per client, then rounds of a second per client and two of the server."""
    chosen = of or tuple(range(clients))
    found = Trial(chosen, end="complete", **more)
    found.steps.append(step("setup", 0, len(chosen), setup, 0.0, 50, 5))
    for number in range(1, rounds + 1):
        found.steps.append(step("round", number, len(chosen), 1.0, 2.0, 100, 200))
        found.steps.append(step("evaluation", number, len(chosen), 0.1, 0.2, 8, 9))
    return found


def tried(*trials: Trial, clients: int, rounds: int, workers: int = 1) -> Tried:
    silos = [{"client": k, "bytes": 1000, "work": 10 * (k + 1), "place": k % workers} for k in range(clients)]
    facts = {
        "cpu": 1.0, "now": 250_000_000, "peak": 260_000_000, "files": 120_000_000, "silos": silos, "rounds": rounds,
        "rule": "random", "repeats": {"epochs": 20}, "data": {"name": "data"}, "method": {"name": "m", "title": "M"},
    }  # fmt: skip
    return Tried(facts, {"cpu": 2.0, "now": 200_000_000}, trials)


def test_a_measured_trial_is_carried_over_to_all_rounds_and_seeds(small):
    config = small(run__seeds=[0, 1], evaluation__every=2)
    found = plan_of(config, tried(trial(3, 5, setup=4), clients=3, rounds=20), machine=PLENTY)
    assert (found.setup.cpu, found.round.cpu, found.evaluation.cpu) == (12, 5, pytest.approx(0.5))
    assert found.seed.cpu == pytest.approx(12 + 20 * 5 + 10 * 0.5)
    assert found.run.cpu == pytest.approx(2 + 1 + 2 * found.seed.cpu)
    assert found.run.wall == found.run.cpu
    assert (found.setup.up, found.round.up, found.evaluation.down) == (150, 300, 27)
    assert (found.seed.up, found.seed.down) == (150 + 20 * 300, 15 + 20 * 600)
    assert (found.is_exact, found.is_steady) == (True, True)
    assert found.run.max_up == 2 * (50 + 20 * 100 + 10 * 8)
    assert not found.findings
    assert not found.is_refused
    # 50 MB more of the process's own than before the trial, and 50 MB that steps take as they go on
    assert found.processes[0].bytes == 250_000_000 + (200_000_000 - 130_000_000) + 50_000_000


def test_memory_with_workers(small):
    known = tried(trial(3, 5, setup=4), clients=3, rounds=5, workers=2)  # clients 0 and 2 beside the server
    first, worker = plan_of(small(run__workers=2), known, machine=PLENTY).processes
    assert (first.name, worker.name, worker.count) == ("coordinator", "worker", 1)
    assert first.bytes == 250_000_000 + int(70_000_000 * 40 / 60) + 50_000_000 + 32 * 100
    assert worker.bytes == int(200_000_000 + (3000 + 70_000_000) * 20 / 60) + 50_000_000


def test_too_little_memory_is_refused_and_scarce_memory_warned_of(small):
    known = tried(trial(3, 5, setup=4), clients=3, rounds=20)
    refused = plan_of(small(), known, machine=Memory(200_000_000, 100_000_000))
    assert refused.is_refused
    assert "0.4 GB would be needed, and this machine has 0.2 GB" in refused.findings[0].text
    scarce = plan_of(small(), known, machine=Memory(600_000_000, 300_000_000))
    assert [finding.level for finding in scarce.findings] == ["warning"]
    out = Trial((0, 1, 2), end="memory", peak=9 * 10**9)
    told = plan_of(small(), tried(out, clients=3, rounds=20), machine=PLENTY).findings[0]
    assert (told.level, "more than 9.0 GB" in told.text) == ("refused", True)


def test_no_room_on_the_disk_is_refused(small, tmp_path, monkeypatch):
    first = trial(3, 5, setup=4)
    first.checkpoints = [{"final": False, "round": number, "bytes": 1000 + number, "cpu": 0.5} for number in (1, 5)]
    known = tried(first, clients=3, rounds=20)
    found = plan_of(small(), known, machine=PLENTY, out=tmp_path)
    assert found.disk["checkpoint"] == 1005 + 14
    assert found.run.cpu == pytest.approx(3 + found.seed.cpu + 0.5 * 14)  # after set-up, and 13: a twentieth of 122 s
    monkeypatch.setattr("graphsilo.planning.estimate.free_disk", lambda folder: 100)
    assert plan_of(small(), known, machine=PLENTY, out=tmp_path).findings[0].text.startswith("disk: up to 0.0 MB")


def test_a_sample_of_clients_stands_for_all(small):
    late, eight = Trial(tuple(range(40))), tuple(range(0, 40, 5))  # work 10, 60 … 360: 1480 of 8200
    some = trial(0, 4, setup=1, of=eight)
    some.checkpoints = [{"final": False, "round": 1, "bytes": 1400, "cpu": 0.5}]
    known = tried(late, some, clients=40, rounds=9)
    found = course_of(small(), known)
    assert found.setup.cpu == pytest.approx(8 * 8200 / 1480)
    assert found.steady.up == 4000
    assert found.steady.cpu == pytest.approx(8 * 8200 / 1480 + 2 * 5)
    assert (found.number, found.is_exact) == (5, False)
    assert "only 8 of 40 clients were tried" in found.weak[0]
    assert plan_of(small(), known, machine=PLENTY, out=None).disk["checkpoint"] == 0


def test_an_unfinished_setup_is_carried_over_from_shorter_ones(small):
    few, more = trial(3, 4, setup=1, settings={"epochs": 2}), trial(3, 4, setup=2, settings={"epochs": 4})
    found = course_of(small(), tried(Trial((0, 1, 2)), few, more, clients=3, rounds=9))
    assert found.setup.cpu == pytest.approx(3 + (6 - 3) * (20 - 2) / (4 - 2))
    assert found.setup.up == 150
    assert found.steady.cpu == 5
    assert "set-up (or a round) was not finished" in found.weak[0]
    assert "epochs 4 of 20" in found.basis


def test_what_could_not_be_tried_is_said_to_be_at_least(small):
    late = Trial((0, 1, 2, 3))
    late.partial = {**step("setup", 0, 2, 1.5, 0.0, 5, 5), "event": "partial"}
    found = course_of(small(), tried(late, clients=4, rounds=9))
    assert (found.setup.cpu, found.is_whole) == (3.0, False)
    assert "at least" in found.weak[0]


# -- plans of real runs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned(small):
    return plan(small(method__rounds=12), seconds=2.0)


def test_bytes_are_those_of_the_run(small, planned):
    tree = runner.run(small(method__rounds=12)).tree
    assert planned.is_steady
    assert planned.seed.up == tree["summary"]["upload_bytes"]
    assert planned.seed.down == tree["summary"]["download_bytes"]


def test_a_plan_is_complete(planned):
    assert planned.about["clients"] == 3
    assert planned.run.cpu > planned.seed.cpu > 0
    assert planned.run.wall == pytest.approx(planned.run.cpu)
    assert planned.processes[0].bytes > 10**8
    assert planned.disk["kept"] == 0  # nothing is written
    assert planned.seed.sites == 0
    assert planned.to_dict()["seed"]["up"] == planned.seed.up


@pytest.mark.slow
def test_a_method_with_a_long_setup(small):
    """Whether the trial comes through or is shortened depends on the machine; what is sent does not."""
    config = small(method__name="fedsage_plus", method__rounds=4, method__generator_epochs=30)
    found = plan(config, seconds=0.5)
    if found.basis.startswith("set-up not finished"):
        pytest.skip("this machine is too slow for a second of set-up")
    tree = runner.run(config).tree
    assert found.seed.up == pytest.approx(tree["summary"]["upload_bytes"], rel=1e-6)
    assert found.seed.down == pytest.approx(tree["summary"]["download_bytes"], rel=1e-6)


def test_workers_and_sites(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = plan(small(run__workers=2), seconds=1.0, line=Connection(1e6, 0.01), out=tmp_path)
    assert [(process.name, process.count) for process in found.processes] == [
        ("coordinator", 1), ("worker", 1), ("site", 3),
    ]  # fmt: skip
    assert found.memory["needed"] == sum(process.bytes * process.count for process in found.processes[:2])
    assert found.seed.wall <= found.seed.cpu
    assert found.round.sites >= 2 * 0.01 + (found.round.max_up + found.round.max_down) / 1e6
    assert found.disk["kept"] > 0
    assert not list(tmp_path.iterdir())  # nothing is left behind


def test_offloaded_clients_are_weighed_without_checkpoints(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = plan(small(run__resident_clients=1, run__checkpoint_every=0), seconds=1.0, out=tmp_path)
    assert found.disk["peak"] == found.disk["kept"] + found.disk["checkpoint"] > found.disk["kept"]


def test_what_the_run_would_refuse_is_refused(small):
    with pytest.raises(ConfigError, match=r"method\.min_clients wants 9 answers"):
        plan(small(method__min_clients=9))
