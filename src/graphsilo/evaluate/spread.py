"""Means and how far chance moves them: over seeds, and over which items are tested."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

BySeed: TypeAlias = "Mapping[int, float | None] | Sequence[float | None]"
"""Values by seed; a sequence is numbered 0, 1, 2, …. None where the run has no such value."""


@dataclass(frozen=True)
class SeedSummary:
    """Mean and spread over the seeds that have a value.

    Attributes:
        mean: None when no seed has a value.
        std: Sample standard deviation (ddof 1); None with fewer than two values.
        count: How many seeds have a value.
    """

    mean: float | None
    std: float | None
    count: int

    def as_dict(self) -> dict[str, float | None]:
        """``{"mean": ..., "std": ...}``, as results on disk hold it."""
        return {"mean": self.mean, "std": self.std}


def item_errors(confusion: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """How far chance in which items are tested moves scores that are made of counts: standard errors.

    A score that is a smooth function of a table's counts n_ij moves by the sum of g_ij · (change of n_ij), with g its
    gradient. Items drawn independently give it the variance Σ n_ij g_ij², as Σ n_ij g_ij = 0 for scores that do not
    depend on how many items there are.

    Args:
        confusion: [clients, C true, C predicted] counts.
    Returns:
        [clients] of ``accuracy`` and of ``macro_f1``, whose classes are held fixed; NaN without items.

    Example:
        >>> round(float(item_errors(np.array([[[3, 1], [0, 0]]]))["accuracy"][0]), 4)  # √(¾ · ¼ / 4)
        0.2165
    """
    counts = np.asarray(confusion, dtype=np.float64)
    empty = counts.sum(axis=(1, 2)) == 0
    found = {name: np.sqrt((counts * slope**2).sum(axis=(1, 2))) for name, slope in slopes(counts).items()}
    return {name: np.where(empty, np.nan, error) for name, error in found.items()}


def slopes(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """[clients, C, C] by how much one more item in a cell moves a score that is made of these counts."""
    eye = np.eye(counts.shape[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        items = counts.sum(axis=(1, 2), keepdims=True)
        hits = np.diagonal(counts, axis1=1, axis2=2)
        right = (eye - hits.sum(axis=1)[:, None, None] / items) / items
        sizes = counts.sum(axis=2) + counts.sum(axis=1)  # of a class: labels and predictions
        there = sizes > 0
        pull = np.where(there, -2 * hits / sizes**2, 0.0)
        own = np.where(there, 2 / sizes, 0.0)
        slopes = pull[:, :, None] + pull[:, None, :] + eye * own[:, :, None]
        return {"accuracy": right, "macro_f1": slopes / there.sum(axis=1)[:, None, None]}


def summarise_values(values: BySeed) -> SeedSummary:
    """Mean and sample standard deviation over seeds; missing values are left out and ``count`` says how many remain.

    Example:
        >>> summarise_values([0.5, 0.75, 1.0])
        SeedSummary(mean=0.75, std=0.25, count=3)
    """
    known = list(drop_missing(values).values())
    if not known:
        return SeedSummary(None, None, 0)
    # Exact rational arithmetic: equal values of all seeds give exactly that mean and a spread of exactly 0
    std = statistics.stdev(known) if len(known) > 1 else None
    return SeedSummary(statistics.mean(known), std, len(known))


def summarise_seeds(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and spread of every metric that the results of several seeds hold, nested dictionaries included.

    Args:
        results: One per seed, as ``metrics.summarise`` gives them. Fractions (float) and missing values (None) are
            averaged; whole numbers, words and lists (client numbers, item counts, per-class lists) are left out.
    Returns:
        The same keys with ``{"mean", "std"}`` in place of each number.
    """
    summary: dict[str, Any] = {}
    for key in dict.fromkeys(key for result in results for key in result):
        values = [result.get(key) for result in results]
        known = [value for value in values if value is not None]
        if known and all(isinstance(value, Mapping) for value in known):
            nested = summarise_seeds(known)
            if nested:
                summary[key] = nested
        elif all(isinstance(value, float) for value in known) and (known or key != "client"):
            summary[key] = summarise_values(values).as_dict()
    return summary


def drop_missing(values: BySeed) -> dict[int, float]:
    pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
    return {seed: float(value) for seed, value in pairs if value is not None and not math.isnan(value)}
