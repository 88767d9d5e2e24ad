"""Cells that a spreadsheet would compute."""

from __future__ import annotations

import csv
import io

import pytest

from graphsilo.spreadsheets import csv_text


@pytest.mark.parametrize(
    "text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", '=HYPERLINK("x")', "-", "-1-1"]
)
def test_a_text_is_no_formula(text):
    (row,) = csv.reader(io.StringIO(csv_text([[text, "b"]]), newline=""))
    assert row == [f"'{text}", "b"]


@pytest.mark.parametrize("cell", ["-0.5", "+1e-3", "-inf", -1, -0.5, "a=1", "", None, "x@y", True])
def test_all_else_stays(cell):
    assert csv_text([[cell, 1]]) == f"{'' if cell is None else cell},1\n"
