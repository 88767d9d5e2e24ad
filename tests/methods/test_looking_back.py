"""What methods make of a node does not depend on what came after the time at which it is looked at."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.catalog import apply_options
from graphsilo.methods.fedridge.features import Features, Recipe
from graphsilo.methods.fedtrees.columns import node_columns, views_of
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
