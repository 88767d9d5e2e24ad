"""What the figures show."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphsilo.experiments.storage.records import RunRecord, record_of
from graphsilo.report import comparison_page, curves, figures, plot, run_page
from graphsilo.report.formats import Spread
from graphsilo.report.record import Run, load
from kit import result_tree


def test_plotly_accepts_every_figure(runs: dict[str, Path]) -> None:
    import plotly.graph_objects as graph_objects

    loaded = [load(path) for path in runs.values()]
    drawn = run_page.describe(loaded[0])[1] + comparison_page.describe(loaded)[1]
    assert len(drawn) == 14
    assert len({figure.name for figure in drawn}) == len(drawn)
    for figure in drawn:
        for each in figure.plots.values():
            graph_objects.Figure(each)  # raises on an unknown property


def test_every_colour_has_a_dark_one(runs: dict[str, Path]) -> None:
    _, drawn = run_page.describe(load(runs["fedavg"]))
    used = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", repr([figure.plots for figure in drawn])))
    assert used
    assert used <= set(plot.DARK)


def test_mean_curve_covers_the_rounds_all_seeds_reached(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", seeds=2, rounds=6))
    run.seeds[1].rounds = run.seeds[1].rounds[:4]
    by_round = curves.curves(run)[0].plots["accuracy"]
    means = {trace["name"]: trace for trace in by_round["data"] if "opacity" not in trace}
    assert means["Test"]["x"] == [1.0, 2.0, 3.0, 4.0]
    both = [seed.rounds[1].curve("test")["accuracy"] or 0.0 for seed in run.seeds]
    assert means["Test"]["y"][1] == pytest.approx(50 * sum(both), rel=1e-4)


def test_megabytes_add_up_and_start_with_the_set_up(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", seeds=1, rounds=3, clients=2, payload=500_000))
    [by_size] = [figure for figure in curves.curves(run) if figure.name == "curve-size"]
    test = next(trace for trace in by_size.plots["accuracy"]["data"] if trace["name"] == "Test")
    # Per round 2 clients * (500,004 up + 500,000 down); set-up 2 * 40 bytes
    assert test["x"] == pytest.approx([(80 + n * 2_000_008) / 1e6 for n in (1, 2, 3)], rel=1e-4)


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


def test_long_runs_are_thinned(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", seeds=1, rounds=1500, clients=2))
    test = curves.curves(run)[0].plots["accuracy"]["data"][1]
    assert len(test["x"]) == 400
    assert (test["x"][0], test["x"][-1]) == (1.0, 1500.0)


def test_a_class_nobody_has_leaves_a_gap() -> None:
    figure = figures.per_class([Spread(0.5, None, 1), None])
    assert figure is not None
    assert figure.plots["f1"]["data"][0]["x"] == [50.0, None]


def test_text_from_outside_is_no_markup_for_plotly() -> None:
    names = figures.class_labels(2, ["<b>x</b>", "%{customdata}"])
    assert names == ["&lt;b&gt;x&lt;/b&gt;", "% {customdata}"]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", list(plot.SERIES.items()))
def test_series_stand_out_from_both_pages(colours: tuple[str, str]) -> None:
    light, dark = colours
    assert contrast(light, "#ffffff") >= 3
    assert contrast(dark, "#191f27") >= 3


def test_no_rounds_no_curves(tmp_path: Path) -> None:
    run = Run(tmp_path, record_of(result_tree(), RunRecord))
    empty: list[Any] = []
    assert curves.curves(run) == empty
    assert curves.round_cost(run) == empty
