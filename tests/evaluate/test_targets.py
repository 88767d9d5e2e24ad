"""Scores of numbers and labels, against scikit-learn's and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as known

from graphsilo.errors import RunError
from graphsilo.evaluate.metrics import METRICS, list_selecting
from graphsilo.evaluate.scores import Score, average_precision
from graphsilo.evaluate.targets import (
    mean_absolute_error,
    micro_f1,
    r_squared,
    root_mean_squared_error,
    spearman,
)

PLAIN = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [3.0], [2.0]])


def test_by_hand():
    assert mean_absolute_error(*PLAIN) == Score(1.0, 3)
    assert root_mean_squared_error(*PLAIN).value == pytest.approx((5 / 3) ** 0.5)
    assert r_squared(*PLAIN).value == pytest.approx(1 - 5 / (14 / 3))
    assert spearman(*PLAIN).value == pytest.approx(0.5)


def test_several_targets_are_their_mean_over_known_entries():
    draw = np.random.default_rng(0)
    targets, outputs = draw.normal(size=(2, 40, 3))
    targets[draw.random((40, 3)) < 0.3] = np.nan
    targets[:, 2] = np.nan  # nobody knows it
    pairs = [(y[~np.isnan(y)], z[~np.isnan(y)]) for y, z in zip(targets.T[:2], outputs.T[:2], strict=True)]
    for mine, theirs in (
        (mean_absolute_error, known.mean_absolute_error),
        (r_squared, known.r2_score),
        (spearman, lambda y, z: spearmanr(y, z).statistic),
    ):
        found = mine(targets, outputs)
        assert found.value == pytest.approx(np.mean([theirs(y, z) for y, z in pairs]))
        assert found.weight == (~np.isnan(targets)).any(axis=1).sum()


def test_what_is_undefined_is_missing_and_what_diverged_is_said():
    same = np.ones((4, 1))
    assert r_squared(same, same) == spearman(same, same) == Score(None, 0)
    assert mean_absolute_error(np.full((2, 1), np.nan), np.zeros((2, 1))) == Score(None, 0)
    with pytest.raises(RunError, match="has diverged; lower the learning rate"):
        mean_absolute_error(same, np.full((4, 1), np.nan))


def test_labels():
    draw = np.random.default_rng(1)
    truth, logits = (draw.random((60, 4)) < 0.3).astype(np.int64), draw.normal(size=(60, 4))
    assert micro_f1(truth, logits).value == pytest.approx(known.f1_score(truth, logits > 0, average="micro"))
    assert average_precision(truth, logits).value == pytest.approx(known.average_precision_score(truth, logits))
    hidden = np.where(draw.random((60, 4)) < 0.2, np.nan, truth)
    by_label = [
        average_precision(y[~np.isnan(y)].astype(int), z[~np.isnan(y)]) for y, z in zip(hidden.T, logits.T, strict=True)
    ]
    assert METRICS["ap"].rank(hidden, logits).value == pytest.approx(np.mean([each.value for each in by_label]))


def test_errors_choose_rounds_of_regression():
    assert list_selecting("regression") == ["mae", "rmse"]
    assert METRICS["mae"].goodness(2.0) < METRICS["mae"].goodness(1.0)
