from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression

from graphsilo.evaluate import rare
from graphsilo.evaluate.metrics import METRICS
from graphsilo.evaluate.scores import Score

LABELS = np.array([1, 0, 1, 0])
SHARES = np.array([0.9, 0.8, 0.8, 0.1])
BOTH = np.stack([1 - SHARES, SHARES], axis=1)


def draw(seed: int, n: int = 400, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities that say something of them, with ties."""
    random = np.random.default_rng(seed)
    labels = (random.random(n) < share).astype(np.int64)
    labels[:20] = np.arange(20) % 2
    chance = np.round(1 / (1 + np.exp(-(2 * labels - 3 + random.normal(size=n)))), 2).clip(0.01, 0.99)
    return labels, np.stack([1 - chance, chance], axis=1)


def test_worked_by_hand():
    assert rare.precision_at_budget(LABELS, BOTH, 1, 2.0).value == pytest.approx(0.75)
    assert rare.recall_at_budget(LABELS, BOTH, 1, 0.5).value == pytest.approx(0.75)
    assert rare.threshold_f1(LABELS, BOTH, rare.Decision(1, np.log(4.0) - 1e-9)).value == pytest.approx(0.8)
    assert rare.brier(LABELS, BOTH, 1).value == pytest.approx((0.01 + 0.64 + 0.04 + 0.01) / 4)


@pytest.mark.parametrize("name", ["precision_at_budget", "recall_at_budget", "threshold_f1", "threshold_recall"])
def test_one_class_is_undefined(name):
    known = {"positive": 1, "budget": 1.0, "decision": rare.Decision(1)}
    for labels in ([1, 1, -1], [0, 0, -1], [-1, -1, -1]):
        assert METRICS[name].rank(np.array(labels), BOTH[:3], **known) == Score(None, 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 2))
def test_equal_to_scikit_learn(seed, threshold):
    labels, shares = draw(seed)
    decision = rare.Decision(1, threshold)
    guess = rare.log_odds(shares, 1) >= threshold
    for name, of in (("precision", reference.precision_score), ("recall", reference.recall_score)):
        value = METRICS[f"threshold_{name}"].rank(labels, shares, decision=decision).value
        assert (0 if value is None else value) == pytest.approx(of(labels, guess, zero_division=0))
    assert rare.threshold_f1(labels, shares, decision).value == pytest.approx(reference.f1_score(labels, guess))
    assert rare.brier(labels, shares, 1).value == pytest.approx(reference.brier_score_loss(labels, shares[:, 1]))
    shown, mean = calibration_curve(labels, shares[:, 1], n_bins=10)
    sizes = np.bincount(np.digitize(shares[:, 1], np.linspace(0, 1, 11)[1:-1], right=True), minlength=10)
    # Scikit-learn counts a value at the end of a range below it: what stands there is left out of the comparison
    if not np.isin(np.round(shares[:, 1] * 100) % 10, 0).any():
        expected = (np.abs(shown - mean) * sizes[sizes > 0]).sum() / len(labels)
        assert rare.calibration_error(labels, shares, 1).value == pytest.approx(expected)
    distinct = shares + np.stack([0 * shares[:, 1], 1e-6 * np.arange(len(labels))], axis=1)  # no ties
    top = np.argsort(-distinct[:, 1])[:40]
    guess = np.isin(np.arange(len(labels)), top)
    assert rare.precision_at_budget(labels, distinct, 1, 40.0).value == pytest.approx(
        reference.precision_score(labels, guess)
    )
    assert rare.recall_at_budget(labels, distinct, 1, 0.1).value == pytest.approx(reference.recall_score(labels, guess))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_thresholds_are_the_best_of_all(seed):
    labels, shares = draw(seed)
    odds = rare.log_odds(shares, 1)
    precision, recall, _ = reference.precision_recall_curve(labels, odds)
    best = (2 * precision * recall / np.maximum(precision + recall, 1e-9)).max()
    chosen = rare.choose(labels, odds, 1, "f1")
    assert reference.f1_score(labels, chosen.find(odds)) == pytest.approx(best)
    strict = rare.choose(labels, odds, 1, "0.6")
    if precision[:-1].max() >= 0.6:
        found = strict.find(odds)
        assert labels[found].mean() >= 0.6
        assert labels[found].sum() / labels.sum() == pytest.approx(recall[:-1][precision[:-1] >= 0.6].max())
    within = rare.choose(labels, odds, 1, "budget", 0.1).find(odds).sum()
    assert within <= 0.1 * len(labels)
    assert within == max(n for n in [0, *np.cumsum(np.unique(-odds, return_counts=True)[1])] if n <= 0.1 * len(labels))


def test_platt_scaling_is_logistic_regression_on_its_targets():
    labels, shares = draw(3)
    odds = rare.log_odds(shares, 1)
    positives, negatives = labels.sum(), (1 - labels).sum()
    target = np.where(labels == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    twice = np.concatenate([odds, odds])[:, None]
    weights = np.concatenate([target, 1 - target])
    fitted = LogisticRegression(C=np.inf, tol=1e-10).fit(twice, np.repeat([1, 0], len(odds)), sample_weight=weights)
    chosen = rare.choose(labels, odds, 1, "f1")
    assert (chosen.slope, chosen.intercept) == pytest.approx((fitted.coef_[0, 0], fitted.intercept_[0]), abs=1e-4)


@pytest.mark.parametrize("odds", [np.zeros(40), np.linspace(9, -9, 40)], ids=["all alike", "upside down"])
def test_scores_that_say_nothing_choose_nothing(odds):
    labels = np.repeat([0, 1], 20)
    assert rare.choose(labels, odds, 1, "f1") == rare.Decision(1)
    assert rare.choose(labels[:20], odds[:20], 1, "f1") == rare.Decision(1)  # one class


def test_of_few_items_a_threshold_is_chosen_and_nothing_calibrated():
    labels, odds = np.repeat([0, 1], [20, 9]), np.linspace(-9, 0, 29)
    few = rare.choose(labels, odds, 1, "f1")
    assert (few.slope, few.intercept, few.is_chosen) == (1, 0, True)
    assert few.find(odds).tolist() == (labels == 1).tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["f1", "budget", "0.5"]))
def test_labels_of_test_items_choose_nothing(seed, aim):
    labels, shares = draw(seed)
    items = {"val": np.arange(0, 400, 2), "test": np.arange(1, 400, 2)}
    asked = {"positive": 1, "budget": 20.0, "aim": aim}
    chosen = rare.choose_for(items, labels, shares, **asked)
    labels[items["test"]] = np.random.default_rng(seed).permutation(labels[items["test"]]) ^ 1
    assert rare.choose_for(items, labels, shares, **asked) == chosen


def test_links_above_the_tenth_of_the_others():
    labels, scores = np.array([1] * 4 + [0] * 12), np.array([9.5, 3.0, 2.9, -1.0, *range(12)])
    # the tenth largest of 0 to 11 is 2
    assert rare.hits_at_10(labels, scores) == Score(0.75, 16)
    assert rare.hits_at_10(labels[:13], scores[:13]) == Score(None, 0)
