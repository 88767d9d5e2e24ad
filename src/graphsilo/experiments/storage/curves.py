"""What the result says of the test part for curves: how scores lie, and how good they are by period."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.binned import split_columns
from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.evaluation import SetScores
from graphsilo.experiments.periods import name_periods
from graphsilo.experiments.storage.records import Period, ScoreBins


def score_bins(tables: NDArray[np.int64]) -> ScoreBins:
    """The sum over clients of their tables, [clients, 2, columns]."""
    return ScoreBins(*(part.tolist() for part in split_columns(tables.sum(axis=0))))


def score_periods(scores: SetScores, bounds: Sequence[float]) -> list[Period] | None:
    """What the result says of each; None where there are none."""
    found = []
    for place, name in enumerate(name_periods(bounds) if len(bounds) else ()):
        kind, share = f"test:{place}", None
        full = scores.full(kind)
        if scores.counts is not None and kind in scores.kinds:
            true = scores.of(kind).sum(axis=(0, 1, 3))
            items = int(true.sum())
            if scores.rare is not None and items:
                share = float(true[scores.rare] / items)
        else:
            sizes = [int(pairs[:, 1].sum()) for key, pairs in scores.scores.items() if key.startswith(f"{kind}/")]
            items = max(sizes, default=0)
        known = {key: value for key, value in full.numbers.items() if key in METRICS and METRICS[key].is_main}
        found.append(Period(name, items, share, known))
    return found or None
