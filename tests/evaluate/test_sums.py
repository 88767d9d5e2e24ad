"""Scores of all clients from sums, by hand."""

from __future__ import annotations

import pytest

from graphsilo.evaluate import sums


def test_scores_that_clients_rank_by_hand():
    found = sums.to_weighted_sums({"test/auc": [0.5, 7.0], "val/auc": [float("nan"), 0.0]}, 10)
    assert found["test/auc"].tolist() == [[5.0], [10.0]]
    assert found["val/auc"].tolist() == [[0.0], [0.0]]


def test_what_is_summed_has_few_digits():
    """5 · 1/3 items are 106.67 steps of a 64th: 107."""
    assert sums.to_weighted_sums({"test/auc": [1 / 3, 7.0]}, 5)["test/auc"].tolist() == [[107 / 64], [5.0]]
    assert sums.round_to_step(0.5) == pytest.approx(0.5)
