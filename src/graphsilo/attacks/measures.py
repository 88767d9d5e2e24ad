"""How an attack's success is measured: shares with Wilson's interval, areas under the ROC curve with a bootstrap's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.scores import roc_auc
from graphsilo.random import numpy_generator

Z = 1.959963984540054
"""Of a 95 % interval."""
RESAMPLES = 1000

Floats = NDArray[np.float64]
Interval = tuple[float, float, float]
"""A figure, and where its 95 % interval begins and ends."""


def wilson(hits: int, targets: int) -> Interval:
    """Share of hits, and Wilson's score interval.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927.
    """
    share, spread = hits / targets, Z * Z / targets
    centre = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / targets + spread / (4 * targets))
    # Rounding must not leave the share itself outside.
    return share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def auc(scores: Floats, truth: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve, ties count half; None where there is only one kind of target."""
    return roc_auc(truth.astype(np.int64), scores)[0]


def auc_interval(scores: Floats, truth: NDArray[np.bool_], *, draws: int = RESAMPLES) -> Interval | None:
    """The area, and its interval by a bootstrap over the targets: positives and negatives are resampled separately.

    Args:
        scores, truth: [targets].
        draws: Resamples.
    """
    area = auc(scores, truth)
    if area is None:
        return None
    _, values = np.unique(scores, return_inverse=True)
    draw = numpy_generator(0, "attacks", "bootstrap")
    counts = [np.bincount(values[truth == kind], minlength=values.max() + 1) for kind in (True, False)]
    found = np.empty(draws)
    for place in range(draws):
        # How often each value comes, in a sample of as many: what the area depends on, ties included.
        positive, negative = (draw.multinomial(count.sum(), count / count.sum()) for count in counts)
        below = np.cumsum(negative) - negative / 2
        found[place] = (positive @ below) / (positive.sum() * negative.sum())
    low, high = np.quantile(found, (0.025, 0.975))
    return area, min(area, float(low)), max(area, float(high))


def mean_interval(values: Sequence[float], *, draws: int = RESAMPLES) -> Interval:
    """The mean of groups' figures, and its interval by a bootstrap over the groups."""
    known = np.asarray(values, dtype=np.float64)
    draw = numpy_generator(0, "attacks", "bootstrap of groups")
    means = known[draw.integers(len(known), size=(draws, len(known)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(known.mean()), float(low), float(high)


def count_detected(scores: Floats, truth: NDArray[np.bool_], rate: float = 0.01) -> tuple[int, int]:
    """How many positives are above the score that at most ``rate`` of the negatives exceed, of how many.

    Attacks are compared at a small share of false alarms: one that is right about a few and knows about whom is worse
    than one that is slightly better than a coin about all (Carlini et al., S&P 2022).
    """
    others = np.sort(scores[~truth])[::-1]
    threshold = others[min(int(rate * len(others)), len(others) - 1)]
    return int((scores[truth] > threshold).sum()), int(truth.sum())
