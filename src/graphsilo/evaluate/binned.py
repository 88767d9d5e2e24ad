"""How the scores of a class that is looked for lie: counts in bins, which add up over silos.

Scores are log-odds z. Bins are equally wide in arsinh z: near 0 they are .04 wide, where models are sure, 4 % of z.
What is read off them is exact for a threshold at the edge of a bin. Models of different silos may score on different
scales; so items are also counted by the place that they have in their own silo's ranking, in bins of equal ratios: what
is found if every silo looks into the same share of its items. Of counts the first row has the items of the other class,
the second those of the class looked for; the highest scores are in the last bin.

Worked by hand: one bin with 1 item looked for of 2, below it one with 1 of 1, then 3 others. Recall .5 at a precision
of .5, recall 1 at 2 / 3, and 1 / 3 in the end. Average precision .5 · 1 / 2 + .5 · 2 / 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.rare import Decision, Labels, Odds, choose_sorted, log_odds

BINS = 200
"""How many there are."""
_HALF = BINS // 2
_WIDTH = float(np.arcsinh(40.0)) / _HALF  # |z| above 40 is in the last ones
EDGES: Odds = np.sinh(_WIDTH * np.arange(-_HALF, _HALF))
"""[BINS] lower end of each; that of the first is where it would begin."""
MIDDLES: Odds = np.sinh(_WIDTH * (np.arange(-_HALF, _HALF) + 0.5))
"""[BINS] log-odds that stand for each."""
RANKS = 60
"""How many bins of places there are."""
_ENDS: Odds = np.logspace(-4, 0, RANKS + 1)[1:-1]  # shares of the items, from the top
COLUMNS = RANKS + 2 * BINS + 1
"""Of a table of ``count_scores``."""

Table: TypeAlias = "NDArray[np.int64]"


def count(there: NDArray[np.bool_], odds: Odds, least: int = 1) -> Table:
    """[2, BINS] items by class and bin.

    Args:
        there: [n] whether an item is of the class looked for.
        odds: [n] log-odds.
        least: Fewer items than this do not stand in a bin by themselves: bins are joined from the top until they have
            as many, in the lowest of them, and of what is left over at the end, in the last one that had. Of fewer
            items in all nothing is counted.
    """
    return _count(there, np.searchsorted(EDGES[1:], odds, side="right"), BINS, least)


def count_places(there: NDArray[np.bool_], odds: Odds, least: int = 1) -> Table:
    """[2, RANKS] items by class and place in the ranking; equal scores share the middle of their places."""
    _, place, sizes = np.unique(-odds, return_inverse=True, return_counts=True)
    middle = (np.cumsum(sizes) - sizes / 2) / max(len(odds), 1)
    return _count(there, RANKS - 1 - np.searchsorted(_ENDS, middle[place]), RANKS, least)


def _count(there: NDArray[np.bool_], place: NDArray[np.int64], bins: int, least: int) -> Table:
    table = np.stack([np.bincount(place[mask], minlength=bins) for mask in (~there, there)])
    return table if least <= 1 else np.stack([_join_small(row, least) for row in table])


def _join_small(row: Table, least: int) -> Table:
    found, waiting, last = np.zeros_like(row), 0, -1
    for place in range(len(row) - 1, -1, -1):
        waiting += int(row[place])
        if waiting >= least:
            found[place], waiting, last = waiting, 0, place
    if last >= 0:
        found[last] += waiting
    return found


def count_scores(labels: Labels, shares: Odds, positive: int, decision: Decision, least: int = 1) -> Table:
    """[2, COLUMNS]: by place, by log-odds of a model, by calibrated log-odds, and how many are found at the threshold.

    Args:
        labels: [n] classes; items without one (-1) are left out.
        shares: [n, 2] probabilities.
        positive: The class that is looked for.
        decision: Threshold and calibration.
        least: As ``count`` has it.
    """
    known = labels >= 0
    there, odds = labels[known] == positive, log_odds(shares[known], positive)
    found = decision.find(odds)
    taken = np.array([[(found & ~there).sum()], [(found & there).sum()]], dtype=np.int64)
    calibrated = count(there, decision.slope * odds + decision.intercept, least)
    by_model = count_places(there, odds, least), count(there, odds, least)
    return np.hstack([*by_model, calibrated, np.where(taken < least, 0, taken)])


def choose(table: Table, positive: int, aim: str, share: float = 0.0) -> Decision:
    """Threshold and calibration of the validation items that are counted in bins; arguments as ``rare.choose`` has
    them. The threshold is the lower end of a bin, and calibration has the middles for scores."""
    misses, hits = table[:, ::-1]
    there = misses + hits > 0
    return choose_sorted(MIDDLES[::-1][there], EDGES[::-1][there], hits[there], misses[there], positive, aim, share)


class Curve(NamedTuple):
    """Precision and recall from each bin on, from the top.

    Attributes:
        recall, precision: [m] of bins that hold items.
        taken: [m] share of all items.
    """

    recall: Odds
    precision: Odds
    taken: Odds


def precision_recall(table: Table) -> Curve | None:
    """The curve of [2, bins] counts; None where they are of one class."""
    misses, hits = table[:, ::-1].cumsum(axis=1)
    there = (np.diff(misses + hits, prepend=0) > 0) & (misses + hits > 0)
    if not hits[-1] or not misses[-1]:
        return None
    taken = (misses + hits)[there]
    return Curve(hits[there] / hits[-1], hits[there] / taken, taken / taken[-1])


def average_precision(table: Table) -> float | None:
    """Precision averaged over the recall that each bin adds."""
    curve = precision_recall(table)
    return None if curve is None else float(np.diff(curve.recall, prepend=0.0) @ curve.precision)


def calibration(table: Table, groups: int = 10) -> list[tuple[float, float, int]]:
    """Mean probability, share of the class and items of groups of neighbouring bins, from the lowest on.

    Args:
        table: [2, BINS] counts.
        groups: How many at most; each has about as many items of the class looked for, and the lowest the items below.
    """
    misses, hits = table[0], table[1]
    total = int(hits.sum())
    if not total:
        return []
    # Of what lies above a bin, in units of a group: where this passes a whole number, a group ends
    above = np.ceil(hits[::-1].cumsum() / max(total / groups, 1.0))[::-1]
    chance = 1 / (1 + np.exp(-MIDDLES))
    found: list[tuple[float, float, int]] = []
    for number in np.unique(above)[::-1]:
        mine = above == number
        items = int((misses + hits)[mine].sum())
        if items:
            mean = float((misses + hits)[mine] @ chance[mine]) / items
            found.append((mean, float(hits[mine].sum()) / items, items))
    return found


def split_columns(table: Any) -> tuple[Table, Table, Table, Table]:
    """Of a table of ``count_scores``: [2, RANKS] by place, [2, BINS] by the model's log-odds, [2, BINS] by calibrated
    ones, and [2] found at thresholds."""
    whole = np.asarray(table, dtype=np.int64)
    return whole[:, :RANKS], whole[:, RANKS : RANKS + BINS], whole[:, RANKS + BINS : -1], whole[:, -1]
