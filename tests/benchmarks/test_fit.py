"""Exponents and medians, worked out by hand."""

from __future__ import annotations

import math

import pytest
from cost.fit import growth, middle


def test_a_power_law_is_found_exactly() -> None:
    found = growth([1, 10, 100], [3, 30 * math.sqrt(10), 3000])  # 3 · size^1.5
    assert found is not None
    assert found.exponent == pytest.approx(1.5)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.last == pytest.approx(1.5)


def test_the_standard_error_of_three_points() -> None:
    # Logarithms: x = 0, 1, 2 and y = 0, 1, 3. Slope (4/3 + 5/3) / 2 = 3/2; residuals 1/6, -1/3, 1/6, squares 1/6 in
    # all, over one degree of freedom and Σ(x - 1)² = 2: sqrt(1/12).
    found = growth([1, math.e, math.e**2], [1, math.e, math.e**3])
    assert found is not None
    assert found.exponent == pytest.approx(1.5)
    assert found.error == pytest.approx(math.sqrt(1 / 12))
    assert found.last == pytest.approx(2.0)


def test_two_points_have_no_error_and_one_has_no_exponent() -> None:
    found = growth([10, 1000], [1, 10])
    assert found is not None
    assert (found.exponent, found.error) == (pytest.approx(0.5), None)
    assert growth([10], [1]) is None
    assert growth([1, 2, 3], [1, 0, 1]) is None  # no logarithm


def test_medians_and_quartiles() -> None:
    assert (middle([3, 1, 2]).value, middle([3, 1, 2]).low, middle([3, 1, 2]).high) == (2, 1, 3)
    five = middle([5, 1, 4, 2, 3])
    assert (five.value, five.low, five.high, five.spread, five.turns) == (3, 2, 4, 1, 5)
