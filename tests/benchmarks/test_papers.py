"""Which number of a result a line of the papers' tables shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import papers
import pytest

RESULT = {
    "evaluates": ["own_local"],
    "seed": {
        "modes": {"own_local": {"test": {"accuracy": 0.75}}},
        "rounds": [{"round": 1, "test": {"accuracy": 0.5}}, {"round": 2, "test": {"accuracy": 0.7}}],
        "setup": {"log": {"generated_neighbours": 0.027}},
        "study": {"0": {"nodes": 1, "missing": 3.0}, "1": {"nodes": 3, "missing": 1.0}},
    },
}


def test_scores() -> None:
    assert papers.score(RESULT, "own_local.accuracy") == 75.0
    assert papers.score(RESULT, "own_local.accuracy@last") == 70.0
    assert papers.score(RESULT, "study.missing") == 1.5  # (1 · 3 + 3 · 1) / 4
    assert papers.score(RESULT, "setup.generated_neighbours") == 0.027
    assert papers.score(RESULT, "setup.generated_neighbours@last") is None
    assert papers.score({**RESULT, "seed": {**RESULT["seed"], "setup": {}}}, "setup.generated_neighbours") is None


def test_digits() -> None:
    assert papers._shown([0.0271], "setup.generated_neighbours") == "0.027"
    assert papers._shown([75.04], "own_local.accuracy") == "75.0"


def _result(own: tuple[float, float], common: tuple[float, float]) -> dict[str, Any]:
    """Validation and test accuracy of a trial's own models and of its common one."""
    modes = {
        mode: {"validation": {"accuracy": validation}, "test": {"accuracy": test}}
        for mode, (validation, test) in (("own_local", own), ("aggregate_local", common))
    }
    return {"evaluates": ["own_local"], "seed": {"modes": modes, "rounds": []}}


def test_a_search_takes_what_validation_prefers_and_never_looks_at_the_test() -> None:
    trials = [_result((0.6, 0.9), (0.5, 0.8)), _result((0.7, 0.6), (0.5, 0.99)), _result((0.6, 1.0), (0.8, 0.7))]
    assert papers.best(trials, "own_local.accuracy") is trials[1]
    assert papers.best(trials, "aggregate_local.accuracy") is trials[2]
    assert papers.best(trials, "chosen.accuracy") is trials[2]  # 0.8 of its common model
    assert papers.score(trials[2], "chosen.accuracy") == 70.0
    assert papers.score(trials[1], "chosen.accuracy") == 60.0
    assert papers.score(_result((0.5, 0.1), (0.5, 0.2)), "chosen.accuracy") == 10.0  # the first of equals


def test_a_search_tries_the_same_settings_every_time_and_none_twice() -> None:
    description = {"trials": 5, "first": [{"a": 1}], "spaces": [{"a": [1, 2], "b": [3]}, {"a": [4, 5], "b": [6]}]}
    trials = papers.search(description)
    assert trials == papers.search(description)
    assert trials[0] == {"a": 1}
    assert sorted((trial["a"], trial["b"]) for trial in trials[1:]) == [(1, 3), (2, 3), (4, 6), (5, 6)]


def test_a_trial_that_diverged_is_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(papers, "KEPT", tmp_path)

    def run_of(trial: int, seed: int) -> papers.Run:
        return papers.Run(
            "f", "row", "data", "label", {"x": trial}, seed, ("own_local.accuracy",), (None,), (None,), 1, trials=2
        )

    papers.write_json(run_of(0, 0).place, {"failed": "it diverged"})
    papers.write_json(run_of(1, 0).place, _result((0.5, 0.4), (0.1, 0.1)))
    papers.write_json(run_of(0, 1).place, _result((0.5, 0.4), (0.1, 0.1)))  # of seed 1 one of two was run
    found = papers.results([run_of(trial, seed) for seed in (0, 1) for trial in (0, 1)])
    assert {seed: len(trials) for seed, trials in found.items()} == {0: 1}


def test_every_comparison_can_be_read() -> None:
    for path in sorted((papers.HERE / "papers").glob("*.yaml")):
        _, runs = papers.read(path.stem)
        assert runs
    tuned = [run for run in runs_of("fedridge", "cora-louvain-10") if run.trials > 1]
    assert {run.trials for run in tuned} == {16}  # every method the same number
    assert sum({"method.optimizer": "sgd", "method.lr": 0.5}.items() <= run.overrides.items() for run in tuned) > 0


def runs_of(name: str, row: str) -> list[papers.Run]:
    return [run for run in papers.read(name)[1] if run.row == row]


def test_differences_are_paired_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"a": {0: 0.9, 1: 0.8}, "b": {0: 0.7, 1: 0.7, 2: 0.1}}
    runs = [
        papers.Run("f", "row", "data", label, {}, seed, ("own_local.accuracy",), (None,), (None,), 1)
        for label, each in values.items()
        for seed in each
    ]
    monkeypatch.setattr(
        papers,
        "results",
        lambda mine: {run.seed: [_result((0.5, values[run.label][run.seed]), (0.4, 0.0))] for run in mine},
    )
    lines = list(papers.differences(runs, "b", "own_local.accuracy"))
    assert "| row | +15.0 ± 7.1 |" in lines  # 20 and 10: their mean, and 10 / √2
