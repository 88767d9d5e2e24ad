"""The page of a study's trials."""

from __future__ import annotations

from pathlib import Path

from graphsilo.experiments.tuning.record import MethodRecord, TrialRecord, TuneRecord
from graphsilo.report import tune_page
from graphsilo.report.plot import Dots


def study(*trials: TrialRecord, best: int | None) -> TuneRecord:
    method = MethodRecord(
        name="fedprox", title="FedProx", space=[], trials=list(trials), best=best, importance={"method.lr": 0.75}
    )
    return TuneRecord(
        format=1, graphsilo="0", metric="accuracy", budget=4, sampler="tpe", seed=0, pruned=True, tuning_seeds=[10],
        seeds=[0], methods=[method], final=[],
    )  # fmt: skip


def test_trials_by_their_settings(tmp_path: Path) -> None:
    found = study(
        TrialRecord(trial=0, settings={}, state="complete", validation=0.7),
        TrialRecord(trial=1, settings={"method.lr": 0.1, "method.optimizer": "sgd"}, state="complete", validation=0.8),
        TrialRecord(trial=2, settings={"method.lr": 0.001, "method.optimizer": "adam"}, state="pruned", validation=0.4),
        TrialRecord(trial=3, settings={"method.lr": 10.0}, state="failed", error="it diverged"),
        best=1,
    )
    rate, optimizer, share = tune_page.describe(found).figures
    dots = {mark.name: (list(mark.x), list(mark.y)) for mark in rate.plots["accuracy"].marks if isinstance(mark, Dots)}
    assert dots == {"as tried": ([0.1], [80]), "stopped early": ([0.001], [40]), "best": ([0.1], [80])}
    assert rate.plots["accuracy"].x.log
    assert optimizer.plots["accuracy"].x.names == ("adam", "sgd")
    assert list(share.plots["share"].marks[0].values) == [75]
    text = tune_page.write(found, tmp_path).read_text()
    assert "Best is trial 1, with a validation accuracy of 80.00 %; as configured it is 70.00 %." in text
    assert "it diverged" in text


def test_a_study_in_which_nothing_ended(tmp_path: Path) -> None:
    page = tune_page.write(study(TrialRecord(trial=0, settings={}, state="running"), best=None), tmp_path).read_text()
    assert "No trial came to its end." in page
