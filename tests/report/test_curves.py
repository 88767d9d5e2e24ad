"""Curves over rounds and bytes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphsilo.experiments.storage.records import CurvePair, RunRecord, record_of
from graphsilo.report import curves
from graphsilo.report.plot import Dots, Line
from graphsilo.report.record import Run, load
from kit import COSTS, result_tree, round_tree, seed_tree


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


def _of_two_models(reported: str, best: int) -> Run:
    """Own models reach 10, 20, 30 % of the validation and 1 less of the test; the common one 40, 60, 50 %."""
    rows, modes = [], {}
    for number, own, common in ((1, 0.1, 0.4), (2, 0.2, 0.6), (3, 0.3, 0.5)):
        of = {"validation": {"accuracy": common}, "test": {"accuracy": common - 0.01}}
        test = {"accuracy": own - 0.01}
        rows.append(round_tree(number, {"accuracy": own}, test=test, modes={"aggregate_local": of}))
    for mode, at, score in (("own_local", 3, 0.3), ("aggregate_local", 2, 0.6)):
        scores = {"validation": {"accuracy": score}, "test": {"accuracy": score - 0.01}}
        modes[mode] = {"best_round": at, "scenarios": {}, **scores}
    seed = seed_tree(rounds=rows, modes=modes, reported=reported, best_round=best, last_round=3)
    return Run(Path(reported), record_of(result_tree(seeds=[seed]), RunRecord))


def _marks(figure: Any) -> tuple[dict[str, list[Any]], list[tuple[float, float]]]:
    marks = figure.plots["accuracy"].marks
    dots = [point for mark in marks if isinstance(mark, Dots) for point in zip(mark.x, mark.y, strict=True)]
    return {mark.name: list(mark.y) for mark in marks if isinstance(mark, Line)}, dots


def test_curves_and_dots_are_of_the_reported_model() -> None:
    figure = curves.curves(_of_two_models("aggregate_local", 2))[0]
    assert _marks(figure) == (
        {"Validation": [40, 60, 50], "Test": [39, 59, 49], "Test, clients' own models": [9, 19, 29]}, [(2, 59)],
    )  # fmt: skip
    assert "Validation and test: common model (aggregate)." in figure.caption
    lines, dots = _marks(curves.curves(_of_two_models("own_local", 3))[0])
    assert (lines["Test"], lines["Test, common model (aggregate)"], dots) == ([9, 19, 29], [39, 59, 49], [(3, 29)])


def test_runs_side_by_side_have_the_curves_of_the_model_in_the_table() -> None:
    runs = [_of_two_models("aggregate_local", 2), _of_two_models("own_local", 3)]
    assert _marks(curves.overlaid_curves(runs, "ab")[0]) == ({"a": [39, 59, 49], "b": [9, 19, 29]}, [(2, 59), (3, 29)])
    asked = _marks(curves.overlaid_curves(runs, "ab", "aggregate_local")[0])
    assert asked == ({"a": [39, 59, 49], "b": [39, 59, 49]}, [(2, 59), (2, 59)])


def test_what_each_silo_prefers_by_then_is_a_line_without_dots() -> None:
    run = _of_two_models("silo_local", 3)
    chosen = CurvePair({"accuracy": 0.5}, {"accuracy": 0.25})
    for row in run.result.seeds[0].rounds:
        row.modes["silo_local"] = chosen
    figure = curves.curves(run)[0]
    lines, dots = _marks(figure)
    assert (lines["Validation"], lines["Test"], dots) == ([50] * 3, [25] * 3, [])
    assert lines["Test, clients' own models"] == [9, 19, 29]
    assert "Dots" not in figure.caption


def test_what_each_silo_chooses_is_no_line_of_another_model() -> None:
    run = _of_two_models("silo_local", 3)
    figure = curves.curves(run)[0]
    lines, dots = _marks(figure)
    assert (sorted(lines), dots) == (["Test, clients' own models", "Test, common model (aggregate)"], [])
    assert figure.caption.endswith("at the chosen round alone and has no line.")  # and says nothing of dots
    figure = curves.overlaid_curves([run, _of_two_models("own_local", 3)], "ab")[0]
    assert (list(_marks(figure)[0]), "Without a:" in figure.caption) == (["b"], True)
