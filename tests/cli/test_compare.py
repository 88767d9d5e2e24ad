"""`graphsilo compare`."""

from __future__ import annotations

import csv
import json

import pytest

import graphsilo


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


def test_one_metric_of_several_data_sets_is_named(call, tmp_path):
    for seed in (0, 1):
        said = {"name": "citation-sbm", "nodes": 60, "seed": seed}
        graphsilo.run(
            data=said, partition="random", clients=2, method="majority", out=tmp_path / str(seed), report=False
        )
    one = call("compare", tmp_path / "0", tmp_path / "1", "--metric", "macro_f1")[1]
    assert one.startswith("Test Macro-F1, %  citation-sbm, seed 0")
    both = call("compare", tmp_path / "0", tmp_path / "1", "--metric", "macro_f1", "--metric", "accuracy")[1]
    assert both.startswith("Test, %  ")


def test_report(call, finished, tmp_path):
    code, out, _ = call("report", finished, "--out", tmp_path / "page.html")
    assert code == 0
    assert out.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!")
