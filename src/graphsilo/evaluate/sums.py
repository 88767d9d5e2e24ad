"""Scores of all clients from sums over them: nobody sees a client's own.

A mean over clients weighted by n_k is a quotient of two sums, Σ n_k m_k and Σ n_k, and counts add up anyway. What needs
single clients, their worst and their spread, is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate import metrics

SCENARIO_KINDS = ("missing_class", "unseen_node", "new_client")
Sums: TypeAlias = "NDArray[np.float64]"
"""[2, values]: Σ n_k m_k and Σ n_k of every value, those of a class by themselves."""


def scenario_weights(kind: str, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of clients in a scenario's mean: scored nodes; the new client counts each model once (FedLoG)."""
    if kind == "new_client":
        return np.ones(len(counts))
    items: NDArray[np.float64] = counts.sum(axis=(1, 2, 3)).astype(np.float64)
    return items


def summands(counts: NDArray[np.int64], kinds: Sequence[str], size: int, rare: int | None = None) -> dict[str, Sums]:
    """What a client adds to the means of every kind.

    Args:
        counts: [kinds, 4, C, C] its counts.
        kinds: Their names.
        size: n_k.
        rare: The rarer of two classes.
    """
    values = np.concatenate(list(metrics.columns(counts, rare).values()), axis=1)  # [kinds, values]
    weights = np.array(
        [
            float(scenario_weights(kind, counts[place : place + 1])[0]) if kind in SCENARIO_KINDS else float(size)
            for place, kind in enumerate(kinds)
        ]
    )
    there = ~np.isnan(values)
    share = np.where(there, weights[:, None], 0.0)
    return {
        kind: np.stack([np.where(there[place], values[place], 0.0) * share[place], share[place]])
        for place, kind in enumerate(kinds)
    }


def means(sums: Sums, counts: NDArray[np.int64], rare: int | None = None) -> dict[str, Any]:
    """The metrics; None where no client has an item.

    Args:
        sums: Of all clients.
        counts: [4, C, C] theirs together, which says how many values a metric has.
        rare: As they were given it.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(sums[1] > 0, sums[0] / sums[1], np.nan)
    found: dict[str, Any] = {}
    start = 0
    for name, part in metrics.columns(counts[None], rare).items():
        width = part.shape[1]
        each = [None if np.isnan(value) else float(value) for value in values[start : start + width]]
        found[name] = each if metrics.METRICS[name].per_class else each[0]
        start += width
    return found


def ranked(pairs: Mapping[str, Sequence[float]], size: int) -> dict[str, Sums]:
    """What a client adds to the means of scores that it ranked itself.

    Args:
        pairs: By name: value and how many items it rests on.
        size: n_k.
    """
    return {
        name: np.zeros((2, 1)) if np.isnan(value) else np.array([[value * size], [float(size)]])
        for name, (value, _) in pairs.items()
    }
