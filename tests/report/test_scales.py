"""Ticks, and places of names."""

from __future__ import annotations

import pytest

from graphsilo.report.scales import Scale, apart, nice, number


@pytest.mark.parametrize(("step", "rounded"), [(0.3, 0.5), (7, 10), (1, 1), (0.021, 0.05), (150, 200), (0, 1)])
def test_steps_between_ticks_are_round(step: float, rounded: float) -> None:
    assert nice(step) == pytest.approx(rounded)


@pytest.mark.parametrize(
    ("low", "high", "pixels", "whole", "ticks"),
    [
        (0.61, 0.998, 300, False, [0.7, 0.8, 0.9]),  # steps of 0.2 would leave 0.8
        (0.61, 0.998, 600, False, [0.7, 0.8, 0.9]),
        (3, 7, 100, True, [4, 6]),  # of 5, only 5
        (3, 4, 10, True, [3, 4]),
        (0.6, 1.4, 100, True, [1]),  # there is no other whole number
    ],
)
def test_an_axis_has_two_ticks_or_more(low: float, high: float, pixels: float, whole: bool, ticks: list[float]) -> None:
    assert Scale(low, high, 0, pixels, False).ticks(90, whole) == pytest.approx(ticks)


def test_decades_are_two_or_more_however_narrow_the_place() -> None:
    assert Scale(1, 100, 0, 300, True).ticks(90, False) == [1, 10, 100]
    assert Scale(1, 1000, 0, 100, True).ticks(90, False) == [1, 1000]


def test_ticks_are_written_as_people_read_them() -> None:
    assert [number(value) for value in (0, 0.25, -3, 12_000, 1e7, 5e-5)] == [
        "0", "0.25", "−3", "12\u202f000", "1e7", "5e-5",
    ]  # fmt: skip


def test_names_keep_apart_and_in_order() -> None:
    assert apart([10, 11, 40], 8, 0, 100) == [6.5, 14.5, 40]
    assert apart([11, 10], 8, 0, 100) == [14.5, 6.5]
    assert apart([98, 99, 100], 10, 0, 100) == [80, 90, 100]  # not below the plot
    assert apart([], 10, 0, 100) == []
