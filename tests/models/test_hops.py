"""Hop features made block by block, in memory or in files, are those of one product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.data.sources import scratch
from graphsilo.data.sources.generated import citation_sbm
from graphsilo.data.sources.generated_products import product_sbm
from graphsilo.models import build, view
from graphsilo.models.footprint import propagated_bytes
from graphsilo.models.view import GraphTensors, add_weighted, normalise, weighted

GRAPH = product_sbm(nodes=700, classes=3, features=5, mean_degree=6.0)
BACKBONES = ("sgc", "sign", "gamlp", "ssgc", "ssgc_mlp", "appnp_features")


@pytest.mark.parametrize("rows", [1 << 14, 97])
def test_blocks_give_the_same_bits(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_ROWS", rows)
    data, wanted = GraphTensors(GRAPH), GRAPH.features
    operator = normalise(GRAPH.adjacency(), "gcn")
    for level in range(1, 4):
        wanted = operator @ wanted
        assert np.array_equal(data.hop_matrix(level, "gcn"), wanted)


@pytest.mark.parametrize("name", BACKBONES)
def test_mapped_features_give_the_same_output(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSILO_CACHE", str(tmp_path))
    model = build(name, num_features=5, num_classes=3, seed=0)
    rows = np.array([5, 17, 600])
    wanted = [model(GraphTensors(GRAPH).view(items)) for items in (None, rows)]
    features = GRAPH.features.copy()
    monkeypatch.setattr(scratch, "IN_MEMORY", -1)
    monkeypatch.setattr(view, "_ROWS", 97)
    data = GraphTensors(GRAPH)
    for items, output in zip((None, rows), wanted, strict=True):
        assert model(data.view(items)).equal(output)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert np.array_equal(features, GRAPH.features)  # sums in place do not touch what is not theirs


@pytest.mark.parametrize("name", BACKBONES)
def test_sparse_features_and_what_becomes_of_them(name: str) -> None:
    sparse = citation_sbm(nodes=300, classes=3, features=90, feature_density=0.1)
    dense = Graph(sparse.features.toarray(), sparse.edges, sparse.labels, 3)
    before = sparse.features.copy()
    model = build(name, num_features=90, num_classes=3, seed=0)
    outputs = [model(GraphTensors(graph).full).detach().numpy() for graph in (sparse, dense)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
    assert (sparse.features != before).nnz == 0


def test_weighted_sums_by_hand() -> None:
    dense = np.array([[1.0, 2.0], [3.0, 0.0]], dtype=np.float32)
    sparse = sp.csr_matrix(dense)
    for left in (dense, sparse):
        for right in (dense, sparse):
            total = add_weighted(weighted(left, 2.0), right, 0.5)
            kept = sp.issparse(left) and sp.issparse(right)
            assert sp.issparse(total) == kept
            found = total.toarray() if kept else total
            assert type(found) is np.ndarray
            assert found.tolist() == [[2.5, 5.0], [7.5, 0.0]]
    assert dense.tolist() == [[1.0, 2.0], [3.0, 0.0]]


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
    graph = citation_sbm(nodes=600, classes=3, features=2000, feature_density=0.02, mean_degree=6.0)
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
    for name in BACKBONES:
        data = GraphTensors(GRAPH)
        build(name, num_features=5, num_classes=3, seed=0)(data.full)
        kept = [value for value in data._cache.values() if isinstance(value, np.ndarray)]
        sizes = {"nodes": GRAPH.num_nodes, "edges": GRAPH.num_edges, "features": 5}
        assert sum(matrix.nbytes for matrix in kept) == propagated_bytes(name, {}, **sizes)
