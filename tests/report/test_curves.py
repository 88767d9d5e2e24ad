"""Curves over rounds and bytes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphsilo.experiments.storage.records import RunRecord, record_of
from graphsilo.report import curves
from graphsilo.report.plot import Line
from graphsilo.report.record import Run, load
from kit import COSTS, result_tree, seed_tree


def test_mean_curve_covers_the_rounds_all_seeds_reached(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", seeds=2, rounds=6))
    run.seeds[1].rounds = run.seeds[1].rounds[:4]
    by_round = curves.curves(run)[0].plots["accuracy"]
    test = {mark.name: mark for mark in by_round.marks}["Test"]
    assert isinstance(test, Line)
    assert test.x == [1.0, 2.0, 3.0, 4.0]
    both = [seed.rounds[1].curve("test")["accuracy"] or 0.0 for seed in run.seeds]
    assert test.y[1] == pytest.approx(50 * sum(both), rel=1e-4)
    # Of two numbers the sample standard deviation is their difference over the root of 2
    wide = 100 * abs(both[0] - both[1]) / 2**0.5
    assert test.high[1] - test.low[1] == pytest.approx(2 * wide, abs=2e-3)


def test_megabytes_add_up_and_start_with_the_set_up(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", seeds=1, rounds=3, clients=2, payload=500_000))
    assert [figure.name for figure in curves.curves(run)] == ["curve-rounds"]  # megabytes would be rounds again
    assert [figure.name for figure in curves.round_cost(run)] == ["round-seconds"]  # every round costs the same
    run.seeds[0].rounds[2].upload_bytes += 1_000_000
    by_round = curves.round_cost(run)[0].plots["bytes"]
    assert {mark.name: mark.y for mark in by_round.marks if isinstance(mark, Line)} == {
        "sent": [1.0, 1.0, 2.0], "received": [1.0, 1.0, 1.0],
    }  # fmt: skip
    [by_size] = [figure for figure in curves.curves(run) if figure.name == "curve-size"]
    test = next(mark for mark in by_size.plots["accuracy"].marks if mark.name == "Test")
    # Per round 2 clients * (500,004 up + 500,000 down), the last one 1 MB more; set-up 2 * 40 bytes
    assert test.x == pytest.approx([(80 + n * 2_000_008) / 1e6 + (n == 3) for n in (1, 2, 3)], rel=1e-4)


def test_long_runs_are_thinned(tmp_path: Path, sample: ModuleType) -> None:
    run = load(sample.make_run(tmp_path / "run", seeds=1, rounds=1500, clients=2))
    test = curves.curves(run)[0].plots["accuracy"].marks[1]
    assert isinstance(test, Line)
    assert len(test.x) == 200
    assert (test.x[0], test.x[-1]) == (1.0, 1500.0)


def test_no_rounds_no_curves(tmp_path: Path) -> None:
    run = Run(tmp_path, record_of(result_tree(), RunRecord))
    empty: list[Any] = []
    assert curves.curves(run) == empty
    assert curves.round_cost(run) == empty


def test_the_servers_work_is_a_figure_with_a_line_for_each_seed(tmp_path: Path) -> None:
    works = [{"name": "surrogate", "steps": 3, "curves": {"loss": [[1, 0.5], [3, None]]}}]
    seeds = [seed_tree(number, setup={**COSTS, "works": works}) for number in (0, 4)]
    (figure,) = curves.server_work(Run(tmp_path, record_of(result_tree(seeds=seeds), RunRecord)))
    (plot,) = figure.plots.values()
    assert [mark.name for mark in plot.marks if isinstance(mark, Line)] == ["seed 0", "seed 4"]
    assert [list(mark.x) for mark in plot.marks if isinstance(mark, Line)] == [[1.0, 3.0]] * 2
