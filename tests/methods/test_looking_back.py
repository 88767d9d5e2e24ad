"""What methods make of a node does not depend on what came after the time at which it is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.catalog import apply_options
from graphsilo.data.sources.files import save_graph
from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.methods.fedridge.features import Features, Recipe
from graphsilo.models.node_columns import node_columns, views_of
from graphsilo.models.relations import relation_matrix
from graphsilo.models.view import GraphTensors
from kit.link_tables import change_after, dated_graph


def loaded(graph: Graph) -> GraphTensors:
    made = apply_options(graph, {"sums": {"windows": [10, 30]}}).union
    # As scaled by numbers that are agreed on: the same for both.
    return GraphTensors(made.with_features(np.log1p(np.abs(made.features)).astype(np.float32)))


@pytest.mark.parametrize("seed", range(3))
def test_the_future_changes_no_column_of_the_past(seed: int) -> None:
    generator = np.random.default_rng(seed)
    graph, moment = dated_graph(seed), float(generator.uniform(30, 80))
    assert graph.time is not None
    past = np.flatnonzero(graph.time <= moment)
    one, other = loaded(graph), loaded(change_after(graph, moment, generator))
    schema = Schema.of(one.graph, "node")
    assert not schema.directed
    trees = [
        node_columns(views_of(data, schema), 64, np.zeros((data.num_features, 0), np.float32), 0)
        for data in (one, other)
    ]
    assert np.array_equal(trees[0][past], trees[1][past])
    kinds: tuple[Literal["mean", "sgc", "separate"], ...] = ("mean", "sgc", "separate")
    for kind in kinds:
        rows = [Features(data, Recipe(kind, 2, 0, 0, 0, centred=kind != "separate")).base for data in (one, other)]
        np.testing.assert_allclose(rows[0][past], rows[1][past], rtol=1e-6)
    for turned in (False, True):
        matrices = [relation_matrix(data, 0, "mean", turned=turned) for data in (one, other)]
        assert (matrices[0][past] != matrices[1][past]).nnz == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", [each.name for each in registry.listings() if "node" in each.tasks])
def test_the_future_changes_no_score_of_the_past(method: str, tmp_path: Path) -> None:
    """Trained on the first days, of which validation is a part, and asked about the days up to a moment."""
    graph, found = dated_graph(3, nodes=120), []
    assert graph.time is not None
    moment = float(np.quantile(graph.time[~np.isnan(graph.time)], 0.8))
    known = registry.load(method)
    rounds = {} if issubclass(known.config, OneRoundConfig) else {"rounds": 2}
    if known.pooled or known.cut_links or method in ("adafgl", "fedstar"):
        pytest.skip("of one silo, or of all pairs or both directions of links: refused where nodes have times")
    for name, each in (("one", graph), ("other", change_after(graph, moment, np.random.default_rng(0)))):
        file = save_graph(tmp_path / f"{name}.npz", apply_options(each, {"sums": True}))
        said = {
            "data.name": str(file), "partition.rule": "random", "partition.clients": 2, "partition.split": "time",
            "partition.ratios": [0.4, 0.2, 0.4], "method.name": method, "run.references": [],
            "data.scale": "standard", **{f"method.{key}": value for key, value in {**known.quick, **rounds}.items()},
        }  # fmt: skip
        run(load_config(overrides=said), out=tmp_path / name)
        asked = [predict(tmp_path / name, client=client) for client in (0, 1)]
        found.append([one.probabilities[graph.time[one.node_ids.astype(np.int64)] <= moment] for one in asked])
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)
