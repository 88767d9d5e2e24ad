"""Every round once: with workers, after kill -9, after a resume; and a store that fails."""

from __future__ import annotations

import csv
import json

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.observer import Several
from graphsilo.experiments.runner import run
from graphsilo.experiments.tracking import CSV, JSONLines, Tracker, base, tracker
from graphsilo.testing.conformance import _Stop, _Stopped, numbers
from kit.runs import Listener

TIMES = ("cpu_seconds", "server_cpu_seconds", "wall_seconds", "checkpoint_cpu_seconds", "checkpoint_wall_seconds")


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rounds_of(path, label="", seed=0):
    found = [line for line in lines(path) if (line["event"], line["label"], line.get("seed")) == ("round", label, seed)]
    return [{k: v for k, v in one.items() if k not in ("event", "run", "label", "seed", "clients")} for one in found]


def without_times(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


@pytest.mark.slow
def test_every_round_once_after_kill_9(tmp_path, killed):
    """Killed in seed 1 after round 5, with a checkpoint of round 3; again in the reference row; then to the end."""
    folder = tmp_path / "run"
    started = killed(folder, "jsonl", workers=2)
    started.go(until="1 5")
    again = started.go(until="local 0 2", resume=True)
    assert [line for line in again if not line.startswith("local")] == ["1 4", "1 5", "1 6"]
    started.go(resume=True)
    result = json.loads((folder / "result.json").read_text())
    for place in (0, 1):
        assert without_times(rounds_of(folder / "track.jsonl", seed=place)) == without_times(
            result["seeds"][place]["rounds"]
        )
        of_local = json.loads((folder / "references" / "local" / "result.json").read_text())["seeds"][place]["rounds"]
        assert without_times(rounds_of(folder / "track.jsonl", "local", place)) == without_times(of_local)
    assert [line["label"] for line in lines(folder / "track.jsonl") if line["event"] == "ended"] == ["local", ""]


def test_files_hold_the_rounds_of_the_result_exactly(tmp_path, small):
    config = small(run__seeds=[0, 1], evaluation__every=2, run__references=["local"])
    with_both = run(config, out=tmp_path / "run", observer=Several(CSV(), JSONLines()))
    rows = list(csv.DictReader((tmp_path / "run" / "track.csv").open()))
    for seed in with_both.tree["seeds"]:
        assert rounds_of(tmp_path / "run" / "track.jsonl", seed=seed["seed"]) == seed["rounds"]
        mine = [row for row in rows if (row["label"], row["seed"]) == ("", str(seed["seed"]))]
        assert [row["round"] for row in mine] == ["0", "1", "2", "3"]
        for row, one in zip(mine[1:], seed["rounds"], strict=True):
            assert float(row["wall_seconds"]) == one["wall_seconds"]
            assert row["test.accuracy"] == ("" if "test" not in one else repr(one["test"]["accuracy"]))
    assert {row["label"] for row in rows} == {"", "local"}
    assert numbers(run(config).tree) == numbers(with_both.tree)


def test_a_finished_run_is_told_again(tmp_path, small):
    """A tracker that comes late has every round; the same tracker again adds none."""
    done = run(small(), out=tmp_path / "run")
    listener = Listener()
    for _ in range(2):
        run(small(), out=tmp_path / "run", resume=True, observer=Several(JSONLines(), listener))
        assert rounds_of(tmp_path / "run" / "track.jsonl") == done.tree["seeds"][0]["rounds"]
    assert listener.heard == []
    assert listener.first.is_finished


def test_trackers_of_one_run_have_one_name_for_it_and_add_nothing_when_it_is_told_again(tmp_path, small):
    folder, kept = tmp_path / "run", []
    for resume in (False, True):
        run(small(), out=folder, resume=resume, observer=Several(JSONLines(), CSV()))
        rounds = [line for line in lines(folder / "track.jsonl") if line["event"] in ("set-up", "round")]
        rows = list(csv.DictReader((folder / "track.csv").open()))
        kept.append([(line["run"], line.get("round", 0)) for line in rounds])
        assert kept[-1] == [(row["run"], int(row["round"])) for row in rows]
    assert kept[0] == kept[1]
    assert {name for name, _ in kept[0]} == {json.loads((folder / "tracking.json").read_text())["run"]}


def test_a_run_without_a_folder_needs_a_place(tmp_path, small):
    with pytest.raises(ConfigError, match="csv writes into the folder of the run, and this run has none"):
        run(small(), observer=CSV())
    run(small(), observer=CSV(tmp_path / "deep" / "rounds.csv"))
    run(small(), observer=CSV(tmp_path / "deep" / "rounds.csv"))
    assert len((tmp_path / "deep" / "rounds.csv").read_text().splitlines()) == 1 + 2 * 4


class Failing(Tracker):
    """A store that is away for a while."""

    kind = "failing"

    def __init__(self, away):
        super().__init__()
        self.away, self.rounds, self.told = away, [], []
        self.say = self.told.append

    def find_rounds(self, label, seed):
        return ()

    def keep(self, label, seed, number, row, clients):
        if number in self.away:
            self.away.discard(number)
            raise ConnectionError("the store at http://me:S3cret@host is away")
        self.rounds.append(number)


def test_a_store_that_fails_is_said_once_and_the_run_goes_on(small, monkeypatch):
    tracker_ = Failing({2, 4})
    run(small(method__rounds=5), observer=tracker_)
    assert tracker_.rounds == [0, 1, 2, 3]  # tried again at the end, where it fails again
    assert len(tracker_.told) == 2
    assert "ConnectionError: the store at http://***@host is away" in tracker_.told[0]
    assert "events of the run could not be kept" in tracker_.told[1]
    monkeypatch.setattr(base, "RETRY_SECONDS", 0.0)
    back = Failing({2, 4})
    run(small(method__rounds=5), observer=back)
    assert back.rounds == [0, 1, 2, 3, 4, 5]
    assert len(back.told) == 1


def test_an_observer_that_raises_ends_the_run_which_can_resume(tmp_path, small):
    config = small(run__checkpoint_every=1)
    with pytest.raises(_Stopped):
        run(config, out=tmp_path / "run", observer=Several(_Stop(1), JSONLines()))
    assert run(config, out=tmp_path / "run", resume=True).accuracy() == run(config).accuracy()


def test_rounds_that_come_again_in_the_same_process_are_kept_once(small):
    """As after the loss of a worker process, where the seed goes on from its last checkpoint, or from the beginning."""

    class Again(Several):
        def on_seed_start(self, event):
            self.start = event
            super().on_seed_start(event)

        def on_progress(self, progress):
            super().on_progress(progress)
            if progress.round == 2:
                super().on_seed_start(self.start)
                super().on_progress(progress)

    store = Failing(set())
    for _ in range(2):  # the tracker may be used again, for another run
        run(small(), observer=Again(store))
    assert store.rounds == [0, 1, 2, 3] * 2
    assert store.told == []


def test_trackers_by_name(tmp_path):
    assert tracker(f"csv:{tmp_path / 'x.csv'}")._given == str(tmp_path / "x.csv")
    with pytest.raises(ConfigError, match="did you mean 'mlflow'"):
        tracker("mlflo")
