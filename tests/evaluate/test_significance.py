from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphsilo.errors import DataError
from graphsilo.evaluate.significance import compare_paired, gap_closed, holm


def test_one_seed_claims_nothing():
    result = compare_paired([0.9], [0.1])
    assert result.difference == pytest.approx(0.8)
    assert (result.ci_low, result.t_p, result.wilcoxon_p, result.sign_flip_p) == (None,) * 4
    assert result.verdict() == "too few seeds"
    assert result.verdict(alpha=0.99, adjusted_p=0.0) == "too few seeds"


def test_no_common_seed():
    result = compare_paired({0: 0.9}, {1: 0.1})
    assert result.seeds == ()
    assert result.difference is None
    assert result.verdict() == "too few seeds"


def test_pairs_are_matched_by_seed():
    result = compare_paired({2: 0.5, 0: 0.7, 1: 0.6, 3: None}, {0: 0.6, 2: 0.5, 9: 0.0, 3: 0.1})
    assert result.seeds == (0, 2)
    assert result.difference == pytest.approx(0.05)


def test_worked_by_hand():
    # differences 1, 2, 3: mean 2, std 1, t = 2 * sqrt(3); only the two patterns +++ and --- reach |6|: p = 2/8
    result = compare_paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert result.difference == 2.0
    assert result.sign_flip_p == result.smallest_p == 0.25
    assert result.wilcoxon_p == pytest.approx(0.25)
    assert result.t_p == pytest.approx(stats.ttest_rel([2, 4, 6], [1, 2, 3]).pvalue)
    # t quantile 0.975 with 2 degrees of freedom is 4.302653
    assert result.ci_low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert result.ci_high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6)
    assert result.verdict() == "too few seeds"


def test_verdicts():
    low = [0.70, 0.72, 0.70, 0.71, 0.70, 0.74]
    high = [0.80, 0.81, 0.79, 0.80, 0.82, 0.83]
    better = compare_paired(high, low)
    assert better.sign_flip_p == 2 / 64
    assert better.verdict() == "better"
    assert compare_paired(low, high).verdict() == "worse"
    assert better.verdict(adjusted_p=0.06) == "no difference shown"
    assert better.verdict(alpha=2 / 64) == "better"  # a p equal to the level falls to it
    assert compare_paired(low, low[::-1]).verdict() == "no difference shown"


def test_equal_runs():
    result = compare_paired([0.8, 0.7] * 3, [0.8, 0.7] * 3)
    assert (result.t_p, result.wilcoxon_p, result.sign_flip_p) == (1.0, 1.0, 1.0)
    assert result.verdict() == "no difference shown"


def test_rounding_is_no_spread():
    # 0.8 - 0.7, 0.9 - 0.8 and 0.3 - 0.2 differ in their last bits only
    result = compare_paired([0.8, 0.9, 0.3], [0.7, 0.8, 0.2])
    assert result.t_p is None
    assert result.ci_low is None
    assert result.sign_flip_p == 0.25


def test_the_exact_test_counts_all_patterns():
    differences = np.array([0.5, -0.2, 0.9, 0.1, 0.4, -0.3, 0.7])
    patterns = [abs(np.dot(signs, differences)) for signs in itertools.product([1, -1], repeat=7)]
    expected = np.mean(np.array(patterns) >= abs(differences.sum()) - 1e-9)
    assert compare_paired(differences.tolist(), [0.0] * 7).sign_flip_p == pytest.approx(expected, abs=1e-15)


def test_many_seeds_are_drawn_reproducibly():
    random = np.random.default_rng(0)
    one, two = random.normal(0.3, 1, 40).tolist(), [0.0] * 40
    result = compare_paired(one, two)
    assert result == compare_paired(one, two)
    assert result.sign_flip_p == pytest.approx(result.t_p, abs=0.02)
    assert compare_paired([1.0 + i / 100 for i in range(40)], two).sign_flip_p > 0


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=9))
def test_equal_to_scipy(pairs):
    one, two = ([pair[side] / 100 for pair in pairs] for side in (0, 1))
    result = compare_paired(one, two)
    differences = np.array([a - b for a, b in pairs])
    if np.ptp(differences):
        test = stats.ttest_rel(one, two)
        assert result.t_p == pytest.approx(test.pvalue)
        assert result.ci_low == pytest.approx(test.confidence_interval().low)
        assert result.wilcoxon_p == pytest.approx(stats.wilcoxon(differences).pvalue)
    swapped = compare_paired(two, one)
    if len(set(pairs)) == 1:  # one number, many times: nothing was drawn
        assert result.seeds == (0,)
        assert result.sign_flip_p is None
        return
    assert result.smallest_p <= result.sign_flip_p <= 1
    assert swapped.difference == pytest.approx(-result.difference)
    assert swapped.sign_flip_p == pytest.approx(result.sign_flip_p)


def test_holm_by_hand():
    # sorted 0.01, 0.03, 0.04 times 3, 2, 1: 0.03, 0.06, and 0.04 raised to 0.06
    assert holm([0.01, 0.04, None, 0.03]) == [0.03, 0.06, None, 0.06]
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.0, 1.0]) == [0.0, 1.0]
    for p in (1.5, -0.5):
        with pytest.raises(DataError, match="between 0 and 1"):
            holm([p])


def test_gap_closed():
    assert gap_closed(0.75, 0.5, 1.0) == 0.5
    assert gap_closed(0.25, 0.5, 1.0) == -0.5
    assert gap_closed(0.6, 0.5, 0.5) is None
    assert gap_closed(0.6, 0.5, 0.4) is None
