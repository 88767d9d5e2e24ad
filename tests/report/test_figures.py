"""What the figures show."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from graphsilo.experiments.storage.records import RunRecord, record_of
from graphsilo.report import figures, run_page
from graphsilo.report.formats import Spread
from graphsilo.report.record import load
from kit import result_tree


def test_label_map_shows_shares_and_keeps_counts() -> None:
    counts = {"nodes": 4, "train": 1, "val": 1, "test": 2}
    per_client = [{"client": 5, "labels": [3, 1], **counts}, {"client": 7, "labels": [0, 0], **counts}]
    partition = record_of(result_tree(partition={"per_client": per_client}), RunRecord).partition
    figure = figures.label_map(partition, ["A", "A"])
    assert figure is not None
    [trace] = figure.plots["labels"]["data"]
    assert trace["z"] == [[75.0, 25.0], [0.0, 0.0]]
    assert trace["customdata"] == [[3, 1], [0, 0]]
    assert trace["x"] == ["A (0)", "A (1)"]  # equal names would share a column


def test_confusion_colours_the_share_of_the_true_class() -> None:
    figure = figures.confusion([[8, 2], [0, 0]])
    assert figure is not None
    assert figure.plots["confusion"]["data"][0]["z"] == [[80.0, 20.0], [0.0, 0.0]]
    assert figures.confusion([[0, 0], [0, 0]]) is None
    assert figures.confusion([]) is None


def test_a_thousand_clients_stay_small(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", clients=1000, classes=40, rounds=2, seeds=1))
    drawn = {figure.name: figure for figure in run_page.describe(run)[1]}
    assert len(drawn["label-map"].plots["labels"]["data"][0]["z"]) == 600
    assert "600 of 1000" in drawn["label-map"].caption
    assert len(drawn["homophily"].plots["homophily"]["data"][0]["x"]) == 20
    assert sum(drawn["homophily"].plots["homophily"]["data"][0]["y"]) == 1000
    assert {len(trace["x"]) for trace in drawn["uploads"].plots["uploads"]["data"]} == {40}


def test_a_class_nobody_has_leaves_a_gap() -> None:
    figure = figures.per_class([Spread(0.5, None, 1), None])
    assert figure is not None
    assert figure.plots["f1"]["data"][0]["x"] == [50.0, None]


def test_text_from_outside_is_no_markup_for_plotly() -> None:
    names = figures.class_labels(2, ["<b>x</b>", "%{customdata}"])
    assert names == ["&lt;b&gt;x&lt;/b&gt;", "% {customdata}"]
