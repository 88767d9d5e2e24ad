"""Trials of a method: what is drawn, what is pruned, what fails."""

from __future__ import annotations

import pytest

import graphsilo
from kit.studies import RATES, SMALL, trials_of

pytest.importorskip("optuna")


@pytest.mark.slow
def test_the_same_study_twice_gives_the_same_trials_and_another_seed_others(tmp_path):
    for name, seed, trials in (("one", 0, 7), ("two", 0, 7), ("three", 1, 2)):
        graphsilo.tune(SMALL, trials=trials, space=RATES, out=tmp_path / name, final=False, sampler_seed=seed)
    assert trials_of(tmp_path / "one") == trials_of(tmp_path / "two")
    assert trials_of(tmp_path / "one")["fedavg"][1] != trials_of(tmp_path / "three")["fedavg"][1]


def test_a_trial_that_diverges_has_failed_and_is_never_the_best(tmp_path):
    found = graphsilo.tune(
        SMALL, trials=3, space={"method.lr": [1e30, 0.05]}, sampler="grid", out=tmp_path / "study", final=False
    )
    (method,) = found.methods
    assert [trial.state for trial in method.trials] == ["complete", "failed", "complete"]
    assert method.trials[1].settings == {"method.lr": 1e30}
    assert "NaN" in method.trials[1].error
    assert method.best in (0, 2)


@pytest.mark.slow
def test_trials_that_fall_behind_are_pruned_and_the_others_are_as_without(tmp_path):
    small = {**SMALL, "method": {"name": "fedavg", "rounds": 15}}
    space = {"method.lr": [0.05, 0.04, 0.06, 1e-6]}
    for prune in (True, False):
        graphsilo.tune(small, space=space, sampler="grid", out=tmp_path / str(prune), final=False, prune=prune)
    pruned, whole = (trials_of(tmp_path / str(prune))["fedavg"] for prune in (True, False))
    assert [state for _, _, state, _, _ in whole] == ["complete"] * 5
    assert [state for _, _, state, _, _ in pruned] == ["complete"] * 4 + ["pruned"]
    assert pruned[-1][4] == 5, "a third of its rounds is given to every trial"
    assert (tmp_path / "True/trials/fedavg/004/stop").exists()
    for row, other in zip(pruned, whole, strict=True):
        if row[2] == "complete":
            assert row == other
            assert row[4] == 15


def test_a_space_is_tried_up_without_trying_anything_twice(tmp_path):
    found = graphsilo.tune(SMALL, trials=16, space={"method.lr": [0.01, 0.02, 0.03]}, out=tmp_path / "s", final=False)
    (method,) = found.methods
    tried = [trial.settings.get("method.lr", 0.01) for trial in method.trials]
    assert sorted(tried) == [0.01, 0.02, 0.03], "0.01 is what the configuration says"
    assert method.exhausted


def test_a_grid_is_everything(tmp_path):
    found = graphsilo.tune(
        SMALL, space={"method.lr": [0.02, 0.05], "method.local_epochs": [1, 2]}, sampler="grid", out=tmp_path / "s",
        final=False, prune=False,
    )  # fmt: skip
    (method,) = found.methods
    assert [tuple(trial.settings.values()) for trial in method.trials[1:]] == [
        (0.02, 1),
        (0.02, 2),
        (0.05, 1),
        (0.05, 2),
    ]
