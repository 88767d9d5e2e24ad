"""Scores of all clients from sums over them: nobody sees a client's own.

Counts of hits and misses add up, and metrics are those of all items together. A mean over clients, as of their
accuracies weighted by n_k, is not asked for: with all its digits it has one solution in whole hits of each. What needs
single clients, their worst and their spread, is missing. Scores that a client ranks itself are added up rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.metrics import METRICS

STEPS = 64
"""Of one item, by which values that are summed are rounded: a sum over silos then has far fewer digits than they have
together, and many solutions."""


def round_to_step(value: Any) -> Any:
    """A number of items, to the nearest step."""
    return np.rint(np.asarray(value) * STEPS) / STEPS


def to_weighted_sums(pairs: Mapping[str, Sequence[float]], size: int) -> dict[str, NDArray[np.float64]]:
    """What a client adds to the means of scores that it ranked itself.

    Args:
        pairs: By name: value and how many items it rests on.
        size: n_k.
    """
    found = {}
    for name, (value, _) in pairs.items():
        metric = METRICS.get(name.rpartition("/")[2].partition("@")[0])
        rounded = round_to_step if metric is None or metric.is_share else round_to_digits
        found[name] = np.zeros((2, 1)) if np.isnan(value) else np.array([[rounded(value * size)], [float(size)]])
    return found


def round_to_digits(value: float) -> float:
    """A number of no known size, an error for one, to three digits."""
    part, power = np.frexp(value)
    return float(np.ldexp(np.rint(part * 1024) / 1024, power))
