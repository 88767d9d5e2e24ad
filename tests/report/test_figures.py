"""What the figures show."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from graphsilo.experiments.storage.records import RunRecord, record_of
from graphsilo.report import figures, run_page
from graphsilo.report.formats import Names, Spread
from graphsilo.report.html import render
from graphsilo.report.plot import Bars, Dots, Heat
from graphsilo.report.record import Ledger, load
from graphsilo.report.svg import draw
from kit import result_tree


def test_label_map_shows_shares_and_keeps_counts() -> None:
    counts = {"nodes": 4, "train": 1, "val": 1, "test": 2}
    per_client = [{"client": 5, "labels": [3, 1], **counts}, {"client": 7, "labels": [0, 0], **counts}]
    partition = record_of(result_tree(partition={"per_client": per_client}), RunRecord).partition
    figure = figures.label_map(partition, ["A", "A"])
    assert figure is not None
    plot = figure.plots["labels"]
    [heat] = plot.marks
    assert isinstance(heat, Heat)
    assert heat.values.tolist() == [[75.0, 25.0], [0.0, 0.0]]
    assert heat.counts is not None
    assert heat.counts.tolist() == [[3, 1], [0, 0]]
    assert plot.x.names == ("A (0)", "A (1)")  # equal names could not be told apart
    assert plot.y.names == ("5", "7")


def test_confusion_colours_the_share_of_the_true_class() -> None:
    figure = figures.confusion([[8, 2], [0, 0]])
    assert figure is not None
    [heat] = figure.plots["confusion"].marks
    assert isinstance(heat, Heat)
    assert heat.values.tolist() == [[80.0, 20.0], [0.0, 0.0]]
    assert figures.confusion([[0, 0], [0, 0]]) is None
    decided = figures.confusion([[8, 2], [0, 0]], decided=True)
    assert "columns likelier classes, whatever the threshold decides;" in decided.caption
    assert "columns predictions;" in figure.caption
    assert figures.confusion([]) is None


@pytest.mark.slow
def test_a_thousand_clients_stay_small(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", clients=1000, classes=40, rounds=2, seeds=1))
    drawn = {figure.name: figure for figure in run_page.describe(run).figures}
    [heat] = drawn["label-map"].plots["labels"].marks
    assert isinstance(heat, Heat)
    assert heat.values.shape == (600, 40)
    assert "600 of 1000" in drawn["label-map"].caption
    [bars] = drawn["homophily"].plots["homophily"].marks
    assert isinstance(bars, Bars)
    assert (len(bars.values), sum(value or 0 for value in bars.values)) == (20, 1000)
    assert "uploads" not in drawn  # everybody sends the same
    assert len(render(run)) < 700_000


def test_numbers_below_the_homophily_of_many_clients_reach_its_ends() -> None:
    counts = {"nodes": 4, "train": 1, "val": 1, "test": 2}
    per_client = [{"client": k, "homophily": 0.61 + 0.39 * k / 299, **counts} for k in range(300)]
    figure = figures.homophily(record_of(result_tree(partition={"per_client": per_client}), RunRecord).partition)
    assert figure is not None
    [(_, pictures)] = draw(figure)
    wide, narrow = (re.findall(r'text-anchor="middle">([^<]+)', picture) for _, picture in pictures)
    assert wide == ["0.65", "0.7", "0.75", "0.8", "0.85", "0.9", "0.95", "1"]
    assert narrow == ["0.7", "0.8", "0.9", "1"]


def test_a_class_nobody_has_leaves_a_gap() -> None:
    figure = figures.per_class([Spread(0.5, None, 1), None, Spread(0.25, 0.05, 3)])
    together = figures.per_class([Spread(0.5, None, 1)], as_one_set=True)
    assert together is not None
    assert "mean over clients" not in together.caption
    assert figure is not None
    [dots] = figure.plots["f1"].marks
    assert isinstance(dots, Dots)
    assert (dots.x, dots.y) == ([50.0, 25.0], [0.0, 2.0])
    assert dots.reach == [(50.0, 50.0), (20.0, 30.0)]


def test_sizes_that_are_alike_are_no_figure() -> None:
    rows = [{"client": place, "train": 48 + place, "accuracy": 0.5} for place in range(7)]
    assert figures.client_scores(rows, "accuracy") is None
    assert figures.client_scores([*rows, {"client": 7, "train": 96, "accuracy": 0.5}], "accuracy") is not None
    sent = {who: {"model": 1000.0} for who in range(3)}
    ledger = Ledger({"up": {"model": 3000.0}}, {"up": sent}, {}, [])
    assert figures.uploads(ledger) is None
    figure = figures.uploads(replace(ledger, by_client={"up": {**sent, 3: {"model": 1500.0}}}), Names({3: "north"}))
    assert figure is not None
    assert figure.plots["uploads"].y.names == ("north", "0", "1", "2")
