"""How much memory propagated features take, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphsilo.data.sources.generated import CitationSBM
from graphsilo.models import build, names
from graphsilo.models.footprint import propagated_bytes
from graphsilo.models.view import GraphTensors
from kit.backbones import SCHEMA, typed
from kit.propagated import GRAPH


def test_footprint_by_hand() -> None:
    size = {"nodes": 1000, "edges": 4000, "features": 50}
    one = 4 * 1000 * 50
    assert propagated_bytes("gcn", {}, **size) == 0
    assert propagated_bytes("sgc", {"hops": 0}, **size) == 0
    assert propagated_bytes("sgc", {"hops": 4}, **size) == one
    assert propagated_bytes("sign", {"hops": 3}, **size) == 3 * one
    assert propagated_bytes("gamlp", {"hops": 2}, **size) == 2 * one
    assert propagated_bytes("sign", {"hops": 3}, nodes=0, edges=0, features=50) == 0
    # 1 % filled, 5 nodes per step: 1 − 0.99⁵ = 5 % after one hop, 1 − 0.99²⁵ = 22 % after two, 72 % after three
    assert propagated_bytes("sign", {"hops": 3}, **size, density=0.01) == one


def test_footprint_of_factors_by_hand() -> None:
    """Half a word a node, 5 nodes per step; of three hops the third is filled, 72 % of 50: a row is 50 entries of work.

    Factors of all nodes: 3 · (3 · 5 + 0.5) = 46.5 a row. Of 100 rows, with 500, 1000 and 1000 around them:
    3 · (5 · 1600 + 0.5 · 1000) = 25,500, and the rows are 5000.
    """
    size = {"nodes": 1000, "edges": 4000, "features": 50, "density": 0.01}
    one = 4 * 1000 * 50
    for name in ("sgc", "sign", "gamlp"):
        assert propagated_bytes(name, {"hops": 3}, **size) == one
        assert propagated_bytes(name, {"hops": 3}, **size, views=(1000,)) == 0
        assert propagated_bytes(name, {"hops": 3}, **size, views=(100, 1000)) == one
    assert propagated_bytes("ssgc", {"hops": 3}, **size, views=(1000,)) == one
    # Half filled features are dense to begin with, and every hop of them is a matrix.
    assert propagated_bytes("sign", {"hops": 3}, **{**size, "density": 0.5}, views=(1000,)) == 3 * one
    # 100 times the words, 50 a node. Of 100 rows: 3 · (5 · 1600 + 50 · 1000) = 174,000 beside 500,000; of 20, with 100,
    # 500 and 1000 around them: 3 · (5 · 620 + 50 · 1000) = 159,300 beside 100,000.
    wide = {**size, "features": 5000}
    assert propagated_bytes("sgc", {"hops": 3}, **wide, views=(100, 1000)) == 0
    assert propagated_bytes("sgc", {"hops": 3}, **wide, views=(20, 1000)) == 100 * one


@pytest.mark.parametrize("name", ["sgc", "sign", "gamlp"])
@pytest.mark.parametrize("rows", [5, 200])
def test_footprint_of_sparse_features_is_what_is_kept(name: str, rows: int) -> None:
    graph = CitationSBM(nodes=600, classes=3, features=2000, feature_density=0.02, mean_degree=6.0).generate()
    data = GraphTensors(graph)
    model = build(name, num_features=2000, num_classes=3, seed=0, hops=3)
    for seen in (data.kept_view(np.arange(rows)), data.full):
        model(seen)
    kept = [value for value in data._cache.values() if isinstance(value, np.ndarray)]
    found = propagated_bytes(
        name, {"hops": 3}, nodes=600, edges=graph.num_edges, features=2000,
        density=graph.features.nnz / (600 * 2000), views=(rows, 600),
    )  # fmt: skip
    assert sum(matrix.nbytes for matrix in kept) == found
    assert (found > 0) == (rows == 5)


def test_footprint_is_what_is_kept() -> None:
    for name in names():
        data = GraphTensors(typed(GRAPH))
        build(name, num_features=5, num_classes=3, seed=0, schema=SCHEMA)(data.full)
        kept = [value for value in data._cache.values() if isinstance(value, np.ndarray) and value.shape[1] == 5]
        sizes = {"nodes": GRAPH.num_nodes, "edges": GRAPH.num_edges, "features": 5}
        assert sum(matrix.nbytes for matrix in kept) == propagated_bytes(name, {}, **sizes)


def test_footprint_of_relations_is_what_is_kept() -> None:
    """One dense matrix for each of two directions of each relation."""
    data = GraphTensors(typed(GRAPH))
    build("rgcn", num_features=5, num_classes=3, seed=0, schema=SCHEMA)(data.full)
    kept = [value.dense() for key, value in data._cache.items() if key[0] == "first"]
    sizes = {"nodes": GRAPH.num_nodes, "edges": GRAPH.num_edges, "features": 5}
    found = propagated_bytes("rgcn", {}, **sizes, relations=len(SCHEMA.relations))
    assert sum(matrix.nbytes for matrix in kept) == found > 0
    # Of words, 1 % filled, a node's two links by a relation and direction fill 2 %
    assert propagated_bytes("rgcn", {}, nodes=9, edges=36, features=5, density=0.01, relations=1) == 0


def test_steps_keep_what_they_reach_and_sampled_ones_less() -> None:
    """Five items with four links each reach 25 nodes below the last of two layers, 15 where two are sampled."""
    size: dict[str, Any] = {"nodes": 100, "edges": 400, "features": 10, "relations": 1, "views": (5, 100)}
    row = 2 * 10 * 4  # two directions of float32
    assert propagated_bytes("rgcn", {}, **size) == (100 + 25) * row
    for fan_out in (2, (2, 9)):
        assert propagated_bytes("rgcn", {}, **size, fan_out=fan_out) == (100 + 15) * row
    assert propagated_bytes("rgcn", {}, **size, fan_out=9) == (100 + 25) * row
    assert propagated_bytes("rgcn", {"layers": 4}, **size) == (100 + 100) * row  # there are no more nodes
