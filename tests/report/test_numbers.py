"""Tables of what figures show."""

from __future__ import annotations

import numpy as np

from graphsilo.report.numbers import ROWS, numbers
from graphsilo.report.plot import Axis, Bars, Dots, Heat, Line, Plot


def test_lines_are_read_off_at_a_few_places() -> None:
    lines = (Line("one", list(range(1, 101)), [float(x) for x in range(1, 101)]), Line("two", [1, 100], [0.5, None]))
    table = numbers(Plot(Axis("Round"), Axis(), lines))
    assert table is not None
    assert table.columns == ("Round", "one", "two")
    assert len(table.rows) == ROWS
    assert (table.rows[0], table.rows[-1]) == (("1", "1", "0.5"), ("100", "100", "–"))


def test_cells_have_their_counts() -> None:
    heat = Heat(np.array([[75.0, 25.0]]), 100.0, np.array([[3, 1]]))
    table = numbers(Plot(Axis("Class", ("A", "B")), Axis(names=("north",)), (heat,)))
    assert table is not None
    assert (table.columns, table.rows) == (("Row", "A", "B"), (("north", "3", "1"),))
    names = tuple(map(str, range(40)))
    assert numbers(Plot(Axis(names=names), Axis(names=names), (Heat(np.ones((40, 40)), 1.0),))) is None


def test_named_rows_have_what_stands_in_them() -> None:
    dots = (Dots("cut", [1.5], [1]), Dots("whole", [1.0, 2.0], [0, 1]))
    table = numbers(Plot(Axis("Bound"), Axis(names=("a", "b")), dots))
    assert table is not None
    assert (table.columns, table.rows) == (("", "cut", "whole"), (("a", "–", "1"), ("b", "1.5", "2")))
    table = numbers(Plot(Axis("MB"), Axis(names=("a", "b")), (Bars([3.0, None]),)))
    assert table is not None
    assert table.rows == (("a", "3"), ("b", "–"))


def test_a_cloud_of_points_has_no_table() -> None:
    assert numbers(Plot(Axis(), Axis(), (Dots("", [1.0], [2.0]),))) is None
