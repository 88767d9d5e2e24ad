"""Rare cases: what an investigator finds within a budget, at a threshold, and how far probabilities can be trusted.

One of two classes is looked for. A model ranks items by their log-odds z = ln p - ln(1 - p), with p its probability of
that class. Validation items choose the z from which an item counts as found, and the a and b of Platt scaling, by which
1 / (1 + exp(-(a z + b))) is the calibrated probability. Labels of other items have no part in either.

Worked by hand: scores .9, .8, .8, .1 of items of classes 1, 0, 1, 0. A budget of two takes the first and one of the two
equals, half of which is a hit: precision 1.5 / 2, recall 1.5 / 2. From .8 on: 2 hits of 3 taken and of 2 there are, F1
4 / 5. Brier score (.1² + .8² + .2² + .1²) / 4.

Source: Platt, "Probabilistic Outputs for Support Vector Machines" (1999), with its targets (N+ + 1) / (N+ + 2) and
1 / (N- + 2) in place of 1 and 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import DataError
from graphsilo.evaluate.scores import Score

Labels: TypeAlias = "NDArray[np.int64]"
Values: TypeAlias = "NDArray[np.floating[Any]]"
Odds: TypeAlias = "NDArray[np.float64]"

FEW = 10
"""Validation items of either class that calibration takes at least: of fewer its two numbers are chance."""
GROUPS = 10
"""Equal ranges of probability of the calibration error."""
_TINY = 1e-38


class Decision(NamedTuple):
    """How a score is read.

    Attributes:
        positive: The class that is looked for.
        threshold: Log-odds from which an item counts as found.
        slope, intercept: a and b of Platt scaling; 1 and 0, so that probabilities stay the model's own, where
            validation items are too few (``FEW`` of either class).
        is_chosen: Whether validation items chose the threshold; else the likelier class is found, as where they are of
            one class, or ranked no better than by chance.
    """

    positive: int
    threshold: float = 0.0
    slope: float = 1.0
    intercept: float = 0.0
    is_chosen: bool = False

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Decision:
        """From its five numbers."""
        positive, threshold, slope, intercept, is_chosen = numbers
        return cls(int(positive), threshold, slope, intercept, bool(is_chosen))

    @property
    def is_calibrated(self) -> bool:
        """Whether calibrated probabilities are others than the model's own."""
        return (self.slope, self.intercept) != (1.0, 0.0)

    def find(self, odds: Odds) -> NDArray[np.bool_]:
        """[n] which items count as found."""
        found: NDArray[np.bool_] = odds >= self.threshold
        return found

    def calibrate(self, odds: Odds) -> Odds:
        """[n] calibrated probabilities."""
        return _sigmoid(self.slope * odds + self.intercept)


def log_odds(shares: Values, positive: int) -> Odds:
    """[n] log-odds of a class, of [n, 2] probabilities or [n] of the class itself.

    Raises:
        DataError: There are more than two columns.
    """
    if shares.ndim == 2 and shares.shape[1] != 2:
        raise DataError(f"one of two classes is looked for; there are {shares.shape[1]}.")
    mine = shares[:, positive] if shares.ndim == 2 else shares
    other = shares[:, 1 - positive] if shares.ndim == 2 else 1 - shares
    found: Odds = np.log(np.maximum(mine, _TINY, dtype=np.float64)) - np.log(np.maximum(other, _TINY, dtype=np.float64))
    return found


# -- choosing on validation items --------------------------------------------------------------------------------------


def choose(labels: Labels, odds: Odds, positive: int, aim: str, share: float = 0.0) -> Decision:
    """Threshold and calibration by a silo's own validation items.

    Args:
        labels: [n] classes; items without one (-1) are left out.
        odds: [n] log-odds.
        positive: The class that is looked for.
        aim: What a threshold is good for: ``f1``, the largest F1; ``budget``, no more than ``share`` of the items; a
            number, the most found with at least this precision, or where none reaches it the most precise.
        share: Of the items, with ``budget``.
    """
    known = labels >= 0
    distinct, place = np.unique(-odds[known], return_inverse=True)
    there = labels[known] == positive
    hits, misses = (np.bincount(place[mask], minlength=len(distinct)) for mask in (there, ~there))
    scores = -distinct
    # Halfway to the next score, so that rounding moves no item over the line
    lower = np.append((scores[:-1] + scores[1:]) / 2, scores[-1:] - 1)
    return choose_sorted(scores, lower, hits, misses, positive, aim, share)


def choose_for(
    items: Mapping[str, NDArray[np.int64]], labels: Labels, shares: Values, *, positive: int, budget: float, aim: str
) -> Decision:
    """The same of a silo's items by kind: of those in testing it is only looked at how many they are, which says which
    share of the validation items a budget that is a number stands for.

    Args:
        items: ``val`` and, where there is one, ``test``: rows of labels and shares.
        labels: [n] classes of all items.
        shares: [n, 2] probabilities of all items.
        positive, budget, aim: As an ``EvaluateRequest`` has them.
    """
    mine = items["val"]
    share = share_of(budget, len(items.get("test", mine)))
    return choose(labels[mine], log_odds(shares[mine], positive), positive, aim, share)


def choose_sorted(
    scores: Odds, lower: Odds, hits: NDArray[np.int64], misses: NDArray[np.int64], positive: int, aim: str,
    share: float,
) -> Decision:  # fmt: skip
    """The same of counts.

    Args:
        scores: [m] distinct scores, descending.
        lower: [m] thresholds that take each and all above it.
        hits, misses: [m] items of the class and others with each.
        positive, aim, share: As ``choose`` has them.
    """
    rarest = min(hits.sum(), misses.sum())
    slope, intercept = fit_platt(scores, hits, misses) if rarest else (0.0, 0.0)
    if slope <= 0:  # ranked no better than by chance: nothing to read off these scores
        return Decision(positive)
    if rarest < FEW:
        slope, intercept = 1.0, 0.0
    found, taken = np.cumsum(hits), np.cumsum(hits + misses)
    if aim == "budget":
        # Of equals at the end of the budget none is taken
        within = np.flatnonzero(taken <= share * taken[-1] + 1e-9)
        threshold = float(lower[within[-1]] if len(within) else scores[0] + 1)
        return Decision(positive, threshold, slope, intercept, True)
    precision = found / np.maximum(taken, 1)
    if aim == "f1":
        best = int(np.argmax(2 * found / (taken + found[-1])))
    else:
        enough = np.flatnonzero((precision >= float(aim)) & (hits > 0))
        best = int(enough[-1]) if len(enough) else int(np.argmax(precision))
    return Decision(positive, float(lower[best]), slope, intercept, True)


def fit_platt(scores: Odds, hits: NDArray[np.int64], misses: NDArray[np.int64]) -> tuple[float, float]:
    """a and b that make 1 / (1 + exp(-(a z + b))) likeliest, by Newton's steps on sums over scores.

    Args:
        scores: [m] distinct scores.
        hits, misses: [m] items of the class and others with each.
    """
    positives, negatives = int(hits.sum()), int(misses.sum())
    count = (hits + misses).astype(np.float64)
    target = hits * (positives + 1) / (positives + 2) + misses / (negatives + 2)
    centre = float(count @ scores / count.sum())
    spread = float(np.sqrt(count @ (scores - centre) ** 2 / count.sum())) or 1.0
    columns = np.stack([(scores - centre) / spread, np.ones_like(scores)])
    weights = np.array([0.0, np.log((positives + 1) / (negatives + 1))])

    def loss(at: Odds) -> float:
        line = at @ columns
        return float(count @ np.logaddexp(0, line) - target @ line)

    for _ in range(100):
        chance = _sigmoid(weights @ columns)
        slope = columns @ (count * chance - target)
        bend = (columns * (count * chance * (1 - chance))) @ columns.T
        step = np.linalg.solve(bend + 1e-12 * np.trace(bend) * np.eye(2), slope)
        before, part = loss(weights), 1.0
        while part > 1e-6 and loss(weights - part * step) > before:
            part /= 2
        weights = weights - part * step
        if float(np.abs(step).max()) < 1e-9:
            break
    return float(weights[0] / spread), float(weights[1] - weights[0] * centre / spread)


def probability_at(odds: float) -> float:
    """The probability that has such log-odds."""
    return float(_sigmoid(np.array(odds)))


def _sigmoid(line: Odds) -> Odds:
    return np.exp(-np.logaddexp(0, -line))


# -- metrics -----------------------------------------------------------------------------------------------------------


def precision_at_budget(labels: Labels, scores: Values, positive: int, budget: float) -> Score:
    """Share of the class among the items with the highest scores; of equals at the end of the budget a part.

    Args:
        labels: [n] classes, -1 where unknown.
        scores: [n, 2] probabilities.
        positive: The class that is looked for.
        budget: How many items; below 1 a share of them, at least one item.
    Returns:
        The value and the number of labelled items; ``(None, 0)`` where only one class is present.
    """
    found = _within(labels, scores, positive, budget)
    return Score(None, 0) if found is None else Score(found[0] / found[1], found[3])


def recall_at_budget(labels: Labels, scores: Values, positive: int, budget: float) -> Score:
    """Share of the class that is among the same items; arguments and result likewise."""
    found = _within(labels, scores, positive, budget)
    return Score(None, 0) if found is None else Score(found[0] / found[2], found[3])


def _within(labels: Labels, scores: Values, positive: int, budget: float) -> tuple[float, int, int, int] | None:
    """Hits, items taken, items of the class, all items; None where only one class is present."""
    known = labels >= 0
    there, odds = labels[known] == positive, log_odds(scores[known], positive)
    total, items = int(there.sum()), len(there)
    if total in (0, items):
        return None
    taken = size_of(budget, items)
    last = -np.partition(-odds, taken - 1)[taken - 1]
    above, equal = odds > last, odds == last
    part = (taken - int(above.sum())) / int(equal.sum())
    return float((there & above).sum() + part * (there & equal).sum()), taken, total, items


def size_of(budget: float, items: int) -> int:
    """How many of so many items a budget takes."""
    return min(items, max(1, round(budget * items) if budget < 1 else int(budget)))


def share_of(budget: float, items: int) -> float:
    """Which share of so many items a budget takes."""
    return budget if budget < 1 else min(1.0, budget / max(items, 1))


def threshold_precision(labels: Labels, scores: Values, decision: Decision) -> Score:
    """Share of the class among what is found; undefined where nothing is."""
    return _at(labels, scores, decision, lambda hits, taken, total: (hits, taken))


def threshold_recall(labels: Labels, scores: Values, decision: Decision) -> Score:
    """Share of the class that is found."""
    return _at(labels, scores, decision, lambda hits, taken, total: (hits, total))


def threshold_f1(labels: Labels, scores: Values, decision: Decision) -> Score:
    """2 · hits / (found + there are)."""
    return _at(labels, scores, decision, lambda hits, taken, total: (2 * hits, taken + total))


def _at(labels: Labels, scores: Values, decision: Decision, ratio: Any) -> Score:
    known = labels >= 0
    there = labels[known] == decision.positive
    found = decision.find(log_odds(scores[known], decision.positive))
    if not there.any() or there.all():
        return Score(None, 0)
    above, below = ratio(int((there & found).sum()), int(found.sum()), int(there.sum()))
    return Score(above / below, len(there)) if below else Score(None, 0)


def brier(labels: Labels, scores: Values, positive: int) -> Score:
    """Mean of (p - y)², with y 1 for items of the class and 0 for others."""
    return _mean_square(*_known(labels, scores[:, positive].astype(np.float64), positive))


def calibrated_brier(labels: Labels, scores: Values, decision: Decision) -> Score:
    """The same of calibrated probabilities."""
    chance = decision.calibrate(log_odds(scores, decision.positive))
    return _mean_square(*_known(labels, chance, decision.positive))


def calibration_error(labels: Labels, scores: Values, positive: int) -> Score:
    """Expected calibration error: Σ n_b / n · \\|mean p - share of the class\\| over ten equal ranges of p."""
    return _gap(*_known(labels, scores[:, positive].astype(np.float64), positive))


def calibrated_error(labels: Labels, scores: Values, decision: Decision) -> Score:
    """The same of calibrated probabilities."""
    chance = decision.calibrate(log_odds(scores, decision.positive))
    return _gap(*_known(labels, chance, decision.positive))


def _known(labels: Labels, chance: Odds, positive: int) -> tuple[NDArray[np.bool_], Odds]:
    return labels[labels >= 0] == positive, chance[labels >= 0]


def _mean_square(there: NDArray[np.bool_], chance: Odds) -> Score:
    return Score(float(np.square(chance - there).mean()), len(there)) if len(there) else Score(None, 0)


def _gap(there: NDArray[np.bool_], chance: Odds) -> Score:
    if not len(there):
        return Score(None, 0)
    place = np.minimum((chance * GROUPS).astype(np.int64), GROUPS - 1)
    gaps = np.bincount(place, weights=chance - there, minlength=GROUPS)
    return Score(float(np.abs(gaps).sum() / len(there)), len(there))


def hits_at_10(labels: Labels, scores: Values) -> Score:
    """Share of links that rank above all but nine of the pairs that are none; undefined with fewer than ten of these.

    Args:
        labels: [n] 1 for links, 0 for other pairs.
        scores: [n].
    """
    links, others = scores[labels == 1], scores[labels == 0]
    if not len(links) or len(others) < 10:
        return Score(None, 0)
    tenth = np.partition(others, -10)[-10]
    return Score(float((links > tenth).mean()), len(links) + len(others))
