"""Methods ranked over several data sets, and which differences of ranks are more than chance.

Friedman's test asks whether any method ranks otherwise than the others; Nemenyi's critical difference, how far two mean
ranks must lie apart to differ. Both take data sets as independent, so cuts or settings of one data set are no further
data sets.

Source: Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7 (2006), sections 3.2.2 and
3.2.3. Deviation: Friedman's p is that of a permutation test, which needs no large number of data sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphsilo.errors import DataError
from graphsilo.random import numpy_generator

_EXACT = 50_000
"""Up to this many arrangements of ranks are enumerated; beyond, as many are drawn."""


@dataclass(frozen=True)
class Ranking:
    """Methods ranked on every data set.

    Attributes:
        means: Mean rank of each method; 1 is the best, ties share the mean of their places.
        data_sets: Over how many data sets.
        statistic: Friedman's chi-square; None with one data set or method.
        p: Of Friedman's test, by permutation of the ranks within each data set; None likewise.
        critical_difference: Nemenyi's: mean ranks that lie at least so far apart differ; None with one data set or
            method.
    """

    means: tuple[float, ...]
    data_sets: int
    statistic: float | None
    p: float | None
    critical_difference: float | None


def rank(values: ArrayLike, *, higher_is_better: bool = True, alpha: float = 0.05) -> Ranking:
    """Rank methods on every data set, and test the ranks.

    Args:
        values: [methods, data sets], none missing.
        higher_is_better: Whether the highest value has rank 1.
        alpha: Level of the critical difference.

    Raises:
        DataError: A value is missing, or there is none.

    Example:
        >>> rank([[0.9, 0.8], [0.7, 0.8]]).means
        (1.25, 1.75)
    """
    from scipy.stats import rankdata

    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.size == 0 or np.isnan(table).any():
        raise DataError(f"ranks are of methods that all have a value on every data set; got {table.shape} values.")
    methods, data_sets = table.shape
    # Differences that rounding makes are ties
    rounded = np.round(table, 12)
    ranks = rankdata(-rounded if higher_is_better else rounded, axis=0).T
    means = tuple(float(mean) for mean in ranks.mean(axis=0))
    if methods < 2 or data_sets < 2:
        return Ranking(means, data_sets, None, None, None)
    return Ranking(
        means,
        data_sets,
        friedman(ranks),
        _permutation_p(ranks),
        critical_difference(methods, data_sets, alpha=alpha),
    )


def friedman(ranks: NDArray[np.float64]) -> float:
    """Friedman's chi-square of [data sets, methods] ranks, without a correction for ties."""
    data_sets, methods = ranks.shape
    squares = float((ranks.mean(axis=0) ** 2).sum())
    return float(12 * data_sets / (methods * (methods + 1)) * (squares - methods * (methods + 1) ** 2 / 4))


def critical_difference(methods: int, data_sets: int, *, alpha: float = 0.05) -> float:
    """Nemenyi's: the studentized range over √2, times √(k (k + 1) / 6 N) for k methods on N data sets."""
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * data_sets))


def _permutation_p(ranks: NDArray[np.float64]) -> float:
    """Share of arrangements of the ranks within data sets whose mean ranks lie at least as far apart.

    Friedman's statistic grows with the sum of the squared rank sums alone. The first data set may stay as it is: what
    counts is how the others are arranged relative to it.
    """
    data_sets, methods = ranks.shape
    observed = _squares(ranks.sum(axis=0)) - 1e-9
    orders = math.factorial(methods)
    if orders ** (data_sets - 1) <= _EXACT:
        arrangements = [[np.array(order) for order in permutations(row)] for row in ranks[1:]]
        hits = [_squares(ranks[0] + sum(rows)) >= observed for rows in product(*arrangements)]
        return float(np.mean(hits))
    draw = numpy_generator(0, "ranks", "friedman")
    sums = np.zeros((_EXACT, methods))
    for row in ranks:
        sums += draw.permuted(np.broadcast_to(row, (_EXACT, methods)), axis=1)
    return float((1 + (_squares(sums) >= observed).sum()) / (1 + _EXACT))


def _squares(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((sums**2).sum(axis=-1))


def count_needed(methods: int, *, alpha: float = 0.05) -> int:
    """How many data sets it takes for any difference between so many methods to be significant in both tests.

    Example:
        >>> count_needed(2), count_needed(3)
        (6, 3)
    """
    count = 2
    # The least p of the permutation test is 1 / k!^(N - 1), the farthest two mean ranks lie apart k - 1
    while (
        math.factorial(methods) ** (1 - count) > alpha or critical_difference(methods, count, alpha=alpha) > methods - 1
    ):
        count += 1
    return count
