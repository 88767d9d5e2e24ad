from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from graphsilo.errors import DataError, RunError
from graphsilo.evaluate.scores import Score, average_precision, combine, roc_auc


def test_worked_by_hand():
    labels, scores = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.8, 0.1])
    assert roc_auc(labels, scores) == Score(3.5 / 4, 4)
    assert average_precision(labels, scores).value == pytest.approx(5 / 6)


@pytest.mark.parametrize("labels", [[1, 1], [0, 0], [-1, -1], []])
def test_one_class_is_undefined(labels):
    labels = np.array(labels, dtype=np.int64)
    for rank in (roc_auc, average_precision):
        assert rank(labels, np.zeros(len(labels))) == Score(None, 0)
        assert rank(labels, np.zeros((len(labels), 2))) == Score(None, 0)


def test_a_single_column_has_nothing_to_rank_against():
    for rank in (roc_auc, average_precision):
        assert rank(np.zeros(3, dtype=np.int64), np.array([[0.1], [0.2], [0.3]])) == Score(None, 0)


def test_unknown_labels_are_left_out():
    assert roc_auc(np.array([1, -1, 0]), np.array([0.9, np.nan, 0.1])) == Score(1.0, 2)


def test_infinite_log_probabilities_are_ranked():
    assert roc_auc(np.array([1, 0, 0]), np.array([0.0, -np.inf, -np.inf])).value == 1.0


def test_two_columns_are_the_binary_case():
    random = np.random.default_rng(0)
    labels, scores = random.integers(0, 2, 30), random.normal(size=(30, 2))
    assert roc_auc(labels, scores) == roc_auc(labels, scores[:, 1])
    assert average_precision(labels, scores) == average_precision(labels, scores[:, 1])


def test_classes_absent_here_are_left_out_of_the_mean():
    labels = np.array([0, 1, 0, 1])
    scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.6, 0.2, 0.2], [0.7, 0.2, 0.1]])
    # class 0: positives 0.9, 0.6 against 0.2, 0.7: 3 of 4 in order; class 1: 0.7, 0.2 against 0.1, 0.2: 3.5 of 4
    assert roc_auc(labels, scores) == Score((0.75 + 0.875) / 2, 4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(2, 5))
def test_equal_to_scikit_learn_with_ties(seed, n, levels):
    random = np.random.default_rng(seed)
    labels, scores = random.integers(0, 2, n), random.integers(0, levels, n) / levels
    labels[:2] = [0, 1]
    assert roc_auc(labels, scores).value == pytest.approx(reference.roc_auc_score(labels, scores), abs=1e-12)
    expected = reference.average_precision_score(labels, scores)
    assert average_precision(labels, scores).value == pytest.approx(expected, abs=1e-12)


def test_multiclass_equals_scikit_learn():
    random = np.random.default_rng(1)
    labels = np.concatenate([np.arange(4), random.integers(0, 4, 60)])
    raw = np.round(random.random((64, 4)) * 5 + 1)
    scores = raw / raw.sum(axis=1, keepdims=True)
    expected = reference.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert roc_auc(labels, scores).value == pytest.approx(expected, abs=1e-12)
    expected = reference.average_precision_score(np.eye(4)[labels], scores, average="macro")
    assert average_precision(labels, scores).value == pytest.approx(expected, abs=1e-12)


def test_combining_clients():
    scores = [Score(0.5, 10), Score(None, 0), Score(1.0, 30)]
    assert combine(scores) == Score(0.875, 40)
    assert combine(scores, [1, 100, 1]) == Score(0.75, 40)
    assert combine(scores, [0.25, 0.25, 0.25]) == Score(0.75, 40)  # shares need not add up to 1
    assert combine(scores, [0, 1, 0]) == Score(None, 0)
    assert combine([Score(None, 0)]) == Score(None, 0)
    assert combine([]) == Score(None, 0)
    with pytest.raises(DataError, match="weights"):
        combine(scores, [1.0])


def test_what_is_refused():
    with pytest.raises(RunError, match="diverged"):
        roc_auc(np.array([0, 1]), np.array([0.1, np.nan]))
    with pytest.raises(DataError, match="labels"):
        roc_auc(np.array([0, 1]), np.array([0.1]))
    with pytest.raises(DataError, match="does not fit"):
        roc_auc(np.array([0, 2]), np.array([0.1, 0.2]))


@pytest.mark.parametrize("positive", [0, 1])
def test_average_precision_of_a_class_equals_scikit_learn_with_ties(positive):
    reference = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(positive)
    labels = (draw.random(400) < 0.05).astype(np.int64)
    second = np.round(draw.random(400) * 0.5 + 0.3 * labels, 1)  # many ties
    scores = np.stack([1 - second, second], axis=1)
    expected = reference.average_precision_score(labels == positive, scores[:, positive])
    assert average_precision(labels, scores, positive).value == pytest.approx(expected, abs=1e-12)
