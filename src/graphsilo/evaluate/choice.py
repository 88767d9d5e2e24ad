"""Which of several models a silo's own validation items prefer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.metrics import Metric

DOUBT = 0.5
"""Standard errors by which a model of the own rows alone must be better. Of 0, ½, 1 and 1.64 the best by
cross-validation on the validation items of nine graphs, three cuts each."""
GROUPS = 20
"""Of validation items: each is left out once to see how much a difference depends on a few of them."""


class Judge:
    """Compares what models say of the same items.

    Args:
        metric: What counts.
        labels: [n] classes of the items.
    """

    def __init__(self, metric: Metric, labels: NDArray[np.int64]):
        self.metric, self.labels = metric, labels

    def best(self, outputs: Sequence[NDArray[Any]], apart: int) -> int:
        """The number of the best; of equals the first.

        A few items prefer one of many models by chance, and others' rows usually help: a model of the own rows alone
        must be better by more than half a standard error.

        Args:
            outputs: [n, C] of each model: logits or log-probabilities.
            apart: How many of these, the last ones, are of the own rows alone.
        """
        values = [self.quality(output) for output in outputs]
        joined = len(outputs) - apart
        best = int(np.argmax(values[:joined]))
        if not apart:
            return best
        other = joined + int(np.argmax(values[joined:]))
        gain = values[other] - values[best]
        return other if gain > 0 and gain > DOUBT * self._error(outputs[other], outputs[best]) else best

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
