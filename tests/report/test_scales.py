"""Ticks, and places of names."""

from __future__ import annotations

import pytest

from graphsilo.report.scales import apart, nice, number


@pytest.mark.parametrize(("step", "rounded"), [(0.3, 0.5), (7, 10), (1, 1), (0.021, 0.05), (150, 200), (0, 1)])
def test_steps_between_ticks_are_round(step: float, rounded: float) -> None:
    assert nice(step) == pytest.approx(rounded)


def test_ticks_are_written_as_people_read_them() -> None:
    assert [number(value) for value in (0, 0.25, -3, 12_000, 1e7, 5e-5)] == [
        "0", "0.25", "−3", "12\u202f000", "1e7", "5e-5",
    ]  # fmt: skip


def test_names_keep_apart_and_in_order() -> None:
    assert apart([10, 11, 40], 8, 0, 100) == [6.5, 14.5, 40]
    assert apart([11, 10], 8, 0, 100) == [14.5, 6.5]
    assert apart([98, 99, 100], 10, 0, 100) == [80, 90, 100]  # not below the plot
    assert apart([], 10, 0, 100) == []
