"""Scores of all clients from sums, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.evaluate import metrics, sums


def counts_of(*tables: list[list[int]]) -> np.ndarray:
    """[kinds, 4, C, C] with all items in the first cell."""
    made = np.zeros((len(tables), 4, 2, 2), dtype=np.int64)
    made[:, 0] = tables
    return made


def test_means_by_hand():
    # n = 10 with accuracy 3/4, n = 30 with 1/2: (10 * 0.75 + 30 * 0.5) / 40 = 0.5625
    one, other = counts_of([[2, 1], [0, 1]]), counts_of([[1, 1], [0, 0]])
    parts = [sums.summands(one, ["test"], 10)["test"], sums.summands(other, ["test"], 30)["test"]]
    found = sums.means(parts[0] + parts[1], (one + other)[0])
    assert found["accuracy"] == pytest.approx(0.5625)
    # F1 of class 0: 4/5 and 2/3; of class 1 the first has 2/3, the second predicts it once and has none: 0
    assert found["per_class_f1"] == pytest.approx([(10 * 0.8 + 30 * 2 / 3) / 40, (10 * 2 / 3) / 40])


def test_a_client_without_items_counts_for_nothing():
    one, none = counts_of([[2, 1], [0, 1]]), counts_of([[0, 0], [0, 0]])
    parts = [sums.summands(one, ["test"], 10)["test"], sums.summands(none, ["test"], 1000)["test"]]
    found = sums.means(parts[0] + parts[1], (one + none)[0])
    assert found == sums.means(parts[0], one[0])
    assert found["accuracy"] == 0.75
    assert sums.means(parts[1], none[0])["accuracy"] is None


@pytest.mark.parametrize("kind", ["test", "missing_class", "new_client"])
def test_means_are_those_over_single_clients(kind):
    draw = np.random.default_rng(0)
    counts = draw.integers(0, 5, (6, 4, 3, 3))
    sizes = draw.integers(1, 99, 6)
    total = sum(sums.summands(counts[k : k + 1], [kind], int(sizes[k]))[kind] for k in range(6))
    found = sums.means(total, counts.sum(axis=0))
    weights = sums.scenario_weights(kind, counts) if kind in sums.SCENARIO_KINDS else sizes
    single = metrics.summarise(counts, weights)
    for name, value in found.items():
        assert value == pytest.approx(single[name], abs=1e-12), name


def test_the_rare_class_of_two():
    one, other = counts_of([[2, 1], [0, 1]]), counts_of([[1, 1], [0, 0]])
    total = sum(sums.summands(each, ["test"], size, 1)["test"] for each, size in ((one, 10), (other, 30)))
    found = sums.means(total, (one + other)[0], 1)
    assert found["rare_f1"] == found["per_class_f1"][1] == pytest.approx((10 * 2 / 3) / 40)


def test_scores_that_clients_rank_by_hand():
    found = sums.ranked({"test/auc": [0.5, 7.0], "val/auc": [float("nan"), 0.0]}, 10)
    assert found["test/auc"].tolist() == [[5.0], [10.0]]
    assert found["val/auc"].tolist() == [[0.0], [0.0]]
