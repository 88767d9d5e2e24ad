from __future__ import annotations

import numpy as np
import pytest

from graphsilo.evaluate import binned, rare
from graphsilo.evaluate.scores import average_precision


def draw(seed: int, n: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes, log-odds that say something of them, and both classes' probabilities."""
    random = np.random.default_rng(seed)
    labels = (random.random(n) < 0.05).astype(np.int64)
    odds = 2 * labels - 3 + random.normal(size=n)
    chance = 1 / (1 + np.exp(-odds))
    return labels, odds, np.stack([1 - chance, chance], axis=1)


def test_worked_by_hand():
    table = np.zeros((2, binned.BINS), dtype=np.int64)
    table[:, 150], table[:, 140], table[0, 3] = (1, 1), (0, 1), 3
    curve = binned.precision_recall(table)
    assert [curve.recall.tolist(), curve.precision.tolist()] == [[0.5, 1, 1], [0.5, 2 / 3, 1 / 3]]
    assert curve.taken.tolist() == pytest.approx([2 / 6, 3 / 6, 1])
    assert binned.average_precision(table) == pytest.approx(0.25 + 1 / 3)
    assert binned.precision_recall(table[[0, 0]] * [[1], [0]]) is None


@pytest.mark.parametrize("seed", range(3))
def test_near_what_the_items_say(seed):
    labels, odds, shares = draw(seed)
    table = binned.count(labels == 1, odds)
    places = binned.count_places(labels == 1, 7 * odds - 3)
    assert binned.average_precision(places) == pytest.approx(binned.average_precision(table), abs=0.03)
    assert table.sum(axis=1).tolist() == np.bincount(labels).tolist()
    assert binned.average_precision(table) == pytest.approx(average_precision(labels, shares, 1).value, abs=0.01)
    for aim, share in (("f1", 0.0), ("budget", 0.02), ("0.6", 0.0)):
        found, exact = binned.choose(table, 1, aim, share), rare.choose(labels, odds, 1, aim, share)
        assert found.threshold == pytest.approx(exact.threshold, abs=0.15)
        assert found[2:4] == pytest.approx(exact[2:4], abs=0.03)
        # What is counted above an edge is what a threshold there finds
        counted = binned.count_scores(labels, shares, 1, found)
        assert (
            binned.split_columns(counted)[3].tolist() == table[:, found.threshold <= binned.EDGES].sum(axis=1).tolist()
        )


def test_calibration_groups_hold_everything_once():
    labels, odds, _ = draw(1)
    groups = binned.calibration(binned.count(labels == 1, odds), 8)
    assert 4 <= len(groups) <= 9
    assert sum(items for _, _, items in groups) == len(labels)
    assert sum(share * items for _, share, items in groups) == pytest.approx(labels.sum())
    assert [mean for mean, _, _ in groups] == sorted(mean for mean, _, _ in groups)
    assert binned.calibration(np.zeros((2, binned.BINS), dtype=np.int64)) == []


def test_no_bin_has_few_items():
    labels, odds, shares = draw(2, 300)
    whole, joined = binned.count(labels == 1, odds), binned.count(labels == 1, odds, 5)
    assert not ((joined > 0) & (joined < 5)).any()
    assert joined.sum(axis=1).tolist() == whole.sum(axis=1).tolist()
    # Of what is counted from the top on down to a bin that holds any, nothing has moved but the last that are left over
    for before, after in zip(whole[:, ::-1].cumsum(axis=1), joined[:, ::-1].cumsum(axis=1), strict=True):
        places = np.flatnonzero(np.diff(after, prepend=0))[:-1]
        assert before[places].tolist() == after[places].tolist()
    assert not binned.count(np.ones(3, dtype=bool), np.zeros(3), 5).any()
    assert not binned.count_scores(labels, shares, 1, rare.Decision(1, 2.0), 50)[1].any()
