"""What objects look like in a session and in a notebook."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

import graphsilo
from graphsilo.errors import installing
from graphsilo.experiments.config import RunConfig
from graphsilo.notebook import LONGEST, is_notebook, table

QUICK = {"data": {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 40}, "partition": "random",
         "clients": 3, "rounds": 2}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown") / "run"
    return graphsilo.run(**QUICK, out=folder, report=False, seeds=[0, 1], references=["local"])


def test_reprs_are_one_short_line(run):
    graph = graphsilo.load("citation-sbm", nodes=150)
    cut = graphsilo.partition(graph, "random", clients=3)
    everything = [
        (graph, "Graph(name='citation-sbm', nodes=150,"),
        (cut, "Partition(rule='random', data='citation-sbm', clients=3, nodes=150, train="),
        (graphsilo.compare(run.out), "Comparison(citation-sbm (random, 3 clients, 2 seeds): FedAvg "),
        (graphsilo.predict(run, 1), "Prediction(items="),
        (RunConfig.of({"method": "fedprox"}), "RunConfig(fedprox on citation-sbm; auto, 10 clients; gcn; seeds [0])"),
        (run, "Result(FedAvg on citation-sbm: accuracy "),
    ]
    for thing, start in everything:
        assert repr(thing).startswith(start)
        assert len(repr(thing)) < 300
        assert "\n" not in repr(thing)


def test_tables_say_what_things_are(run):
    graph = graphsilo.load("citation-sbm", nodes=150)
    cut = graphsilo.partition(graph, "random", clients=3)
    assert ">150</td>" in graph._repr_html_()
    assert ">client 2</td>" in cut._repr_html_()
    mean = run.record.summary.test.metrics["accuracy"].mean
    assert f"{mean:.3f} ± " in run._repr_html_()
    assert ">local</th>" in run._repr_html_()
    assert "FedAvg" in graphsilo.compare(run.out)._repr_html_()


def test_tables_escape_and_stay_short():
    graph = replace(graphsilo.load("citation-sbm", nodes=150), name="<script>alert(1)</script>")
    assert "<script>" not in graph._repr_html_()
    assert "&lt;script&gt;" in graph._repr_html_()
    long = table("long", ["client", "nodes"], [[f"client {place}", place] for place in range(100)])
    assert long.count("<tr>") == 1 + LONGEST
    assert "… and 89 more" in long


def test_a_session_is_no_notebook():
    assert not is_notebook()


def test_frames_hold_what_the_result_holds(run):
    pandas = pytest.importorskip("pandas")
    rounds = run.frame()
    assert isinstance(rounds, pandas.DataFrame)
    assert rounds["seed"].tolist() == [0, 0, 1, 1]
    wanted = [row["test"]["accuracy"] for seed in run.tree["seeds"] for row in seed["rounds"]]
    assert rounds["test.accuracy"].tolist() == wanted
    clients = run.frame("clients")
    assert clients[["seed", "client"]].values.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert clients["accuracy"].tolist() == [
        row["test"]["accuracy"] for seed in run.tree["seeds"] for row in seed["clients"]
    ]
    assert np.isfinite(clients["alone.accuracy"]).all()
    assert run.frame("seeds")["best_round"].tolist() == [seed["best_round"] for seed in run.tree["seeds"]]
    with pytest.raises(graphsilo.GraphsiloError, match="did you mean 'rounds'"):
        run.frame("round")


def test_without_pandas_and_polars_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(graphsilo.GraphsiloError, match=re.escape(installing("notebook"))):
        run.frame()
