"""Hop features made block by block, in memory or in files, are those of one product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.data.sources import scratch
from graphsilo.data.sources.generated import CitationSBM
from graphsilo.models import build, hops
from graphsilo.models.hops import add_weighted, hop_matrix, scale
from graphsilo.models.view import GraphTensors, normalise
from kit.propagated import BACKBONES, GRAPH


@pytest.mark.parametrize("rows", [1 << 14, 97])
def test_blocks_give_the_same_bits(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hops, "_ROWS", rows)
    data, wanted = GraphTensors(GRAPH), GRAPH.features
    operator = normalise(GRAPH.adjacency(), "gcn")
    for level in range(1, 4):
        wanted = operator @ wanted
        assert np.array_equal(hop_matrix(data, level, "gcn"), wanted)


@pytest.mark.parametrize("name", BACKBONES)
def test_mapped_features_give_the_same_output(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSILO_CACHE", str(tmp_path))
    model = build(name, num_features=5, num_classes=3, seed=0)
    rows = np.array([5, 17, 600])
    wanted = [model(GraphTensors(GRAPH).view(items)) for items in (None, rows)]
    features = GRAPH.features.copy()
    monkeypatch.setattr(scratch, "IN_MEMORY", -1)
    monkeypatch.setattr(hops, "_ROWS", 97)
    data = GraphTensors(GRAPH)
    for items, output in zip((None, rows), wanted, strict=True):
        assert model(data.view(items)).equal(output)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert np.array_equal(features, GRAPH.features)  # sums in place do not touch what is not theirs


@pytest.mark.parametrize("name", BACKBONES)
def test_sparse_features_and_what_becomes_of_them(name: str) -> None:
    sparse = CitationSBM(nodes=300, classes=3, features=90, feature_density=0.1).generate()
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
            total = add_weighted(scale(left, 2.0), right, 0.5)
            kept = sp.issparse(left) and sp.issparse(right)
            assert sp.issparse(total) == kept
            found = total.toarray() if kept else total
            assert type(found) is np.ndarray
            assert found.tolist() == [[2.5, 5.0], [7.5, 0.0]]
    assert dense.tolist() == [[1.0, 2.0], [3.0, 0.0]]
