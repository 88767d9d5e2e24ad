"""Ranks over data sets, against numbers worked out by hand and printed elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import friedmanchisquare

from graphsilo.errors import DataError
from graphsilo.evaluate.ranks import count_needed, critical_difference, friedman, rank


def test_ranks_by_hand() -> None:
    """Three methods on three data sets, always in the same order: mean ranks 1, 2, 3.

    Chi-square 12·3 / (3·4) · (1 + 4 + 9 - 3·16/4) = 3 · 2 = 6; of 6² = 36 arrangements of the last two data sets one
    is as extreme, but each of the 6 common orders of all three counts once in 6³: p = 6/216 = 1/36.
    """
    found = rank([[0.9, 0.8, 0.7], [0.8, 0.7, 0.6], [0.7, 0.6, 0.5]])
    assert found.means == (1.0, 2.0, 3.0)
    assert found.statistic == pytest.approx(6.0)
    assert found.p == pytest.approx(1 / 36)
    assert found.critical_difference == pytest.approx(2.3437 * (12 / 18) ** 0.5, abs=1e-3)  # 1.914 < 2
    assert count_needed(3) == 3


def test_ties_and_the_direction() -> None:
    assert rank([[1.0, 3.0], [1.0, 2.0]]).means == (1.25, 1.75)
    assert rank([[1.0, 3.0], [1.0, 2.0]], higher_is_better=False).means == (1.75, 1.25)
    assert rank([[0.1 + 0.2, 1.0], [0.3, 2.0]]).means == (1.75, 1.25)  # 0.30000000000000004 is no better than 0.3


def test_the_example_of_demsar() -> None:
    """Demšar (2006): four methods, 14 data sets, mean ranks 3.143, 2.000, 2.893, 1.964; chi-square 9.28, CD 1.25."""
    means = np.array([3.143, 2.000, 2.893, 1.964])
    assert friedman(np.broadcast_to(means, (14, 4))) == pytest.approx(9.28, abs=0.02)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, alpha=0.1) == pytest.approx(1.12, abs=0.005)


def test_many_data_sets_are_drawn_and_stay_near_the_approximation() -> None:
    values = np.random.default_rng(3).normal(size=(4, 12)) + np.array([[0.0], [0.3], [0.6], [0.9]])
    found = rank(values)
    known = friedmanchisquare(*values)
    assert found.statistic == pytest.approx(known.statistic)
    assert found.p == pytest.approx(known.pvalue, abs=0.02)
    assert found == rank(values)  # the draws are seeded


def test_too_few() -> None:
    one = rank([[0.5], [0.4]])
    assert (one.means, one.p, one.critical_difference) == ((1.0, 2.0), None, None)
    assert rank([[0.5, 0.6], [0.4, 0.3]]).p == 0.5  # of two arrangements both are as extreme, or one of four: 2 / 2²
    assert count_needed(2) == 6  # 2^-4 = 0.0625, 2^-5 = 0.031; CD 1.96 / √6 = 0.80 < 1
    with pytest.raises(DataError):
        rank([[0.5, float("nan")]])
