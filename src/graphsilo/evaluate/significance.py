"""What several seeds say, and what they do not.

A paired comparison of two runs over the same seeds, and a correction for many
comparisons. One seed gives a number, never a claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import DataError
from graphsilo.evaluate.spread import BySeed, drop_missing, slopes, summarise_values
from graphsilo.random import numpy_generator

EXACT_SEEDS = 20
"""Up to this many pairs all sign patterns are enumerated (2^19 sums, by symmetry, take 4 MiB)."""
CONFIDENCE = 0.95
"""Level of intervals."""
_DRAWS = 100_000


@dataclass(frozen=True)
class PairedComparison:
    """Run ``first`` against run ``second`` over the seeds that both have; differences are first - second.

    Attributes:
        seeds: The seeds compared.
        difference: Mean of the differences; None without a common seed.
        ci_low, ci_high: 95 % confidence interval of the mean difference by Student's t; None with fewer than two seeds
            or without spread.
        t_p: Paired t-test, two-sided; assumes normal differences. None with fewer than two seeds, or where all
            differences are the same number other than 0.
        wilcoxon_p: Wilcoxon signed-rank test, two-sided; None with fewer than two seeds.
        sign_flip_p: Sign-flip permutation test of the mean, two-sided; assumes only that a difference is as likely
            to be negative as positive. Exact up to 20 seeds, else from 100,000 seeded draws.
        smallest_p: The least p that the sign-flip test can give with so many seeds, 2 / 2^n.
    """

    seeds: tuple[int, ...]
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    t_p: float | None
    wilcoxon_p: float | None
    sign_flip_p: float | None
    smallest_p: float | None

    def verdict(
        self, alpha: float = 0.05, *, adjusted_p: float | None = None
    ) -> Literal["better", "worse", "no difference shown", "too few seeds"]:
        """What may be said of ``first``, by the sign-flip test, which assumes least.

        "too few seeds" means that no outcome with so many seeds could fall to ``alpha``: with 0.05 that takes six.
        The t-test may be read beside it by whoever holds the differences to be normal.

        Args:
            alpha: Level of the test.
            adjusted_p: ``sign_flip_p`` after :func:`holm`, where this is one comparison of several.
        """
        p = self.sign_flip_p if adjusted_p is None else adjusted_p
        if self.sign_flip_p is None or self.smallest_p is None or self.smallest_p > alpha:
            return "too few seeds"
        if self.difference is None or p is None or p > alpha:
            return "no difference shown"
        return "better" if self.difference > 0 else "worse"


def compare_paired(first: BySeed, second: BySeed) -> PairedComparison:
    """Compare two runs seed by seed: same seed means same partition, splits and first weights.

    Args:
        first, second: Values by seed. Seeds that only one run has, or where a value is missing, are left out; where
            all have the same two values they count once.
    Returns:
        Everything that can be computed; with one seed only the difference, and no test.
    """
    one, two = drop_missing(first), drop_missing(second)
    seeds = tuple(sorted(one.keys() & two.keys()))
    if len(seeds) > 1 and len({(one[seed], two[seed]) for seed in seeds}) == 1:
        seeds = seeds[:1]  # nothing was drawn at random: the same number again is no other one
    n = len(seeds)
    left, right = [one[seed] for seed in seeds], [two[seed] for seed in seeds]
    differences = [a - b for a, b in zip(left, right, strict=True)]
    spread = summarise_values(differences)
    low = high = t_p = wilcoxon_p = flip_p = smallest = None
    if n >= 2 and spread.mean is not None and spread.std is not None:
        values = np.asarray(differences)
        # Below this a difference is rounding of values near 1, not a spread
        noise = 1e-12 * max(1.0, float(np.abs([left, right]).max()))
        if spread.std > noise:
            low, high, t_p = _student(spread.mean, spread.std, n)
        elif abs(spread.mean) <= noise:
            t_p = 1.0
        # Ranks must not be decided by rounding: 0.8 - 0.7 and 0.9 - 0.8 are a tie
        wilcoxon_p = _wilcoxon(np.round(values / noise) * noise)
        flip_p = _sign_flip(values, noise * n)
        smallest = 2.0 ** (1 - n)
    return PairedComparison(seeds, spread.mean, low, high, t_p, wilcoxon_p, flip_p, smallest)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values of several comparisons made together, by Holm's step-down rule (family-wise error).

    Args:
        p_values: One per comparison; None where no test was possible (kept, and not counted as a comparison).
    Returns:
        Adjusted values in the same order: compare each with the level itself.
    Raises:
        DataError: A value is not between 0 and 1.
    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979).
    Example:
        >>> holm([0.01, 0.04, None, 0.03])
        [0.03, 0.06, None, 0.06]
    """
    known = [(p, place) for place, p in enumerate(p_values) if p is not None]
    for p, _ in known:
        if not 0 <= p <= 1:
            raise DataError(f"p-values lie between 0 and 1; got {p}.")
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(sorted(known)):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted


def gap_closed(value: float, local: float, central: float) -> float | None:
    """Share of the way from training alone to training on pooled data: 0 is local, 1 is central.

    Below 0 federation harms, above 1 it beats pooling. None when pooling does not beat training alone: there is no
    gap to close.

    Example:
        >>> gap_closed(0.75, local=0.5, central=1.0)
        0.5
    """
    return None if central <= local else (value - local) / (central - local)


def _student(mean: float, std: float, n: int) -> tuple[float, float, float]:
    """Confidence limits of the mean difference and the p-value of the paired t-test."""
    from scipy import stats

    error = std / math.sqrt(n)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return mean - reach, mean + reach, float(2 * stats.t.sf(abs(mean) / error, n - 1))


def _wilcoxon(differences: NDArray[np.float64]) -> float:
    if not differences.any():
        return 1.0
    from scipy import stats

    return float(stats.wilcoxon(differences).pvalue)


def _sign_flip(differences: NDArray[np.float64], tolerance: float) -> float:
    """Share of sign patterns whose mean is at least as far from 0 as the observed one."""
    observed = abs(float(differences.sum())) - tolerance
    if len(differences) <= EXACT_SEEDS:
        sums = differences[:1]  # the other half of the patterns is the mirror image
        for difference in differences[1:]:
            sums = np.concatenate([sums + difference, sums - difference])
        return float((np.abs(sums) >= observed).mean())
    signs = numpy_generator(0, "significance", "sign flip").integers(0, 2, (_DRAWS, len(differences)), dtype=np.int8)
    sums = (2 * signs - 1) @ differences
    return float((1 + (np.abs(sums) >= observed).sum()) / (1 + _DRAWS))


def paired_errors(
    labels: NDArray[np.int64], one: NDArray[np.int64], other: NDArray[np.int64], num_classes: int
) -> dict[str, float]:
    """Standard errors of the difference of two models' scores over which items are tested, the same for both.

    As of ``evaluate.spread.item_errors``, with what an item moves one score by less what it moves the other by: items
    that both answer alike move accuracy by nothing.

    Args:
        labels: [n] true classes.
        one, other: [n] classes that the models answered.
        num_classes: C.
    Returns:
        Of ``accuracy`` and of ``macro_f1``; empty without items.

    Example:
        >>> labels = np.array([0, 0, 0, 1])
        >>> round(paired_errors(labels, labels, np.array([0, 0, 1, 1]), 2)["accuracy"], 4)  # √(¼ · ¾ / 4)
        0.2165
    """
    if not len(labels):
        return {}
    moves: dict[str, NDArray[np.float64]] = {}
    for sign, answers in ((1.0, one), (-1.0, other)):
        table = np.bincount(labels * num_classes + answers, minlength=num_classes**2).reshape(1, num_classes, -1)
        for name, slope in slopes(table.astype(np.float64)).items():
            moves[name] = moves.get(name, 0.0) + sign * slope[0, labels, answers]
    return {name: float(np.sqrt((moved**2).sum())) for name, moved in moves.items()}
