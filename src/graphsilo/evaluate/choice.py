"""Which of several models validation items prefer: a silo's own, or all silos' together by counts that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.metrics import Metric
from graphsilo.evaluate.scores import Score
from graphsilo.evaluate.sums import round_to_step

DOUBT = 0.5
"""Standard errors by which a model of the own rows alone must be better. Of 0, ½, 1 and 1.64 the best by
cross-validation on the validation items of nine graphs, three cuts each."""
CLEAR = 3.0
"""Standard errors by which a silo must be better off with another kind of model than all silos prefer: in a hundred
rounds, of several kinds, one is ahead by 1.64 errors at some silo by chance."""
GROUPS = 20
"""Of validation items: each is left out once to see how much a difference depends on a few of them."""


def confusions(labels: NDArray[np.int64], guesses: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """[candidates, C true, C predicted] counts of guesses [items, candidates]."""
    candidates, cells = guesses.shape[1], classes * classes
    places = labels[:, None] * classes + guesses + cells * np.arange(candidates)
    found: NDArray[np.int64] = np.bincount(places.ravel(), minlength=candidates * cells)
    return found.reshape(candidates, classes, classes)


def weight_scores(scores: Sequence[Score]) -> NDArray[np.float64]:
    """[2, scores] values times the items that they rest on, rounded as what is summed over silos, and these."""
    values = [round_to_step((score.value or 0.0) * score.weight) for score in scores]
    return np.array([values, [score.weight for score in scores]])


def rate_candidates(metric: Metric, counts: NDArray[np.int64], ranked: Mapping[str, Any]) -> list[float]:
    """What each candidate is worth to all silos together; empty where nobody could tell.

    Args:
        metric: What counts.
        counts: [candidates, C true, C predicted] the sum of ``confusions``.
        ranked: Where the metric is one of scores, by its name the sum of ``weight_scores``; others are passed over.
    """
    if metric.ranking is None:
        return [metric.goodness(metric.of_confusion(each) or 0.0) for each in counts] if counts.any() else []
    if metric.name not in ranked:
        return []
    value, weight = np.asarray(ranked[metric.name])
    return [metric.goodness(each) for each in (value / weight).tolist()] if weight.all() else []


def describe_choice(chosen: int, metric: Metric, values: Sequence[float]) -> dict[str, float]:
    """For a server's log: the number of the candidate that was taken, and what the metric says of each.

    Args:
        chosen: The number.
        metric: What counts.
        values: As ``rate_candidates`` gives them.
    """
    return {"chosen": float(chosen), **{f"chosen_{place}": metric.goodness(each) for place, each in enumerate(values)}}


class Judge:
    """Compares what models say of the same items.

    Args:
        metric: What counts.
        labels: [n] classes of the items, or [n, m] targets.
        doubt: Standard errors by which a model that stands apart must be better.
    """

    def __init__(self, metric: Metric, labels: NDArray[Any], doubt: float = DOUBT):
        self.metric, self.labels, self.doubt = metric, labels, doubt

    def best(self, outputs: Sequence[NDArray[Any]], apart: int) -> int:
        """The number of the best; of equals the first.

        A few items prefer one of many models by chance, and others' rows usually help: a model that stands apart must
        be better by more than so many standard errors.

        Args:
            outputs: [n, C] of each model: logits or log-probabilities.
            apart: How many of these, the last ones, stand apart.
        """
        values = [self.quality(output) for output in outputs]
        joined = len(outputs) - apart
        best = int(np.argmax(values[:joined]))
        if not apart:
            return best
        other = joined + int(np.argmax(values[joined:]))
        gain = values[other] - values[best]
        if not gain > 0:
            return best
        # Of few items the jackknife may see none that differ; what one more right item changes is uncertain by itself.
        error = max(self._error(outputs[other], outputs[best]), math.sqrt(gain / len(self.labels)))
        return other if gain > self.doubt * error else best

    def cross_validate(self, outputs: Sequence[NDArray[Any]], apart: int) -> NDArray[np.int64]:
        """[n] for each item the number of the model that the items of all other groups prefer, as ``best`` does.

        How good a choice is cannot be read off the items that it was made by; what these models say of theirs tells it.
        """
        groups = np.arange(len(self.labels)) % GROUPS
        found = np.zeros(len(self.labels), dtype=np.int64)
        for group in np.unique(groups):
            mine, others = groups == group, groups != group
            judge = Judge(self.metric, self.labels[others], self.doubt)
            found[mine] = judge.best([output[others] for output in outputs], apart)
        return found

    def quality(self, output: NDArray[Any], items: Any = slice(None)) -> float:
        """How good one is on some items: larger is better."""
        value = self.metric.of_outputs(self.labels[items], output[items])
        return -math.inf if value is None else self.metric.goodness(value)

    def _error(self, one: NDArray[Any], other: NDArray[Any]) -> float:
        """Standard error of how much better one output is than another: the jackknife's, over groups of items."""
        count = len(self.labels)
        groups = min(count, GROUPS)
        gains = []
        for group in range(groups):
            kept = np.arange(count) % groups != group
            gains.append(self.quality(one, kept) - self.quality(other, kept))
        return math.sqrt((groups - 1) * float(np.var(gains)))
