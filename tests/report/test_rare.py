"""Where the threshold and the budget are on the curve of what is found."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs

from graphsilo.evaluate.binned import BINS, RANKS, precision_recall
from graphsilo.experiments.storage.records import BesideScores, ClientScores, ScoreBins, Scores
from graphsilo.report.formats import Spread
from graphsilo.report.rare import _at_budget, _at_threshold, _is_sound, _precision_at, _say_found


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


def silo(rare, flagged, hits):
    """A silo's row: so many test items of the class, so many above its threshold, so many of these right."""
    numbers = {"threshold_precision": hits / flagged if flagged else None, "threshold_recall": hits / rare}
    return ClientScores(client=0, test_items=600, rare_items=rare, test=Scores(numbers, BesideScores()))


def run_of(*silos, found):
    """A run of one seed, with the counts that silos sent."""
    bins = ScoreBins([[30] * RANKS, [80] + [0] * (RANKS - 1)], [[0] * BINS] * 2, [[0] * BINS] * 2, found)
    means = {"threshold_precision": 0.578, "threshold_recall": 0.18}
    seed = SimpleNamespace(clients=silos, score_bins=bins)
    return SimpleNamespace(seeds=[seed], spread=lambda name: Spread(means[name], None, 1))


def test_what_silos_flag_is_counted_together_and_who_flags_nobody_is_said():
    """8 of 10 and 6 of 32 are 14 of 42, one third, and neither the mean of .8 and .19 nor that with the third silo."""
    silos = silo(20, 10, 8), silo(30, 32, 6), silo(30, 0, 0)
    assert _say_found(run_of(*silos, found=[28, 14]), "class 'mule'") == (
        "14 of the 42 test items that silos flag are of class 'mule', of 80 in all. 1 of the 3 silos flags none."
    )
    assert _say_found(run_of(*silos[:2], found=[28, 14]), "it").endswith("of 80 in all.")


def test_counts_that_a_silo_held_back_are_no_sum_of_all():
    """Of few items nothing is sent, and 8 are not all hits: means are said, and over whom."""
    held = run_of(silo(20, 10, 8), silo(30, 32, 6), silo(30, 0, 0), found=[26, 8])
    assert _say_found(held, "it") == (
        "57.8 % are of it (mean of silos that flag any); they hold 18.0 % of its items (mean of silos). 1 of "
        "the 3 silos flags none."
    )


def test_counts_that_were_changed_by_hand_are_left_out_and_the_page_is_made() -> None:
    sound = ScoreBins([[1] * RANKS] * 2, [[0] * BINS, [2] * BINS], [[1] * BINS] * 2, [3, 4])
    assert _is_sound(sound)
    for changed in (
        {"places": [[1] * RANKS]}, {"model": [[1] * BINS, [1] * (BINS - 1)]}, {"found": [1]},
        {"calibrated": [[1] * BINS, [-1] * BINS]}, {"found": []}, {"places": []},
    ):  # fmt: skip
        assert not _is_sound(structs.replace(sound, **changed))
