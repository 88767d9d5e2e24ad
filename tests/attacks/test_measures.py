"""Figures of attacks and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.attacks.measures import auc, auc_interval, count_detected, mean_interval, wilson


def test_wilson_by_hand():
    # z² = 3.8415: centre (0.5 + 0.19207) / 1.38415 = 0.5, half 1.96 / 1.38415 · √(0.025 + 0.0096037) = 0.26341
    assert wilson(5, 10) == pytest.approx((0.5, 0.236593, 0.763407), abs=1e-6)
    assert wilson(0, 10) == pytest.approx((0.0, 0.0, 0.277533), abs=1e-6)
    share, low, high = wilson(10, 10)
    assert (share, high) == (1.0, 1.0)
    assert low == pytest.approx(1 - 0.277533, abs=1e-6)


def test_the_area_is_that_of_the_pairs():
    # pairs in order: (3 > 1), (3 > 2), (2 > 1), and (2 = 2) counts half
    assert auc(np.array([3.0, 2.0, 1.0, 2.0]), np.array([True, True, False, False])) == pytest.approx(3.5 / 4)
    assert auc(np.ones(3), np.array([True, True, True])) is None
    assert auc_interval(np.ones(3), np.array([True, True, True])) is None


def test_the_interval_of_a_random_scorer_holds_a_half():
    held = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        found = auc_interval(draw.normal(size=120), draw.random(120) < 0.5, draws=200)
        held += found[1] <= 0.5 <= found[2]
    assert held >= 34  # 38 are expected; fewer than 34 come once in thirty times 40


def test_the_interval_of_a_perfect_scorer_is_a_point():
    assert auc_interval(np.arange(20.0), np.arange(20) >= 10) == (1.0, 1.0, 1.0)


def test_who_is_caught_at_a_false_alarm_in_a_hundred():
    scores = np.concatenate([np.arange(100.0), [98.5, 99.5, 50.0, 98.0]])
    truth = np.arange(104) >= 100
    # One of the 100 negatives, 99, may be above the threshold, which is then 98: 98.5 and 99.5 are caught, 98 is not.
    assert count_detected(scores, truth) == (2, 4)
    assert count_detected(scores, truth, 0.0) == (1, 4)


def test_the_mean_of_groups():
    assert mean_interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)
    mean, low, high = mean_interval([0.0, 1.0] * 50)
    assert mean == 0.5
    assert low == pytest.approx(0.4, abs=0.03)
    assert high == pytest.approx(0.6, abs=0.03)
