"""Grids over one or two settings: their points, what is refused, and going on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.experiments import sweep
from graphsilo.experiments.config import load_config

SMALL = {
    "data": {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1},
    "partition": {"rule": "random", "clients": 3}, "model": {"name": "gcn", "hidden": 8},
    "method": {"rounds": 2}, "run": {"seeds": [0]},
}  # fmt: skip


def planned(out: Path, grid: list[str], *methods: str, **more: object) -> sweep.Sweep:
    config = load_config(SMALL, overrides={"method": methods[0] if methods else "fedprox", "scenario": "seen", **more})
    return sweep.plan(config, sweep.read_grid(grid), methods, out)


def test_points_are_named_by_their_values(tmp_path: Path) -> None:
    found = planned(tmp_path, ["method.lr=0.01,1e-1", "partition.clients=2,3"], "fedavg", "fedprox")
    assert len(found.points) == 2 * 2 * 2
    first = found.points[1]
    assert (first.name, first.series) == ("FedAvg, lr 0.01, clients 3", "FedAvg")
    assert first.out == tmp_path / "points/FedAvg/method.lr=0.01,partition.clients=3"
    assert (first.config.get("partition.clients"), first.config.method_config().lr) == (3, 0.01)
    assert first.config.run.references == ["majority"]
    assert found.chosen_by_validation == ("method.lr",)  # other clients are another question
    assert not list(tmp_path.iterdir())


def test_seeds_are_three_where_nobody_says_them(tmp_path: Path) -> None:
    config = load_config(overrides={"data": "citation-sbm", "method": "fedprox"})
    assert sweep.plan(config, {"method.mu": [0, 1]}, [], tmp_path).points[0].config.run.seeds == [0, 1, 2]


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        (["method.mu"], "such as method.mu=0.01,0.1,1; got 'method.mu'"),
        (["method.mu=0.1,1", "method.mu=2,3"], "method.mu is swept twice"),
        ([], "over one setting, which makes a curve.*got 0"),
        (["method.mu=0,1", "method.lr=0.1,1", "model.hidden=8,16"], "got 3: method.mu, method.lr, model.hidden"),
        (["method.mu=0.1"], "two different values or more"),
        (["method.mu=0.1,0.1"], "two different values or more"),
        (["method.mu=0.1,[1"], "no valid YAML"),
        (["run.seeds=0,1"], "say them with --seeds"),
        (["method=fedavg,fedprox"], "name each with --method"),
        (["run.workers=1,2"], "changes no number"),
        (["scenario=seen,open"], "scenario.name is swept, and is also said to be 'seen'"),
        (["mu=0.1,1"], "unknown setting 'mu'; did you mean 'method.mu'"),
    ],
)  # fmt: skip
def test_grids_that_cannot_be(tmp_path: Path, grid: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        planned(tmp_path, grid)


@pytest.mark.parametrize(
    ("grid", "methods", "text"),
    [
        (["method.mu=0.1,-1"], ["fedprox"], "at FedProx, mu -1: method.mu must be at least 0"),
        (["method.mu=1,1.0"], ["fedprox"], "FedProx, mu 1 and FedProx, mu 1 are the same run"),
        (["method.momentum=0.5,0.9"], ["fedavg"], "method.momentum would have no effect"),
        (
            ["run.compression=none,topk"],
            ["local"],
            "at Local only, compression topk: run.compression would have no effect",
        ),
        (["method.moo=0.1,1"], ["fedprox"], "unknown setting 'method.moo' for fedprox"),
        (["data.seed=0,1", "partition.split_index=1,2"], ["fedavg"], "partition.split_index"),
        (["partition.clients=2,1000"], ["fedavg"], "at FedAvg, clients 1000"),
    ],
)
def test_values_that_cannot_be_are_refused_before_anything_is_run(
    tmp_path: Path, grid: list[str], methods: list[str], text: str
) -> None:
    with pytest.raises(GraphsiloError, match=text):
        list(sweep.carry_out([planned(tmp_path, grid, *methods)]))
    assert not list(tmp_path.rglob("result.json"))


def test_what_is_done_is_not_run_again_and_a_grid_may_grow(tmp_path: Path) -> None:
    first = planned(tmp_path, ["method.mu=0.1,1"])
    assert [outcome.error for _, outcome in sweep.carry_out([first])] == [None, None]
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("points/*/*/result.json")}
    # Killed before a point's end: its folder has no result
    killed = first.points[1].out / "result.json"
    before = json.loads(killed.read_text())["seeds"][0]["test"]
    killed.unlink()
    more = planned(tmp_path, ["method.mu=0.1,1,2"], "fedprox")
    assert [point.values["method.mu"] for point, _ in sweep.carry_out([more])] == [0.1, 1, 2]
    now = {path: path.stat().st_mtime_ns for path in tmp_path.glob("points/*/*/result.json")}
    assert len(now) == 3
    assert {path for path in made if made[path] != now[path]} == {killed}
    assert json.loads(killed.read_text())["seeds"][0]["test"] == before


def test_a_folder_holds_one_sweep(tmp_path: Path) -> None:
    list(sweep.carry_out([planned(tmp_path, ["method.mu=0.1,1"])]))
    other = planned(tmp_path, ["method.mu=0.1,1"], **{"partition.clients": 2})
    with pytest.raises(ConfigError, match=r"holds another sweep: partition\.clients was 3"):
        list(sweep.carry_out([other]))
    # A curve would take the place of a heat map's picture and table
    both = planned(tmp_path, ["method.mu=0.1,1", "method.local_epochs=1,2"])
    with pytest.raises(ConfigError, match=r"swept was method\.mu, and is method\.mu and method\.local_epochs"):
        list(sweep.carry_out([both]))
