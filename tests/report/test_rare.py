"""Where the threshold and the budget are on the curve of what is found."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from graphsilo.evaluate.binned import BINS, RANKS, precision_recall
from graphsilo.experiments.storage.records import ScoreBins
from graphsilo.report.rare import _at_budget, _at_threshold, _is_sound, _precision_at


def test_points_on_the_curve():
    """Ten items: of the first two one is looked for, of the next two one, then none."""
    places = [[0, 6, 1, 1], [0, 0, 1, 1]]
    bins = ScoreBins(places, places, places, [2, 1])
    curve = precision_recall(np.array(places))
    assert _at_threshold(bins) == (0.5, pytest.approx(1 / 3))
    assert _at_budget(bins, curve, 0.2, 3) == pytest.approx((0.5, 0.5))
    assert _at_budget(bins, curve, 1, 3) == pytest.approx((0.75, 0.5))  # three silos of one each, between two places
    assert _precision_at(curve)[[0, 49, 50, 99]].tolist() == [0.5, 0.5, 0.5, 0.5]
    assert _at_threshold(ScoreBins(places, places, places, [0, 0])) is None


def test_counts_that_were_changed_by_hand_are_left_out_and_the_page_is_made() -> None:
    sound = ScoreBins([[1] * RANKS] * 2, [[0] * BINS, [2] * BINS], [[1] * BINS] * 2, [3, 4])
    assert _is_sound(sound)
    for changed in (
        {"places": [[1] * RANKS]}, {"model": [[1] * BINS, [1] * (BINS - 1)]}, {"found": [1]},
        {"calibrated": [[1] * BINS, [-1] * BINS]}, {"found": []}, {"places": []},
    ):  # fmt: skip
        assert not _is_sound(structs.replace(sound, **changed))
