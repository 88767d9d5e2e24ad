"""`graphsilo compare`."""

from __future__ import annotations

import csv
import json

import pytest


def test_compare(call, finished, tmp_path):
    page = tmp_path / "c.html"
    code, out, _ = call("compare", finished, finished / "references/local", "--report", page)
    assert code == 0
    assert out.splitlines()[0].split("  ")[0] == "Test, %"
    assert "*: best mean" in out
    assert page.exists()
    assert call("compare", finished, "--format", "markdown")[1].startswith("| Method |")
    assert "\\toprule" in call("compare", finished, "-f", "latex")[1]
    rows = list(csv.reader(call("compare", finished, "--format", "csv", "--metric", "accuracy")[1].splitlines()))
    run = next(row for row in rows if row[1] == "run")
    expected = json.loads((finished / "result.json").read_text())["summary"]["test"]["accuracy"]["mean"]
    assert float(run[rows[0].index("accuracy_mean")]) == pytest.approx(expected)
    assert call("compare", finished, "--metric", "accurate")[0] == 2
    assert call("compare", tmp_path)[0] == 2


def test_report(call, finished, tmp_path):
    code, out, _ = call("report", finished, "--out", tmp_path / "page.html")
    assert code == 0
    assert out.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!")
