"""What a run will cost: the arithmetic on numbers worked by hand, and plans against the runs that they are of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments import runner
from graphsilo.federation import registry
from graphsilo.federation.accumulator import MOST_WAITING
from graphsilo.federation.client import ClientBase, EvaluateRequest
from graphsilo.methods import fedavg
from graphsilo.planning import Line, lines, plan
from graphsilo.planning.calibration import Calibration, Trial
from graphsilo.planning.costs import plan_of
from graphsilo.planning.course import estimate
from graphsilo.planning.extrapolation import Ask, Stretch, corrected, fitted, longer, spread, total
from graphsilo.planning.meter import Meter
from graphsilo.planning.probe import repeats
from graphsilo.runtime import machine
from graphsilo.runtime.machine import Memory
from graphsilo.testing import conformance


def ask(*rows: tuple[float, ...], calls: float = 1) -> Ask:
    return Ask(calls, np.array(rows, dtype=np.float64))


# -- arithmetic ------------------------------------------------------------------------------------------------------


def test_longer_lies_on_the_line_and_never_below_what_was_measured():
    few = Stretch(1.0, 0.0, {"train": ask((1, 2.0, 10, 5)), "mix": ask((2, 1.0, 20, 0), calls=2)})
    more = Stretch(1.5, 0.0, {"train": ask((1, 4.0, 10, 5)), "mix": ask((4, 2.0, 40, 0), calls=4)})
    found = longer(few, [(more, 9.0)])  # from one to two of ten: eight more like this
    assert found.asks["train"].rows.tolist() == [[1, pytest.approx(20), 10, 5]]
    assert found.asks["mix"].rows[0] == pytest.approx([20, 10, 200, 0])
    assert found.asks["mix"].calls == pytest.approx(20)
    assert found.server == pytest.approx(5.5)
    other = Stretch(1.0, 0.0, {"train": ask((1, 2.0, 10, 5)), "mix": ask((3, 1.0, 30, 0), calls=3)})
    both = longer(few, [(more, 9.0), (other, 2.0)])  # two kinds of repetitions add up
    assert both.asks["mix"].rows[0] == pytest.approx([22, 10, 220, 0])
    falling = longer(more, [(few, 9.0)])
    assert falling.asks["train"].rows[0, 1] == 2.0
    assert falling.server == 1.0


def test_asks_that_were_seen_with_real_settings_replace_shortened_ones():
    line = Stretch(0.0, 0.0, {"fit": ask((1, 50.0, 0, 0), (1, 30.0, 0, 0))})
    short = Stretch(0.0, 0.0, {"fit": ask((1, 5.0, 0, 0), (1, 3.0, 0, 0))})
    real = Stretch(0.0, 0.0, {"fit": ask((1, 20.0, 0, 0), (0, 0, 0, 0))})  # stopped early; time was up for the other
    assert corrected(line, short, real).asks["fit"].rows[:, 1].tolist() == [20.0, pytest.approx(12.0)]
    # where the number of asks was shortened, few real ones say less than many short ones
    more = Stretch(0.0, 0.0, {"fit": ask((9, 50.0, 0, 0), (9, 30.0, 0, 0))})
    assert corrected(more, short, real) == more


def test_spread_fits_costs_to_sizes_and_keeps_what_is_equal():
    sizes = np.array([[10.0, 1], [20, 1], [30, 1], [40, 1], [50, 1], [60, 1]])
    seen = Stretch(2.0, 0.0, {"train": ask((1, 1.2, 7, 8), (1, 2.2, 7, 8), (1, 4.2, 7, 8), (1, 5.2, 7, 8))})
    found = spread(seen, [0, 1, 3, 4], sizes)
    assert found.asks["train"].rows[:, 1] == pytest.approx([1.2, 2.2, 3.2, 4.2, 5.2, 6.2])
    assert found.asks["train"].rows[:, 2:].tolist() == [[7, 8]] * 6
    assert found.server == pytest.approx(3.0)  # six answers instead of four


def test_fits_of_few_clients_go_by_their_size():
    sizes = np.array([[10.0], [30.0]])
    assert fitted(sizes, np.array([1.0, 3.0]), np.array([[20.0]])) == pytest.approx([2.0])
    assert fitted(sizes[:0], np.array([]), sizes).tolist() == [0, 0]


def test_answers_that_are_added_up_are_not_held_together():
    kept = ask((1, 0, 100e6, 1), (1, 0, 60e6, 1), calls=1)
    assert kept.held() == 160e6
    assert ask((2, 0, 100e6, 1), (2, 0, 60e6, 1), calls=4).held() == 40e6  # asked one by one, twice each
    assert kept.held(early=32) == 160e6  # all of them are counted already
    added = replace(kept, summed=True)
    assert added.held() == 100e6 + MOST_WAITING
    assert replace(ask((1, 0, 1000, 1), (1, 0, 600, 1)), summed=True).held() == 1600
    many = replace(ask(*[(1, 0, 50e6, 1)] * 20), summed=True)
    assert many.held() == 50e6 + MOST_WAITING
    assert many.held(early=4) == 250e6 + MOST_WAITING
    assert many.held(early=32) == 1000e6
    assert many.held(32, 120e6) == (50 + 120 + 50) * 1e6 + MOST_WAITING
    stretch = Stretch(1.0, 0.0, {"train": added})
    both = total([stretch, stretch])
    assert both.asks["train"].summed
    assert both.asks["train"].held() == 100e6 + MOST_WAITING
    assert spread(stretch, [0, 1], np.ones((3, 4))).asks["train"].summed
    assert not total([stretch, Stretch(1.0, 0.0, {"train": kept})]).asks["train"].summed


def test_a_trial_sees_what_is_added_up():
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    told = []
    meter = Meter(told.append, lambda cpu: None)
    meter.watch(federation)
    federation.at("round", 1)
    server.round(federation, 1)
    federation.ask(ClientBase.evaluate, EvaluateRequest(views=["own"]))
    federation.at("round", 2)
    server.round(federation, 2)
    federation.ask(fedavg.Client.train, fedavg.TrainRequest(weights=server.weights))
    meter.close()
    handlers = next(event["handlers"] for event in told if event["event"] == "stretch")
    assert {name: found["summed"] for name, found in handlers.items()} == {"train": True, "evaluate": False}
    handlers = [event["handlers"] for event in told if event["event"] == "stretch"][-1]
    assert handlers["train"]["summed"] is False  # once added up, once kept


def test_wall_time_with_workers_and_between_machines():
    one = Stretch(1.0, 0.0, {"train": ask((1, 4.0, 100, 300), (1, 2.0, 100, 300), (1, 2.0, 100, 300))})
    assert lines.with_workers(one, [[0], [1, 2]]) == 5.0  # the server's second, then the first client's four
    assert lines.with_workers(one, [[1], [0, 2]]) == 6.0  # the server's second goes by while others work
    assert lines.with_workers(one, [[0, 1], [2]]) == 7.0
    assert lines.with_workers(one, [[], [0], [1, 2]]) == 4.0
    assert lines.with_workers(Stretch(1.0, 0.0, {}), [[0], [1]]) == 1.0
    # 400 bytes at 100 a second, and two messages under way for half a second each
    assert lines.between_machines(one, Line(100.0, 0.5)) == 1.0 + 4.0 + 4.0 + 1.0
    assert lines.at_sites(one, Line(100.0, 0.5)).tolist() == [9.0, 7.0, 7.0]
    in_turn = Stretch(0.0, 0.0, {"offer": ask((1, 4.0, 0, 0), (1, 2.0, 0, 0), calls=2)})
    assert lines.with_workers(in_turn, [[0], [1]]) == 6.0  # asked one after the other: no second core helps


@pytest.mark.parametrize(
    ("text", "value"), [("100Mbit/s", 12.5e6), ("1 Gbit", 1.25e8), ("12.5MB/s", 12.5e6), ("8kbps", None), ("8bit", 1.0)]
)
def test_bandwidth(text, value):
    if value is None:
        with pytest.raises(ConfigError, match="100Mbit/s"):
            lines.bandwidth(text)
    else:
        assert lines.bandwidth(text) == value


def test_latency():
    assert [lines.latency(text) for text in ("20ms", "0.1s", "0ms")] == [0.02, 0.1, 0.0]
    for wrong in ("20", "ms", "-3ms", "1.2.3s"):
        with pytest.raises(ConfigError, match="20ms"):
            lines.latency(wrong)


def test_settings_that_are_repetitions():
    assert repeats({"rounds": 90, "epochs": 20, "lp_steps": 3, "steps": True, "step_size": 9.5, "cycle": 50}) == {
        "epochs": 20
    }


# -- the machine -----------------------------------------------------------------------------------------------------


def test_memory_of_a_machine_and_of_a_container(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    proc.mkdir(), groups.mkdir()
    assert machine.memory(proc, groups) is None
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB\n")
    assert machine.memory(proc, groups) == Memory(1024000, 614400)
    (groups / "memory.max").write_text("max\n")
    assert machine.memory(proc, groups) == Memory(1024000, 614400)
    (groups / "memory.max").write_text("500000\n")
    (groups / "memory.current").write_text("400000\n")
    (groups / "memory.stat").write_text("anon 100\ninactive_file 50000\n")
    assert machine.memory(proc, groups) == Memory(500000, 150000)
    assert machine.room(tmp_path / "not" / "yet" / "there") > 0
    assert min(machine.resident()) > 0


# -- from trials to a plan -------------------------------------------------------------------------------------------


def stretch(phase: str, number: int, cpu: float, handler: str, rows: dict[int, tuple[float, ...]], calls: int = 1):
    memory = {"now": 300_000_000, "most": 350_000_000, "files": 100_000_000}
    told = {"calls": calls, "asked": len(rows), "clients": {str(client): list(row) for client, row in rows.items()}}
    return {
        "event": "stretch", "phase": phase, "round": number, "cpu": cpu, "wall": cpu, **memory,
        "handlers": {handler: told} if handler else {},
    }  # fmt: skip


def calibration(*trials: Trial, clients: int, rounds: int, free: int = 8 * 10**9) -> Calibration:
    silos = [
        {"client": k, "nodes": 10 * (k + 1), "edges": 0, "filled": 0, "train": 0, "bytes": 1000, "work": 10 * (k + 1)}
        for k in range(clients)
    ]
    facts = {
        "cpu": 1.0, "now": 250_000_000, "most": 260_000_000, "files": 120_000_000, "silos": silos, "rounds": rounds,
        "rule": "random", "repeats": {"epochs": 20}, "data": {"name": "data"}, "method": {"name": "m", "title": "M"},
    }  # fmt: skip
    return Calibration(facts, {"cpu": 2.0, "now": 200_000_000}, trials, Memory(2 * free, free), rounds)


def trial(clients: int, rounds: int, *, setup: float, of: tuple[int, ...] | None = None) -> Trial:
    """Set-up of so many seconds per client, then rounds of a second per client and two of the server."""
    chosen = of or tuple(range(clients))
    found = Trial(chosen)
    found.hear(stretch("setup", 0, setup * len(chosen), "fit", dict.fromkeys(chosen, (1, setup, 50, 5))))
    for number in range(1, rounds + 1):
        found.hear(stretch("round", number, 2.0 + len(chosen), "train", dict.fromkeys(chosen, (1, 1, 100, 200))))
        found.hear(stretch("evaluation", number, 0.5, "evaluate", dict.fromkeys(chosen, (1, 0.1, 8, 9))))
    found.end = "complete"
    return found


def test_a_measured_trial_is_carried_over_to_all_rounds_and_seeds(small):
    config = small(run__seeds=[0, 1], evaluation__every=2)
    found = plan_of(config, calibration(trial(3, 5, setup=4), clients=3, rounds=20))
    assert (found.cpu.setup, found.cpu.round, found.cpu.evaluation) == (12, 5, 0.5)
    assert found.cpu.seed == 12 + 20 * 5 + 10 * 0.5
    assert found.cpu.run == 2 + 1 + 2 * found.cpu.seed
    assert (found.bytes.setup.up, found.bytes.round.up, found.bytes.evaluation.down) == (150, 300, 27)
    assert (found.bytes.seed.up, found.bytes.seed.down) == (150 + 20 * 300, 15 + 20 * 600)
    assert found.bytes.seed.exact
    assert found.bytes.run.most_up == 2 * (50 + 20 * 100 + 10 * 8)
    assert not found.findings
    assert not found.is_refused
    assert found.processes[0].bytes == 350_000_000 - 100_000_000 + 120_000_000


def test_too_little_memory_is_refused_and_scarce_memory_warned_of(small):
    known = calibration(trial(3, 5, setup=4), clients=3, rounds=20, free=100_000_000)
    refused = plan_of(small(), known)
    assert refused.is_refused
    assert "370.0 MB would be needed" not in refused.findings[0].text  # in gigabytes
    assert "0.4 GB would be needed, and this machine has 0.2 GB" in refused.findings[0].text
    scarce = plan_of(small(), calibration(trial(3, 5, setup=4), clients=3, rounds=20, free=300_000_000))
    assert [finding.level for finding in scarce.findings] == ["warning"]


def test_no_room_on_the_disk_is_refused(small, tmp_path, monkeypatch):
    tried = trial(3, 5, setup=4)
    tried.checkpoints = [
        {"final": False, "round": number, "bytes": 1000 + number, "server": 100, "shared": 0, "cpu": 0.5}
        for number in (1, 5)
    ]
    known = calibration(tried, clients=3, rounds=20)
    found = plan_of(small(), known, out=tmp_path)
    assert found.disk["checkpoint"] == 1005 + 14
    assert found.cpu.run == 3 + found.cpu.seed + 0.5 * 14  # after set-up, and 13: a twentieth of 122 s is 6.1
    monkeypatch.setattr("graphsilo.planning.memory.room", lambda folder: 100)
    assert plan_of(small(), known, out=tmp_path).findings[0].text.startswith("disk: up to 0.0 MB")


def test_an_unfinished_setup_is_carried_over_from_shorter_ones():
    late = Trial((0, 1, 2))
    late.hear({**stretch("setup", 0, 9.0, "fit", {0: (1, 9.0, 50, 5)}), "event": "partial"})
    few, more = trial(3, 4, setup=1), trial(3, 4, setup=2)
    few.settings, more.settings, more.more = {"epochs": 2}, {"epochs": 4}, (("epochs",), 9.0)
    found = estimate(calibration(late, few, more, clients=3, rounds=9))
    # the line says ten seconds per client; the real settings took nine where they were seen, and so for the others
    assert found.course.setup.cpu == pytest.approx(27)
    assert found.course.setup.up == pytest.approx(150)
    assert "set-up (or a round) was not finished" in found.weak[0]
    assert "epochs 4 of 20" in found.basis


def test_what_clients_share_is_kept_once_however_many_they_are(small, tmp_path):
    eight, four = tuple(range(0, 40, 5)), tuple(range(0, 40, 10))
    tried = trial(0, 4, setup=1, of=eight)
    tried.checkpoints = [{"final": False, "round": 1, "bytes": 1400, "server": 100, "shared": 500, "cpu": 0.5}]
    known = calibration(Trial(tuple(range(40))), tried, trial(0, 4, setup=1, of=four), clients=40, rounds=9)
    found = plan_of(small(), known, out=tmp_path)
    assert found.disk["checkpoint"] == 100 + 500 + 800 * 5
    (process,) = found.processes
    assert (process.parts["what clients share"], process.parts["clients' states"]) == (500, 4000)
    assert found.disk["parked"] == 0
    few = plan_of(small(run__resident_clients=10, run__checkpoint_every=0), known, out=tmp_path)
    assert few.processes[0].parts["clients' states"] == 1000
    assert (few.disk["checkpoint"], few.disk["parked"]) == (0, 500 + 800 * 5)
    assert few.disk["most"] == few.disk["kept"] + few.disk["parked"]
    assert few.cpu.run == 3 + few.cpu.seed  # the trial weighed a checkpoint, the run writes none
    both = plan_of(small(run__resident_clients=10), known, out=tmp_path)
    assert both.disk["most"] == both.disk["kept"] + 2 * both.disk["checkpoint"]


def test_parked_clients_are_weighed_without_checkpoints(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = plan(small(run__resident_clients=1, run__checkpoint_every=0), seconds=1.0, out=tmp_path)
    assert found.disk["parked"] > 0
    assert found.disk["checkpoint"] == 0


def test_a_sample_of_clients_stands_for_all():
    late = Trial(tuple(range(40)))
    eight, four = tuple(range(0, 40, 5)), tuple(range(0, 40, 10))
    found = estimate(
        calibration(late, trial(0, 4, setup=1, of=eight), trial(0, 4, setup=1, of=four), clients=40, rounds=9)
    )
    assert found.course.setup.cpu == pytest.approx(40)
    assert found.course.steady.up == 4000
    assert found.course.steady.cpu == pytest.approx(40 + 2 * 5)
    assert found.scale == 5
    assert "only 8 of 40 clients were tried" in found.weak[0]


def test_what_could_not_be_tried_is_said_to_be_at_least():
    late = Trial((0, 1, 2, 3))
    seen = stretch("setup", 0, 3.0, "fit", {0: (1, 1.0, 5, 5), 1: (1, 2.0, 5, 5)})
    seen["handlers"]["fit"]["asked"] = 4
    late.hear({**seen, "event": "partial"})
    found = estimate(calibration(late, clients=4, rounds=9))
    assert found.course.setup.cpu == pytest.approx(1 + 2 + 3 + 4)  # by their sizes: the ask went to all
    assert "at least" in found.weak[0]


# -- plans of real runs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned(small):
    return plan(small(method__rounds=12), seconds=2.0)


def test_bytes_are_those_of_the_run(small, planned):
    tree = runner.run(small(method__rounds=12)).tree
    assert planned.bytes.seed.exact
    assert planned.bytes.seed.up == tree["summary"]["upload_bytes"]
    assert planned.bytes.seed.down == tree["summary"]["download_bytes"]


def test_a_plan_is_complete(planned):
    assert planned.about["clients"] == 3
    assert planned.about["participants"] == 3
    assert planned.cpu.run > planned.cpu.seed > 0
    assert planned.wall.run == pytest.approx(planned.cpu.run)
    process = planned.processes[0]
    assert process.bytes > process.parts["program and libraries"] > 0
    assert sum(process.parts.values()) <= process.bytes
    assert planned.disk["kept"] == 0  # nothing is written
    assert planned.distributed is None
    assert planned.to_dict()["bytes"]["seed"]["exact"] is True


@pytest.mark.slow
def test_a_method_with_a_long_setup(small):
    """Whether the trial comes through or is shortened depends on the machine; what is sent does not."""
    config = small(method__name="fedsage_plus", method__rounds=4, method__generator_epochs=30)
    found = plan(config, seconds=0.5)
    if found.basis.startswith("set-up not finished"):
        pytest.skip("this machine is too slow for a second of set-up")
    tree = runner.run(config).tree
    assert found.bytes.seed.up == pytest.approx(tree["summary"]["upload_bytes"], rel=1e-6)
    assert found.bytes.seed.down == pytest.approx(tree["summary"]["download_bytes"], rel=1e-6)


def test_workers_and_sites(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = plan(small(run__workers=2), seconds=1.0, line=Line(1e6, 0.01), out=tmp_path)
    assert [(process.name, process.count) for process in found.processes] == [
        ("coordinator", 1), ("worker", 1), ("site", 3),
    ]  # fmt: skip
    assert sum(found.wall.loads) == pytest.approx(1)
    assert found.memory["needed"] == sum(process.bytes * process.count for process in found.processes[:2])
    assert found.distributed.slowest["client"] in (0, 1, 2)
    assert found.distributed.round >= 2 * 0.01
    assert found.disk["kept"] > 0
    assert not list(tmp_path.iterdir())  # nothing is left behind


def test_what_the_run_would_refuse_is_refused(small):
    with pytest.raises(ConfigError, match=r"method\.min_clients wants 9 answers"):
        plan(small(method__min_clients=9))
