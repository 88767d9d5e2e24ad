"""``graphsilo tune``: what is printed while a study goes on, and when it has ended."""

from __future__ import annotations

import json

import pytest

from graphsilo import documents
from graphsilo.cli import main
from graphsilo.cli.tune import line
from graphsilo.experiments.tuning.record import FinalRecord, MethodRecord, TrialRecord, TuneRecord
from kit.studies import SMALL, trials_of


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study from a file that holds its space, and what it printed."""
    pytest.importorskip("optuna")
    folder = tmp_path_factory.mktemp("tune")
    config = folder / "config.yaml"
    space = {"method.lr": [0.02, 1e30], "fedprox": {"method.mu": [0.1, 1.0]}}
    config.write_text(documents.write({**SMALL, "tune": space}))
    return folder, config


@pytest.mark.slow
def test_a_study_from_a_file_with_two_methods(study, capsys):
    folder, config = study
    out = folder / "study"
    asked = ["tune", str(config), "--method", "fedavg", "--method", "fedprox", "--trials", "3", "--seeds", "0,1"]
    assert main([*asked, "--sampler", "random", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "fedavg, trial 0 (as configured): validation " in said.err
    assert "fedprox, trial 2 (" in said.err
    assert "fedavg, untuned: run with seeds 0, 1" in said.err
    assert [len(rows) for rows in trials_of(out).values()] == [3, 3]
    table = said.out.split("\n\n")[0].splitlines()
    assert table[0].split()[:5] == ["Validation", "Accuracy", "Trials", "Pruned", "Failed"]
    assert [row.split()[:2] for row in table[1:]] == [["FedAvg", "3"], ["FedProx", "3"]]
    assert "test scores were not looked at" in said.out
    assert "Test, %" in said.out
    assert (out / "compare.html").exists()
    assert "FedProx" in (out / "tune.html").read_text()
    assert set(json.loads((out / "tune.json").read_text())["methods"][1]["space"][0]) == {"method.lr", "method.mu"}

    assert main(["tune", "--show", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert "as configured" in shown

    assert main(["tune", str(config), "--out", str(out)]) == 2
    assert "a table for fedprox, which is not tuned" in capsys.readouterr().err
    assert main([*asked, "--out", str(out)]) == 2
    assert "already holds a study. Continue it with --resume" in capsys.readouterr().err

    assert main(["tune", "--resume", "--trials", "4", "--no-final", "--quiet", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert [len(rows) for rows in trials_of(out).values()] == [3, 4], "fedavg has nothing else to try"


def test_a_run_takes_no_notice_of_the_space(study, capsys):
    folder, config = study
    assert main(["run", str(config), "--rounds", "1", "--quiet", "--out", str(folder / "run")]) == 0
    assert "tune" not in (folder / "run/config.yaml").read_text()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--show"], "--show is about a study: name its folder with --out DIR"),
        (["--resume"], "--resume is about a study"),
        (["--jobs", "2", "--executor", "processes:2", "--out", "here"], "--jobs N is short for --executor"),
        (["--jobs", "0", "--out", "here"], "--jobs takes a number of runs at the same time"),
        (["--trials", "0", "--out", "here"], "trials must be at least 1; got 0"),
        (["--tuning-seeds", "x", "--out", "here"], "--tuning-seeds takes whole numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(flags, text, tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *flags]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_lines():
    ended = TrialRecord(
        trial=1, settings={"method.lr": 0.0123456, "method.mu": 1}, state="pruned", validation=0.4, round=7
    )
    best = TrialRecord(trial=0, settings={}, state="complete", validation=0.5, round=9)
    failed = TrialRecord(trial=2, settings={}, state="failed", error="it diverged.")
    method = MethodRecord(name="fedprox", title="FedProx", space=[], trials=[best, ended, failed], best=0)
    found = TuneRecord(
        format=1, graphsilo="0.1.0",
        metric="accuracy", budget=3, sampler="tpe", seed=0, pruned=True, tuning_seeds=[10], seeds=[0, 1],
        methods=[method], final=[],
    )  # fmt: skip
    assert line(found, "fedprox", ended) == (
        "fedprox, trial 1 (lr 0.01235, mu 1): pruned after round 7 at validation 40.00; best so far 50.00 (trial 0)"
    )
    assert line(found, "fedprox", failed).startswith(
        "fedprox, trial 2 (as configured): failed: it diverged; best so far"
    )
    final = FinalRecord(method="fedprox", tuned=True, folder="final/fedprox/tuned")
    assert line(found, "fedprox", final) == "fedprox, tuned: run with seeds 0, 1"
