"""What a comparison finds, and its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsilo.report import side_by_side
from graphsilo.report.grid import compare_runs
from graphsilo.report.html import render_comparison
from graphsilo.report.plot import Dots
from graphsilo.report.record import Run, load
from graphsilo.report.tables import Comparison
from kit import result_tree, seed_tree


def run_of(folder: Path, title: str, scores: list[list[float]]) -> Run:
    """Scores [seeds][clients] of accuracy, which the seed has the mean of."""
    seeds = [
        seed_tree(
            number,
            {"accuracy": sum(row) / len(row)},
            clients=[{"client": who, "test_items": 10, "test": {"accuracy": value}} for who, value in enumerate(row)],
        )
        for number, row in enumerate(scores)
    ]
    tree = result_tree([{"accuracy": 0.5}], seeds=seeds, method={"name": title.lower(), "title": title})
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(tree))
    return load(folder)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """B is 10, 11 and 12 points behind A: 11 on average, deviation 1, t(2, 97.5 %) = 4.3027, so 11 ± 2.48."""
    ahead = [[0.80, 0.90], [0.80, 0.92], [0.80, 0.94]]
    behind = [[0.70, 0.80], [0.70, 0.80], [0.70, 0.80]]
    return [run_of(tmp_path / "a", "A", ahead), run_of(tmp_path / "b", "B", behind)]


def compared(runs: list[Run]) -> Comparison:
    table = compare_runs(runs)
    assert isinstance(table, Comparison)
    return table


def test_who_leads_and_how_certain_that_is(runs: list[Run], tmp_path: Path) -> None:
    assert side_by_side.sentence(compared(runs)) == (
        "A reaches 86.0 % accuracy, 11.0 points more than B (95\u00a0% interval over three seeds: +8.5 to "
        "+13.5). There are too few seeds to tell this from chance by a test."
    )
    assert side_by_side.sentence(compared(runs[:1])) == ""
    many = [run_of(tmp_path / name, name, [[0.5 + shift + place / 100] for place in range(8)])
            for name, shift in (("C", 0.1), ("D", 0.0))]  # fmt: skip
    # All of eight seeds on one side: 2 of 256 patterns
    assert side_by_side.sentence(compared(many)).endswith(
        "more than chance explains (sign-flip p = 0.0078, corrected)."
    )


def test_differences_are_drawn_with_their_intervals(runs: list[Run]) -> None:
    figure = side_by_side.differences(compared(runs))
    assert figure is not None
    plot = figure.plots["accuracy"]
    [dots] = plot.marks
    assert isinstance(dots, Dots)
    assert plot.y.names == ("B",)
    assert dots.x == [-11.0]
    assert dots.reach[0] == pytest.approx((-13.484, -8.516), abs=1e-3)
    assert plot.x.high is not None
    assert plot.x.high > 0  # no difference is in the picture
    assert "'A'" in figure.caption


def test_clients_stand_under_every_run(runs: list[Run], tmp_path: Path) -> None:
    figure = side_by_side.clients(runs, ["A", "B"])
    assert figure is not None
    first, second = figure.plots["accuracy"].marks
    assert isinstance(first, Dots)
    assert isinstance(second, Dots)
    assert figure.plots["accuracy"].y.names == ("client 1", "client 0")  # the best served first
    assert first.x == pytest.approx([92.0, 80.0])
    assert second.x == pytest.approx([80.0, 70.0])
    other = run_of(tmp_path / "c", "C", [[0.5]])
    assert side_by_side.clients([runs[0], other], ["A", "C"]) is None  # other clients


def test_a_run_that_answers_one_class_is_warned_of(runs: list[Run]) -> None:
    assert "one class" not in render_comparison(runs)
    for seed in runs[0].seeds:
        seed.one_class = [[0, 0], [1, 0]]
    assert "A: at client 0 and client 1 the model answers one class for everything." in render_comparison(runs)
