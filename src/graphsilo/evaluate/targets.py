"""Scores of targets: how far estimated numbers are off, and which of several labels are found.

Each is a client's own value with the items that it rests on (:class:`~graphsilo.evaluate.scores.Score`). Targets are
[n, m], NaN where one is not known; of several the value is the mean over those that have one.

Worked by hand: numbers 1, 2, 4, estimated as 1, 3, 2. Errors 0, 1, -2: mean size 1, root mean square √(5/3). About
their mean 7/3 the numbers have squares of 14/3 in all: R² is 1 - 5 / (14/3). Ranks 1, 2, 3 and 1, 3, 2: correlation ½.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import RunError
from graphsilo.evaluate.scores import Score

Column: TypeAlias = "NDArray[np.floating[Any]]"
_Of = Callable[[Column, Column], "float | None"]


def mean_absolute_error(targets: Column, outputs: Column) -> Score:
    """Mean of |z - y|."""
    return _mean(targets, outputs, lambda y, z: float(np.abs(z - y).mean()))


def mean_errors(off: Column, squared: Column) -> list[float | None]:
    """Standard errors of mean absolute errors over which items are tested: the deviation of |z - y| over √n.

    Args:
        off: [clients, 2] mean absolute error of each, and of how many items.
        squared: [clients, 2] root of the mean squared error of the same.
    Returns:
        By client; None without items.

    Example:
        >>> mean_errors(np.array([[3.0, 4]]), np.array([[5.0, 4]]))  # √((25 - 9) / 4)
        [2.0]
    """
    rows = zip(off[:, 0].tolist(), squared[:, 0].tolist(), off[:, 1].tolist(), strict=True)
    return [max(two**2 - one**2, 0.0) ** 0.5 / items**0.5 if items > 0 else None for one, two, items in rows]


def root_mean_squared_error(targets: Column, outputs: Column) -> Score:
    """√ of the mean of (z - y)²."""
    return _mean(targets, outputs, lambda y, z: float(np.sqrt(np.square(z - y).mean())))


def r_squared(targets: Column, outputs: Column) -> Score:
    """1 - Σ(z - y)² / Σ(y - mean y)²; undefined where all y are the same."""

    def of(y: Column, z: Column) -> float | None:
        total = float(np.square(y - y.mean()).sum())
        return 1.0 - float(np.square(z - y).sum()) / total if total > 0 else None

    return _mean(targets, outputs, of)


def spearman(targets: Column, outputs: Column) -> Score:
    """Correlation of ranks, ties having the mean of theirs; undefined where all of either are the same."""
    from scipy.stats import rankdata

    def of(y: Column, z: Column) -> float | None:
        one, other = (rankdata(each) - (len(each) + 1) / 2 for each in (y, z))
        below = float(np.sqrt((one @ one) * (other @ other)))
        return float(np.clip(one @ other / below, -1, 1)) if below > 0 else None

    return _mean(targets, outputs, of)


def micro_f1(targets: Column, outputs: Column) -> Score:
    """2 · hits / (labels that there are + labels said) over all labels at once, said where a logit is above 0.

    Targets are 1 and 0 here, and -1 where one is not known.
    """
    _check(outputs)
    known = targets >= 0
    there, said = known & (targets == 1), known & (outputs > 0)
    below = int(there.sum() + said.sum())
    items = int(known.any(axis=1).sum())
    return Score(2 * int((there & said).sum()) / below, items) if below else Score(None, 0)


def _mean(targets: Column, outputs: Column, of: _Of) -> Score:
    _check(outputs)
    known = ~np.isnan(targets)
    values = [
        of(targets[there, place].astype(np.float64), outputs[there, place].astype(np.float64))
        for place, there in enumerate(known.T)
        if there.any()
    ]
    found = [value for value in values if value is not None]
    return Score(float(np.mean(found)), int(known.any(axis=1).sum())) if found else Score(None, 0)


def _check(outputs: Column) -> None:
    if np.isnan(outputs).any():
        raise RunError("what the model estimates is NaN: the training has diverged; lower the learning rate.")
