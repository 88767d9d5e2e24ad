"""Which round is reported, and when a run stops early."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.progress import worth_of
from graphsilo.experiments.runner import run
from kit.runs import only


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "auc"])
def test_the_best_round_is_the_first_best_by_validation(small, metric):
    seed = only(run(small(method__rounds=12, evaluation__select_by=metric, method__lr=0.05)))
    scores = [row["validation"][metric] for row in seed["rounds"]]
    assert len(set(scores)) > 2
    best = int(np.argmax(scores)) + 1
    assert seed["best_round"] == best
    assert seed["test"]["accuracy"] == pytest.approx(seed["rounds"][best - 1]["test"]["accuracy"], abs=1e-12)
    assert seed["validation"][metric] == pytest.approx(max(scores), abs=1e-12)
    assert seed["test_last"]["accuracy"] == pytest.approx(seed["rounds"][-1]["test"]["accuracy"], abs=1e-12)


def test_without_validation_the_last_round_is_reported(small):
    seed = only(run(small(partition__ratios=[0.5, 0.0, 0.5], run__early_stopping=1)))
    assert seed["best_round"] == 3
    assert seed["test"]["accuracy"] == seed["test_last"]["accuracy"]
    assert seed["validation"]["accuracy"] is None


def test_early_stopping(small):
    whole = only(run(small(method__rounds=30, method__lr=0.05)))
    stopped = only(run(small(method__rounds=30, method__lr=0.05, run__early_stopping=2)))
    own = [row["validation"]["accuracy"] for row in whole["rounds"]]
    common = [row["modes"]["aggregate_local"]["validation"]["accuracy"] for row in whole["rounds"]]
    scores = [*map(max, own, common)]
    best, since, last = -1.0, 0, 30
    for number, score in enumerate(scores, start=1):
        best, since = (score, 0) if score > best else (best, since + 1)
        if since == 2:
            last = number
            break
    assert last < 30
    assert stopped["last_round"] == len(stopped["rounds"]) == last
    assert [row["validation"]["accuracy"] for row in stopped["rounds"]] == own[:last]


def test_early_stopping_counts_evaluations(small):
    seed = only(run(small(method__rounds=40, method__lr=1e-9, evaluation__every=3, run__early_stopping=2)))
    assert seed["last_round"] == 9  # rounds 3, 6 and 9 are the same


@pytest.mark.parametrize(
    ("scores", "worth"),
    [
        ({"macro_f1": 0.4958, "ap": 0.02, "rare_f1": 0.0}, (0.5, 0.02)),  # says the common class of everything
        ({"macro_f1": 0.4953, "ap": 0.08, "rare_f1": 0.0}, (0.5, 0.08)),  # some false alarms, and a better ranking
        ({"macro_f1": 0.51, "ap": 0.01, "rare_f1": 0.03}, (0.51, 0.01)),
        ({"macro_f1": 0.4958, "rare_f1": 0.0}, (0.4958, 0.0)),  # not ranked
        ({"macro_f1": 0.6, "ap": 0.3}, (0.6, 0.3)),  # more than two classes
        ({"macro_f1": None}, (float("-inf"), 0.0)),
    ],
)
def test_models_that_find_nothing_of_a_rare_class_are_told_apart_by_ranking(scores, worth):
    assert worth_of(scores, metric_of("macro_f1")) == worth
