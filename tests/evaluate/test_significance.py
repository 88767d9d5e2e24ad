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
from graphsilo.evaluate.spread import SeedSummary, item_errors, over_seeds, paired_errors, summarise_seeds


def test_mean_and_spread_over_seeds():
    # deviations -1, 0, 1: sum of squares 2, divided by n - 1 = 2
    assert over_seeds([1.0, 2.0, 3.0]) == SeedSummary(2.0, 1.0, 3)
    assert over_seeds({5: 0.8}) == SeedSummary(0.8, None, 1)
    assert over_seeds([0.8] * 3) == SeedSummary(0.8, 0.0, 3)
    assert over_seeds([None, math.nan]) == SeedSummary(None, None, 0)
    assert over_seeds([None, 1.0, 3.0]) == SeedSummary(2.0, math.sqrt(2), 2)
    assert over_seeds([1.0, 2.0]).as_dict() == {"mean": 1.5, "std": math.sqrt(0.5)}


def test_results_of_several_seeds():
    one = {
        "accuracy": 0.5,
        "min_f1": None,
        "items": 4,
        "per_class_f1": [1.0],
        "worst_client": {"client": 3, "accuracy": 0.1},
    }
    two = {
        "accuracy": 1.0,
        "min_f1": None,
        "items": 4,
        "per_class_f1": [0.0],
        "worst_client": {"client": 1, "accuracy": 0.3},
    }
    result = summarise_seeds([one, two])
    assert result == {
        "accuracy": {"mean": 0.75, "std": pytest.approx(math.sqrt(0.125))},
        "min_f1": {"mean": None, "std": None},
        "worst_client": {"accuracy": {"mean": 0.2, "std": pytest.approx(math.sqrt(0.02))}},
    }
    assert summarise_seeds([one])["accuracy"] == {"mean": 0.5, "std": None}
    assert summarise_seeds([]) == {}


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


def test_only_what_two_models_answer_differently_is_uncertain():
    """Ten items: two that only the first model has right, one that only the second has, seven that both have."""
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    one, other = labels.copy(), labels.copy()
    other[[0, 5]] = 1 - labels[[0, 5]]
    one[7] = 1 - labels[7]
    found = paired_errors(labels, one, other, 2)
    assert found["accuracy"] == pytest.approx(math.sqrt((3 - 10 * 0.1**2) / 10**2))  # deviations from a mean of .1
    both = np.where(np.arange(10) % 2, 1 - labels, labels)  # half of the items wrong, and the same ones
    assert item_errors(confusion(labels, both, classes=2)[None])["accuracy"] == pytest.approx(math.sqrt(0.25 / 10))
    assert paired_errors(labels, both, both, 2) == {"accuracy": 0.0, "macro_f1": 0.0}
    assert paired_errors(labels, one, one, 2) == {"accuracy": 0.0, "macro_f1": 0.0}
    assert paired_errors(labels[:0], one[:0], one[:0], 2) == {}


def confusion(labels, answers, weights=None, classes=3):
    table = np.zeros((classes, classes))
    np.add.at(table, (labels, answers), 1 if weights is None else weights)
    return table


def test_an_item_moves_the_difference_by_its_own_slope():
    """Against weighing one item a little more, of random answers to three classes."""
    draw = np.random.default_rng(0)
    labels, one, other = draw.integers(0, 3, (3, 40))

    def macro_f1(answers, weights):
        table = confusion(labels, answers, weights)
        return float(np.mean(2 * table.diagonal() / (table.sum(0) + table.sum(1))))

    moves = []
    for item in range(40):
        more, less = np.ones(40), np.ones(40)
        more[item] += 1e-5
        less[item] -= 1e-5
        up, down = (macro_f1(one, weights) - macro_f1(other, weights) for weights in (more, less))
        moves.append((up - down) / 2e-5)
    assert paired_errors(labels, one, other, 3)["macro_f1"] == pytest.approx(math.hypot(*moves), rel=1e-6)
