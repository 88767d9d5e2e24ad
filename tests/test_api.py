"""What ``import graphsilo`` offers."""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo import api
from graphsilo.errors import ConfigError, RunError, UnsupportedError
from kit.own import numbers

SMALL = {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1}
QUICK = {"data": SMALL, "partition": "random", "clients": 3, "model": {"name": "gcn", "hidden": 8}, "rounds": 2}


def test_everything_that_is_announced_exists():
    assert graphsilo.__all__ == sorted(graphsilo.__all__)
    for name in graphsilo.__all__:
        assert getattr(graphsilo, name) is not None
    assert set(graphsilo.__all__) <= set(dir(graphsilo))
    with pytest.raises(AttributeError, match="nothing_of_this"):
        graphsilo.nothing_of_this  # noqa: B018


def test_every_public_function_is_exported():
    written = {
        name for name, item in vars(api).items()
        if inspect.isfunction(item) and item.__module__ == api.__name__ and not name.startswith("_")
    }  # fmt: skip
    exported = {name for name in graphsilo.__all__ if inspect.isfunction(getattr(graphsilo, name))}
    assert written == exported


def test_import_is_light():
    heavy = {"torch", "numpy", "pydantic", "rich", "yaml"}
    program = f"import sys, graphsilo; print(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_load_and_partition():
    graph = graphsilo.load(**SMALL)
    assert (graph.num_nodes, graph.num_classes, graph.num_features) == (150, 3, 40)
    cut = graphsilo.partition(graph, "dirichlet", clients=3, alpha=0.5, ratios=(0.5, 0.25, 0.25))
    assert cut.options["alpha"] == 0.5
    assert sum(map(len, cut.nodes)) == 150
    assert graphsilo.partition(graph, clients=3).rule == "louvain"
    kept = graphsilo.partition(graph, "random", clients=3, scenario="open", crop=0.4)
    assert len(kept.cropped) == 60


def test_run_takes_names_tables_and_dotted_settings(tmp_path):
    config = {"method": {"name": "fedprox", "rounds": 9, "mu": 0.5}, "run": {"early_stopping": 3}}
    result = graphsilo.run(
        config, **QUICK, seeds=range(2), method={"mu": 0.3}, **{"method.lr": 0.02, "run.early_stopping": None}
    )
    settings = result.tree["config"]
    assert (settings["method"]["name"], settings["method"]["mu"], settings["method"]["lr"]) == ("fedprox", 0.3, 0.02)
    assert settings["method"]["rounds"] == 2
    assert settings["run"]["early_stopping"] is None
    assert [seed["seed"] for seed in result.tree["seeds"]] == [0, 1]
    assert result.out is None


def test_run_from_file_equals_run_from_objects(tmp_path):
    """A graph and a cut in memory give the numbers that their names give."""
    named = graphsilo.run(**QUICK, partition_seed=5)
    graph = graphsilo.load(**SMALL)
    cut = graphsilo.partition(graph, "random", clients=3, seed=5)
    folder = tmp_path / "objects"
    given = graphsilo.run(**{**QUICK, "data": graph, "partition": cut}, out=folder)
    assert given.tree["seeds"][0]["test"] == named.tree["seeds"][0]["test"]
    # the folder alone is enough to take the run up again, and another cut is refused
    again = graphsilo.run(folder / "config.yaml", out=folder, resume=True)
    assert again.tree == json.loads((folder / "result.json").read_text())
    same = graphsilo.run(**{**QUICK, "data": graph, "partition": cut}, out=folder, resume=True)
    assert same.tree == again.tree
    other = graphsilo.partition(graph, "random", clients=3, seed=6)
    with pytest.raises(ConfigError, match="another configuration"):
        graphsilo.run(**{**QUICK, "data": graph, "partition": other}, out=folder, resume=True)
    assert graphsilo.Partition.load(folder / "partition.npz").content_hash == cut.content_hash


def test_wrong_arguments_are_explained():
    with pytest.raises(ConfigError, match=r"graphsilo\.run has no argument 'metod'; did you mean 'method'\?"):
        graphsilo.run(metod="fedavg")
    with pytest.raises(ConfigError, match=r"unknown setting 'method\.muu' for fedprox"):
        graphsilo.run(**{**QUICK, "method": {"name": "fedprox", "muu": 1}})
    with pytest.raises(ConfigError, match=r"did you mean 'Cora'\?"):
        graphsilo.load("corra")
    small = graphsilo.load("citation-sbm", nodes=60)
    assert graphsilo.load({"name": "citation-sbm", "nodes": 60}).num_nodes == 60  # as run takes it
    assert graphsilo.load({"name": "citation-sbm", "options": {"nodes": 80}}, nodes=60).num_nodes == 60
    for wrong in ([small, small], {"name": [small, small]}):
        with pytest.raises(ConfigError, match=r"must name a data set or file; got citation-sbm.*save_graph") as caught:
            graphsilo.run(data=wrong)
        assert len(str(caught.value)) < 400
    for call in (
        lambda: graphsilo.load(42),
        lambda: graphsilo.partition(42),
        lambda: graphsilo.predict(42, 0),
        lambda: graphsilo.compare(42),
        lambda: graphsilo.run(42),
        lambda: graphsilo.run(data=42),
        lambda: graphsilo.run(data=["Cora", 42]),
        lambda: graphsilo.run(data=small, partition=42),
    ):
        with pytest.raises(ConfigError, match="got 42 of type int"):
            call()
    with pytest.raises(RunError, match="this run had no folder"):
        graphsilo.predict(graphsilo.run(**QUICK), 0)


@pytest.mark.slow
def test_attack(tmp_path):
    result = graphsilo.run(**QUICK, out=tmp_path / "run")
    found = graphsilo.attack(result, attacks=["classes"], attackers=["coordinator"], clients=[0, 2])
    assert (found.targets, list(found.outcomes), found.notes) == ([0, 2], [0], [])
    assert (tmp_path / "run" / "attack.html").exists()
    with pytest.raises(RunError, match="this run had no folder"):
        graphsilo.attack(graphsilo.run(**QUICK))


def test_compare_and_predict(tmp_path):
    runs = [graphsilo.run(**QUICK, method=name, out=tmp_path / name) for name in ("fedavg", "local")]
    memory = graphsilo.run(**QUICK, method="fedprox")
    with pytest.raises(ConfigError, match=r"run 1 and run 2 are the same run, and a run is not compared with itself"):
        graphsilo.compare(memory, memory)
    table = graphsilo.compare(*runs, memory, report=tmp_path / "c.html", metrics=["accuracy"])
    assert [row.label for row in table.rows] == ["FedAvg", "Local only", "FedProx"]
    assert table.rows[2].scores["accuracy"].mean == pytest.approx(memory.accuracy())
    assert (tmp_path / "c.html").exists()
    assert (tmp_path / "fedavg" / "report.html").exists()
    found = graphsilo.predict(runs[0], 2)
    assert np.allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    same = graphsilo.predict(tmp_path / "fedavg", 2, graph=graphsilo.load(**SMALL))
    assert len(same.classes) == 150


def test_progress_goes_to_stderr(capsys):
    graphsilo.run(**QUICK, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("FedAvg on citation-sbm")
    assert sum(not line.startswith("warning: ") for line in captured.err.splitlines()) == 1
    graphsilo.run(**QUICK)
    assert capsys.readouterr() == ("", "")


def test_a_page_that_cannot_be_drawn_does_not_lose_the_result(tmp_path, monkeypatch):
    from graphsilo import report

    def broken(folder):
        raise OSError("no ink")

    monkeypatch.setattr(report, "write", broken)
    with pytest.warns(UserWarning, match="no ink"):
        assert graphsilo.run(**QUICK, out=tmp_path / "run").tree["task"] == "node"


@pytest.mark.slow
@pytest.mark.data
def test_collections(data_root):
    graphs = graphsilo.load("MUTAG", root=data_root)
    assert isinstance(graphs, graphsilo.GraphCollection)
    cut = graphsilo.partition(graphs, clients=3)
    assert (cut.rule, cut.kind) == ("dirichlet", "graph")
    with pytest.raises(UnsupportedError, match="about nodes"):
        graphsilo.partition(graphs, clients=3, scenario="open")
    result = graphsilo.run(data=graphs, partition=cut, model={"name": "gin", "hidden": 8}, rounds=1)
    assert result.tree["task"] == "graph"


def test_graphs_in_memory_have_the_methods_model_for_graphs(molecules):
    result = graphsilo.run(
        data=graphsilo.load(molecules), method="gcfl", rounds=1, clients=2, partition="random", model={"layers": 1}
    )
    assert (result.tree["task"], result.tree["config"]["model"]["name"]) == ("graph", "gin_gcfl")


@pytest.mark.parametrize(
    ("method", "share", "what"), [("fedavg", 0.0, "round"), ("fedridge", 0.0, "model"), ("fedavg", 0.2, "")]
)
def test_a_run_says_that_nothing_can_be_chosen(method, share, what):
    ratios = [0.8 - share, share, 0.2]
    cut = {"rule": "random", "clients": 3, "ratios": ratios}
    told = graphsilo.run(data=SMALL, method=method, rounds=2 if method == "fedavg" else None, partition=cut).tree[
        "warnings"
    ]
    assert any(f"no client has a validation item, so that no {what} can be" in text for text in told) is bool(what)


def test_the_example_runs(tmp_path, capsys):
    example = Path(__file__).resolve().parents[1] / "examples" / "quickstart.py"
    runpy.run_path(str(example))["main"](tmp_path)
    out = capsys.readouterr().out
    assert "FedProx: accuracy 0." in out
    assert "may not be comparable" not in out
    assert (tmp_path / "comparison.html").exists()


@contextmanager
def default_dtype(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    yield
    assert torch.get_default_dtype() == kind
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "caller",
    [
        lambda: default_dtype(torch.float64), lambda: default_dtype(torch.bfloat16), lambda: torch.device("meta"),
        torch.inference_mode, torch.no_grad,
    ],
    ids=["float64", "bfloat16", "device", "inference", "no_grad"],
)  # fmt: skip
def test_what_a_caller_has_set_in_torch_changes_nothing(caller, tmp_path):
    asked = {"data": SMALL, "partition": "random", "clients": 2, "rounds": 2, "seeds": [0], "report": False}
    plain = graphsilo.run(**asked, out=tmp_path / "plain")
    expected = graphsilo.predict(plain, 0).probabilities
    with caller():
        found = graphsilo.run(**asked, out=tmp_path / "set")
        probabilities = graphsilo.predict(found, 0).probabilities
    assert numbers(found) == numbers(plain)
    assert probabilities.tolist() == expected.tolist()
