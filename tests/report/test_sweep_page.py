"""Pages of sweeps, from runs that are there."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from graphsilo.experiments import sweep
from graphsilo.experiments.config import load_config
from graphsilo.report import sweep_page
from graphsilo.report.html import page
from graphsilo.report.plot import Dots, Heat, Line
from kit.sample import make_run

LEVELS = {0.01: 0.80, 0.1: 0.82, 1: 0.78, 10: 0.60}
"""Of test and validation, by mu."""


def made(out: Path, grid: dict[str, list], methods: list[str], levels: dict, *, missing: str = "") -> sweep.Sweep:
    """A sweep whose points lie there as runs leave them, but for one."""
    planned = sweep.plan(load_config({"data": "Cora"}), grid, methods, out)
    for point in planned.points:
        if point.name != missing:
            make_run(point.out, rounds=3, seeds=2, level=levels[point.values["method.mu"]])
    return planned


def test_a_curve_marks_what_validation_chose(tmp_path: Path) -> None:
    found = sweep_page.read(made(tmp_path, {"method.mu": [*LEVELS]}, ["fedprox"], LEVELS))
    validation = {row.values["method.mu"]: row.validation.mean for row in found.rows if row.validation}
    best = max(validation, key=lambda mu: validation[mu])
    assert [row.values["method.mu"] for row in found.rows if row.chosen] == [best]
    curve, *_ = sweep_page.figures(found, "g")
    plot = curve.plots["accuracy"]
    assert (plot.x.title, plot.x.log, plot.x.names) == ("mu", True, ())
    lines = [mark for mark in plot.marks if isinstance(mark, Line)]
    assert [line.name for line in lines] == ["FedProx", "Local only", "Centralised (cut)", "Centralised"]
    assert lines[0].x == [0.01, 0.1, 1, 10]
    assert all(low < y < high for low, y, high in zip(lines[0].low, lines[0].y, lines[0].high, strict=True))
    assert [list(mark.x) for mark in plot.marks if isinstance(mark, Dots) and mark.hollow] == [[best]]
    assert sweep_page.sentence(found).startswith(f"Validation chose mu {best:g} (test ")


def test_of_two_settings_validation_chooses_where_the_data_is_the_same(tmp_path: Path) -> None:
    grid = {"method.mu": [0.1, 1], "partition.clients": [2, 5, 10]}
    found = sweep_page.read(made(tmp_path, grid, ["fedprox"], LEVELS, missing="FedProx, mu 0.1, clients 5"))
    chosen = [row.values["partition.clients"] for row in found.rows if row.chosen]
    assert sorted(chosen) == [2, 5, 10]  # one for each number of clients
    [figure] = sweep_page.figures(found, "g")
    [heat] = figure.plots["accuracy"].marks
    assert isinstance(heat, Heat)
    assert heat.values.shape == (3, 2)
    assert str(heat.values[1, 0]) == "nan"
    assert len(heat.framed) == 3
    assert 0 < heat.low < heat.top < 100
    text = page(sweep_page.describe([found], "", [], {"FedProx, mu 0.1, clients 5": "it\ndiverged"}))
    assert text.count('class="frame"') >= 6  # wide and narrow
    assert "FedProx, mu 0.1, clients 5: it diverged" in text


def test_without_a_grid_series_stand_beside_each_other(tmp_path: Path) -> None:
    planned = sweep.plan(load_config({"data": "Cora"}), {"method.lr": [0.1, 1]}, ["fedavg", "fedprox"], tmp_path)
    points = [sweep.point(each.series, {}, each.config, tmp_path) for each in planned.points[::2]]
    for place, each in enumerate(points):
        make_run(each.out, rounds=3, level=0.7 + 0.1 * place, payload=90_000 * (1 + place))
    found = sweep_page.read(sweep.Sweep("Panel", {}, tuple(points), {}, tmp_path, ("accuracy",)))
    scores, *beside = sweep_page.describe([found], "", [], {}).figures
    assert scores.plots["accuracy"].y.names == ("FedAvg", "FedProx", "Local only", "Centralised (cut)", "Centralised")
    assert [figure.name for figure in beside] == ["sweep-0-compare-rounds", "sweep-0-trade-off"]
    rings = [mark for mark in beside[0].plots["accuracy"].marks if isinstance(mark, Dots)]
    assert len(rings) == 2
    assert not any(row.chosen for row in found.rows)


def test_a_setting_that_changed_nothing_is_said_so(tmp_path: Path) -> None:
    planned = made(tmp_path, {"method.mu": [0.1, 1]}, ["fedprox"], {0.1: 0.8, 1: 0.8})
    assert "makes no difference to them" in sweep_page.sentence(sweep_page.read(planned))


@pytest.mark.parametrize(
    ("values", "log", "names"),
    [
        ([1, 2, 4], False, ()),
        ([0.001, 0.01, 0.1], True, ()),
        ([0, 0.01, 1], False, ("0", "0.01", "1")),
        ([0, 0.5, 1], False, ()),
        (["gcn", "sage"], False, ("gcn", "sage")),
        ([None, 3], False, ("none", "3")),
        ([True, False], False, ("true", "false")),
    ],
)
def test_axes(values: list, log: bool, names: tuple[str, ...]) -> None:
    axis, places = sweep_page.axis_of("method.x", values)
    assert (axis.log, axis.names) == (log, names)
    assert len(set(places.values())) == len(values)


def test_the_table_for_programs(tmp_path: Path) -> None:
    found = sweep_page.read(made(tmp_path, {"method.mu": [0.1, 1]}, ["fedprox"], LEVELS))
    rows = list(csv.DictReader(io.StringIO(sweep_page.to_csv([found]))))
    [one] = [row for row in rows if (row["method.mu"], row["row"], row["metric"]) == ("1", "test", "accuracy")]
    result = json.loads((Path(one["folder"]) / "result.json").read_text())
    assert float(one["mean"]) == pytest.approx(sum(seed["test"]["accuracy"] for seed in result["seeds"]) / 2)
    assert (one["series"], one["seeds"], one["chosen"]) == ("FedProx", "0 1", "False")
    assert {row["row"] for row in rows} == {"validation", "test", "Local only", "Centralised (cut)", "Centralised"}
