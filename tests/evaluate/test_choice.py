"""Which of several models is taken, by one silo's validation items and by sums over silos."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.evaluate.choice import Judge, confusions, rate_candidates, weight_scores
from graphsilo.evaluate.metrics import METRICS
from graphsilo.evaluate.scores import Score

LABELS = np.repeat([0, 1], 10)


def right(count):
    """Outputs that are right on the first ``count`` of twenty items."""
    truth = np.eye(2)[LABELS]
    return np.where(np.arange(20)[:, None] < count, truth, 1 - truth)


@pytest.mark.parametrize(
    ("hits", "apart", "doubt", "best"),
    [
        ([10, 12, 11], 0, 0.5, 1),
        ([12, 12, 11], 0, 0.5, 0),  # the first of equals
        ([10, 12, 12], 1, 0.5, 1),
        ([10, 12, 13], 1, 0.5, 2),  # 0.05 more, by 0.05 standard errors: one item of twenty
        ([10, 12, 13], 1, 1.5, 1),
        ([10, 12, 20], 1, 1.5, 2),
    ],
)
def test_what_stands_apart_must_be_clearly_better(hits, apart, doubt, best):
    assert Judge(METRICS["accuracy"], LABELS, doubt).best([right(each) for each in hits], apart) == best


def test_a_silo_without_items_takes_the_first():
    nothing = np.zeros((0, 2))
    assert Judge(METRICS["accuracy"], LABELS[:0], 1.0).best([nothing] * 3, 2) == 0


def test_sums_of_silos_say_what_each_candidate_is_worth():
    guesses = np.stack([LABELS, np.zeros(20, dtype=np.int64)], axis=1)
    counts = sum(confusions(LABELS[part], guesses[part], 2) for part in (slice(0, 3), slice(3, 20)))
    assert counts[1].tolist() == [[10, 0], [10, 0]]
    assert rate_candidates(METRICS["accuracy"], counts, {}) == [1.0, 0.5]
    assert rate_candidates(METRICS["accuracy"], np.zeros_like(counts), {}) == []
    ranked = weight_scores([Score(0.5, 4), Score(None, 0)]) + weight_scores([Score(1.0, 12), Score(0.8, 5)])
    assert rate_candidates(METRICS["auc"], counts[:0], {"auc": ranked}) == pytest.approx([14 / 16, 0.8])
    # Whoever answers may name other metrics than were asked for.
    assert rate_candidates(METRICS["accuracy"], counts, {"auc": ranked}) == [1.0, 0.5]
    assert rate_candidates(METRICS["auc"], counts, {"other": ranked}) == []


def test_how_good_a_choice_is_is_told_by_other_items() -> None:
    """Two models are right in one of two items each: without the item that it is right in, a model is never taken."""
    labels = np.array([0, 0])
    outputs = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])]
    judge = Judge(METRICS["accuracy"], labels)
    assert judge.best(outputs, 0) == 0
    assert judge.cross_validate(outputs, 0).tolist() == [1, 0]
    # Of 40 items each group has two; a model that is right everywhere is taken by all of them, one apart as well.
    right = np.tile([1.0, 0.0], (40, 1))
    many = Judge(METRICS["accuracy"], np.zeros(40, dtype=np.int64))
    assert many.cross_validate([1 - right, right], 1).tolist() == [1] * 40
    assert not len(Judge(METRICS["accuracy"], labels[:0]).cross_validate([right[:0]], 0))


@pytest.mark.parametrize(("doubt", "best"), [(1.9, 1), (2.1, 0)])
def test_few_items_that_all_agree_are_few(doubt: float, best: int) -> None:
    """Four of four are right instead of none: ahead by 1, and the error is √(1/4), though no group of items differs."""
    wrong, right = np.tile([0.0, 1.0], (4, 1)), np.tile([1.0, 0.0], (4, 1))
    assert Judge(METRICS["accuracy"], np.zeros(4, dtype=np.int64), doubt).best([wrong, right], 1) == best
