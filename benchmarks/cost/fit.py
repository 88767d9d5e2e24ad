"""How a cost grows: exponents from log-log least squares, and medians with their spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Growth:
    """A cost ∝ size^exponent, fitted.

    Attributes:
        exponent: Slope of log cost over log size, by least squares.
        error: Its standard error; None with two points, which any line meets.
        last: Slope between the two largest sizes: what remains where a fixed cost no longer hides it.
    """

    exponent: float
    error: float | None
    last: float


def growth(sizes: Sequence[float], costs: Sequence[float]) -> Growth | None:
    """The exponent with which a cost grows; None with fewer than two sizes, or where a cost is not above 0.

    Args:
        sizes: What grew, ascending.
        costs: What it cost, in any unit.
    """
    if len(sizes) < 2 or min(costs) <= 0 or len(set(sizes)) < len(sizes):
        return None
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    fitted = statistics.linear_regression(x, y)
    error = None
    if len(x) > 2:
        rest = sum((b - fitted.intercept - fitted.slope * a) ** 2 for a, b in zip(x, y, strict=True))
        middle = statistics.fmean(x)
        error = math.sqrt(rest / (len(x) - 2) / sum((a - middle) ** 2 for a in x))
    return Growth(fitted.slope, error, (y[-1] - y[-2]) / (x[-1] - x[-2]))


@dataclass(frozen=True)
class Middle:
    """A median over turns.

    Attributes:
        value: The median.
        low, high: The quartiles; with fewer than four turns the smallest and the largest.
        turns: How many there were.
    """

    value: float
    low: float
    high: float
    turns: int

    @property
    def spread(self) -> float:
        """Half the distance between low and high."""
        return (self.high - self.low) / 2


def middle(values: Sequence[float]) -> Middle:
    """Median and quartiles of at least one value."""
    if len(values) < 4:
        return Middle(statistics.median(values), min(values), max(values), len(values))
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Middle(statistics.median(values), low, high, len(values))
