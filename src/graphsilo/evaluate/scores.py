"""Ranking metrics from scores: area under the ROC curve and average precision.

A ranking cannot be added up like counts, so each client computes its own value from its own scores and only the value
and its weight leave: no score of a single item does.

Worked by hand: scores 0.9, 0.8, 0.8, 0.1 with labels 1, 0, 1, 0. Of the four (positive, negative) pairs three are in
order and one is a tie (half): AUC 3.5/4. Precision is 1/1 at 0.9 (recall up by 1/2) and 2/3 at 0.8 (up by 1/2):
average precision 1/2 + 1/3 = 5/6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import DataError, RunError


class Score(NamedTuple):
    """A client's value, None where undefined, and how many items it rests on (0 where undefined)."""

    value: float | None
    weight: int


def roc_auc(labels: NDArray[np.int64], scores: NDArray[np.floating[Any]]) -> Score:
    """Area under the ROC curve, exact: the share of (positive, negative) pairs in order, ties counting half.

    Args:
        labels: [n] class numbers, -1 where unknown (left out). For [n] scores: 1 is positive, 0 negative. Of several
            labels [n, m] 1 and 0 likewise, and scores of the same shape: the mean over labels.
        scores: [n] score of class 1, or [n, C] one column per class. Two columns are the binary case (column 1);
            more give the mean of one-versus-rest over the classes that have both positives and negatives here.
            Logits, probabilities and log-probabilities give the same binary value; of several columns each is
            ranked by itself.
    Returns:
        Value from 0 to 1, and the number of labelled items; ``(None, 0)`` where only one class is present.
    Raises:
        DataError: Lengths differ or a label does not fit the scores.
        RunError: A score is NaN: the training has diverged.
    """
    return _one_versus_rest(labels, scores, _auc)


def average_precision(labels: NDArray[np.int64], scores: NDArray[np.floating[Any]], positive: int = 1) -> Score:
    """Σ (recall_i - recall_{i-1}) · precision_i over the distinct thresholds, as scikit-learn defines it.

    Arguments, result and errors as for :func:`roc_auc`; of two columns that of the class ``positive`` is ranked, which
    makes a difference here: a rare class is hard to find, a common one is not. It is left undefined where only one
    class is present: with positives alone every ranking would score 1.
    """
    return _one_versus_rest(labels, scores, _precision, positive)


def combine(scores: Iterable[Score], weights: Iterable[float] | None = None) -> Score:
    """Weighted mean over clients, without those where the value is undefined.

    Args:
        scores: One per client.
        weights: By default the items each value rests on; n_k for the papers' convention.
    Returns:
        The mean, and how many items it rests on in all.
    """
    known = list(scores)
    shares = [float(score.weight) for score in known] if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(known):
        raise DataError(f"{len(known)} scores need {len(known)} weights; got {len(shares)}.")
    pairs = [(score.value, share) for score, share in zip(known, shares, strict=True) if score.value is not None]
    total = sum(share for _, share in pairs)
    if total <= 0:
        return Score(None, 0)
    return Score(
        sum(value * share for value, share in pairs) / total,
        sum(score.weight for score in known if score.value is not None),
    )


def _one_versus_rest(
    labels: NDArray[np.int64], scores: NDArray[np.floating[Any]], rank: Any, positive: int = 1
) -> Score:
    labels, scores = np.asarray(labels), np.asarray(scores)
    if labels.ndim == 2 and labels.shape == scores.shape:  # of several labels each by itself
        _refuse_unknown(scores)
        pairs = [(score[each >= 0], each[each >= 0] == 1) for score, each in zip(scores.T, labels.T, strict=True)]
        return _mean(rank, pairs, int((labels >= 0).any(axis=1).sum()))
    if labels.ndim != 1 or scores.ndim not in (1, 2) or len(labels) != len(scores):
        raise DataError(f"scores must be [n] or [n, classes] with n labels; got {scores.shape} and {labels.shape}.")
    known = labels >= 0
    labels, scores = labels[known], scores[known]
    classes = 2 if scores.ndim == 1 else scores.shape[1]
    if labels.size and labels.max() >= classes:
        raise DataError(f"label {int(labels.max())} does not fit into scores of {classes} classes.")
    _refuse_unknown(scores)
    if scores.ndim == 1:
        columns = [(scores, labels == 1)]
    elif classes == 2:
        columns = [(scores[:, positive], labels == positive)]
    else:
        columns = [(scores[:, c], labels == c) for c in range(classes)]
    return _mean(rank, columns, len(labels))


def _refuse_unknown(scores: NDArray[Any]) -> None:
    if np.isnan(scores).any():
        raise RunError("scores to rank items by are NaN: the training has diverged; lower the learning rate.")


def _mean(rank: Any, columns: Iterable[tuple[NDArray[Any], NDArray[np.bool_]]], items: int) -> Score:
    values = [rank(column, found) for column, found in columns if found.any() and not found.all()]
    return Score(float(np.mean(values)), items) if values else Score(None, 0)


def _thresholds(score: NDArray[np.floating[Any]], positive: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positives and negatives at each distinct score, highest score first."""
    distinct, place = np.unique(-score, return_inverse=True)
    return (
        np.bincount(place[positive], minlength=len(distinct)),
        np.bincount(place[~positive], minlength=len(distinct)),
    )


def _auc(score: NDArray[np.floating[Any]], positive: NDArray[np.bool_]) -> float:
    hits, misses = _thresholds(score, positive)
    above = np.cumsum(hits) - hits
    # Twice the number of pairs in order, in whole numbers: exact whatever the number of items
    pairs = int((misses * (2 * above + hits)).sum())
    return pairs / (2 * int(hits.sum()) * int(misses.sum()))


def _precision(score: NDArray[np.floating[Any]], positive: NDArray[np.bool_]) -> float:
    hits, misses = _thresholds(score, positive)
    found = np.cumsum(hits)
    return float((hits * found / (found + np.cumsum(misses))).sum() / hits.sum())
