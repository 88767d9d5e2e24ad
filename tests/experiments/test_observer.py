"""Who watches a run hears every round."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import graphsilo
from graphsilo.errors import ConfigError
from graphsilo.experiments.observer import Observer, Several
from graphsilo.experiments.runner import run
from graphsilo.testing.conformance import _Stop, _Stopped
from kit.runs import Listener


def test_observers_hear_every_round(small):
    listener = Listener()
    result = run(small(run__seeds=[5, 6]), observer=listener)
    assert [(one.seed, one.index, one.round) for one in listener.heard] == [
        (5, 1, 1), (5, 1, 2), (5, 1, 3), (6, 2, 1), (6, 2, 2), (6, 2, 3),
    ]  # fmt: skip
    last = listener.heard[2]
    first_seed = result.tree["seeds"][0]
    assert last.upload_bytes == sum(row["upload_bytes"] for row in first_seed["rounds"])
    assert last.best == (pytest.approx(first_seed["validation"]["accuracy"]), first_seed["best_round"])
    assert listener.first.clients == 3


class Everything(Observer):
    """Notes the order of events."""

    def __init__(self):
        self.heard, self.rounds, self.last = [], [], None

    def on_start(self, run):
        self.heard.append(f"started {run.label}".strip())

    def on_seed_start(self, event):
        self.heard.append(f"seed {event.seed} from {event.round}")

    def on_set_up(self, event):
        self.heard.append("set up")

    def on_progress(self, progress):
        self.heard.append(progress.round)
        self.rounds.append(progress)

    def on_seed_end(self, event):
        self.heard.append(f"seed {event.seed} ended")

    def on_end(self, event):
        self.heard.append(f"ended {event.label}".strip())
        self.last = event


def test_events_come_in_order(tmp_path, small):
    everything = Everything()
    result = run(
        small(run__seeds=[5, 6], method__rounds=2, run__references=["local"]), out=tmp_path / "run", observer=everything
    )
    seeds = [
        "seed 5 from 0", "set up", 1, 2, "seed 5 ended", "seed 6 from 0", "set up", 1, 2, "seed 6 ended",
    ]  # fmt: skip
    assert everything.heard == ["started", *seeds, "started local", *seeds, "ended local", "ended"]
    assert everything.last.result is result
    rows = [progress.row for progress in everything.rounds]
    assert rows[:4] == [row for seed in result.tree["seeds"] for row in seed["rounds"]]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_each_client_did_is_known(tmp_path, small, workers):
    everything = Everything()
    result = run(small(run__workers=workers), out=tmp_path / "run", observer=everything)
    ledger = pq.read_table(tmp_path / "run" / "ledger.parquet").to_pylist()
    for progress in everything.rounds:
        for one in progress.clients:
            mine = [
                row["bytes"]
                for row in ledger
                if (row["phase"], row["round"], row["client"], row["direction"])
                == ("round", progress.round, one.client, "up")
            ]
            assert one.upload_bytes == sum(mine) > 0
        assert sum(one.download_bytes for one in progress.clients) == progress.row["download_bytes"]
        assert all(one.cpu_seconds > 0 and not one.is_failed for one in progress.clients)
    seed = result.tree["seeds"][0]
    best = everything.rounds[seed["best_round"] - 1]
    assert [one.test for one in best.clients] == [row["test"]["accuracy"] for row in seed["clients"]]


def test_nobody_has_a_score_where_only_sums_are_seen(small):
    everything = Everything()
    run(small(evaluation__report="federation"), observer=everything)
    assert {one.test for progress in everything.rounds for one in progress.clients} == {None}


def test_a_run_that_fails_ends_with_its_error(small):
    everything = Everything()
    with pytest.raises(_Stopped):
        run(small(), observer=Several(everything, _Stop(1)))
    assert everything.heard[-1] == "ended"
    assert isinstance(everything.last.error, _Stopped)


def test_observers_go_in_by_every_door(small):
    everything = Everything()
    graphsilo.run(small(), progress=[False, everything])
    assert everything.heard[-1] == "ended"
    with pytest.raises(ConfigError, match="or a list of them"):
        graphsilo.run(small(), progress="mlflow")
