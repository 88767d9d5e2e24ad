"""Targets in place of classes: from a graph to a prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphsilo
from graphsilo.data import load_graph, save_graph
from graphsilo.data.graph import content_hash
from graphsilo.data.sources.targets import with_targets
from graphsilo.errors import ConfigError, DataError, UnsupportedError

SMALL = {"rounds": 3, "clients": 2, "model": {"name": "gcn", "hidden": 8}}


@pytest.fixture(scope="module")
def graph():
    made = graphsilo.load("citation-sbm", nodes=150, features=12)
    features = made.features.toarray() if made.is_sparse else made.features
    rows = features + made.adjacency() @ features
    values = 1000 * (50 + rows @ np.random.default_rng(0).normal(size=(rows.shape[1], 1)))
    values[::7] = np.nan
    return with_targets(made, values, ["income, EUR"])


def test_a_node_without_any_is_unlabelled(graph):
    assert graph.task == "regression"
    assert (graph.labels[::7] == -1).all()
    assert graph.labels.max() == 0
    assert "targets=1" in repr(graph)
    part = graph.subgraph(np.array([1, 0]))
    np.testing.assert_array_equal(part.targets.values, graph.targets.values[[1, 0]])


def test_a_file_holds_them(graph, tmp_path):
    again = load_graph(save_graph(tmp_path / "g.npz", graph))
    assert content_hash([again]) == content_hash([graph])
    assert (again.task, again.class_names) == ("regression", ("income, EUR",))


def test_several_of_0_and_1_are_labels(graph):
    marks = np.random.default_rng(0).integers(0, 2, (graph.num_nodes, 3))
    assert with_targets(graph, marks).task == "multilabel"
    assert with_targets(graph, marks, task="regression").task == "regression"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros(3), "one or several for each of 150 nodes"),
        (np.full(150, np.inf), "is not finite"),
        (np.full((150, 2), 3.0), "a target is 1 or 0"),
    ],
    ids=["rows", "infinite", "labels"],
)
def test_what_is_wrong_is_said(graph, values, said):
    with pytest.raises(DataError, match=said):
        with_targets(graph, values, task="multilabel")


def test_a_run_estimates_in_the_unit_of_the_target(graph, tmp_path):
    result = graphsilo.run(data=graph, out=tmp_path, report=False, **SMALL)
    test = result.tree["seeds"][0]["test"]
    spread = float(np.nanstd(graph.targets.values))
    assert 0.05 * spread < test["mae"] < 1.2 * spread
    found = graphsilo.predict(tmp_path, client=0)
    assert abs(float(found.values.mean()) - float(np.nanmean(graph.targets.values))) < 2 * spread
    # Another unit is another scale and nothing else.
    small = with_targets(graph, graph.targets.values / 8 - 3, ["income"])
    other = graphsilo.run(data=small, **SMALL).tree["seeds"][0]["test"]
    assert 8 * other["mae"] == pytest.approx(test["mae"], rel=1e-3)
    assert other["r2"] == pytest.approx(test["r2"], abs=1e-3)


def test_a_ridge_of_sums_is_that_of_all_rows(graph, tmp_path):
    """Two silos that may not correct the model say of a node what one silo says that has both without links between."""
    half = np.arange(150) >= 70
    inside = half[graph.edges[0]] == half[graph.edges[1]]
    order = np.random.default_rng(1).permutation(150)
    splits = {
        name: np.isin(np.arange(150), part)
        for name, part in zip(("train", "val", "test"), np.split(order, [80, 110]), strict=True)
    }
    cut = replace(graph.with_edges(graph.edges[:, inside]), splits=splits)
    ridge = {"name": "fedridge", "own": False, "features": "mean", "ridge": [0.1]}
    said = {}
    for name, parts in (("two", half.astype(int)), ("one", np.zeros(150, dtype=int))):
        result = graphsilo.run(data=cut, method=ridge, partition=parts, out=tmp_path / name, report=False)
        found = [graphsilo.predict(tmp_path / name, client=client) for client in range(parts.max() + 1)]
        said[name] = np.concatenate([each.values for each in found])[:, 0]
    assert result.tree["seeds"][0]["test"]["r2"] > 0.3
    np.testing.assert_allclose(said["two"], said["one"], rtol=1e-5)


def test_who_knows_classes_alone_refuses(graph):
    with pytest.raises(UnsupportedError, match="MOON does not do task 'regression'"):
        graphsilo.run(data=graph, method="moon", **SMALL)
    with pytest.raises(UnsupportedError, match=r"task 'node' was asked for, but .* is made for task 'regression'"):
        graphsilo.run(data=graph, task="node", **SMALL)
    with pytest.raises(ConfigError, match="loss=focal is for the task node or graph"):
        graphsilo.run(data=graph, method={"name": "fedavg", "loss": "focal"}, **SMALL)
    with pytest.raises(DataError, match="do not fit 150 nodes"):
        replace(graph, num_classes=2)
