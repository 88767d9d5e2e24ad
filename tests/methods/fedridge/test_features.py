"""The features of FedRidge by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphsilo
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.methods.fedridge import features as fedridge_features
from graphsilo.methods.fedridge.features import SMALL, Features, Recipe
from graphsilo.models.columns import BLOCK, projection, unit_rows
from graphsilo.models.view import GraphTensors
from kit.fedridge import played


def graph_of(features, pairs, labels=None, classes=2):
    features = features if sp.issparse(features) else np.array(features, dtype=np.float32)
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    labels = np.zeros(features.shape[0], dtype=np.int64) if labels is None else np.array(labels, dtype=np.int64)
    return Graph(features, np.concatenate([ends, ends[::-1]], axis=1), labels, classes)


def phi(graph, kind="mean", hops=1, dim=0, random=0, seed=0):
    made = Features(GraphTensors(graph), Recipe(kind, hops, dim, random, seed))
    items = np.arange(graph.num_nodes)
    return torch.cat([rows for _, rows in made.blocks(items)])


# -- features --------------------------------------------------------------------------------------------------------


def test_features_by_hand():
    # Two linked nodes with rows e1 and e2 once they have length 1; Â = ½ everywhere, N swaps the two.
    graph = graph_of([[2, 0], [0, 3]], [(0, 1)])
    root = np.sqrt(0.5)
    assert phi(graph, "mean")[0].tolist() == pytest.approx([1.5 / np.sqrt(2.5), 0.5 / np.sqrt(2.5), 0.1])
    assert phi(graph, "sgc")[0].tolist() == pytest.approx([root, root, 0.1])
    assert phi(graph, "separate")[0].tolist() == pytest.approx([root, 0, 0, root, 0.1])
    assert phi(graph, "separate", hops=0)[1].tolist() == pytest.approx([0, 1, 0.1])


def test_a_node_without_neighbours_or_features_has_zeros_and_the_constant():
    graph = graph_of([[1, 0], [0, 1], [0, 0]], [(0, 1)])
    assert phi(graph, "separate")[2].tolist() == pytest.approx([0, 0, 0, 0, 0.1])
    assert phi(graph, "mean")[2].tolist() == pytest.approx([0, 0, 0.1])


@pytest.mark.parametrize("kind", ["mean", "sgc", "separate"])
@pytest.mark.parametrize("dim", [0, 6])
def test_sparse_and_dense_features_are_the_same_and_times_is_the_rows_product(kind, dim):
    draw = np.random.default_rng(0)
    dense = (draw.random((40, 12)) < 0.2).astype(np.float32)
    pairs = draw.integers(0, 40, (60, 2))
    one, two = graph_of(dense, pairs), graph_of(sp.csr_matrix(dense), pairs)
    rows = phi(one, kind, hops=2, dim=dim)
    assert torch.allclose(rows, phi(two, kind, hops=2, dim=dim), atol=1e-6)
    assert rows.shape[1] == (7 if dim else 37 if kind == "separate" else 13)
    lengths = rows[:, :-1].norm(dim=1)
    assert torch.all((lengths < 1e-6) | ((lengths - 1).abs() < 1e-6))
    for random in (0, 5):
        made = Features(GraphTensors(two), Recipe(kind, 2, dim, random, 3))
        whole = torch.cat([part for _, part in made.blocks(np.arange(40))])
        weights = torch.from_numpy(draw.standard_normal((made.width, 3)).astype(np.float32))
        assert whole.shape == (40, made.width)
        assert torch.allclose(made.times(weights), (whole @ weights.double()).float(), atol=1e-5)


def test_random_features_are_rectified_projections():
    graph = graph_of([[1, 0], [0, 1]], [])
    rows = phi(graph, "sgc", hops=0, random=50, seed=4)
    assert (rows[:, 3:] >= 0).all()
    assert 0 < (rows[:, 3:] == 0).double().mean() < 1
    assert torch.equal(rows, phi(graph, "sgc", hops=0, random=50, seed=4))
    assert not torch.equal(rows, phi(graph, "sgc", hops=0, random=50, seed=5))


def test_a_projection_keeps_angles():
    draw = np.random.default_rng(1)
    wide = sp.random(200, 50_000, density=0.001, random_state=draw, format="csr", dtype=np.float32)
    narrow = unit_rows(wide @ projection(50_000, 1024, seed=0))
    whole = unit_rows(wide)
    gram, exact = (narrow @ narrow.T).toarray(), (whole @ whole.T).toarray()
    assert np.abs(gram - exact).max() < 0.25
    assert np.sqrt(((gram - exact) ** 2).mean()) < 0.04  # 1 / sqrt(1024) is 0.031


def test_wide_sparse_features_stay_sparse_unless_they_are_few():
    draw = np.random.default_rng(1)
    for count, dim, sparse in ((200, 1024, False), (200, 0, True), (5000, 1024, True)):
        # 50 words spread over four columns each fill a fifth of 1024; 200 rows of these are fewer numbers than SMALL.
        wide = sp.random(count, 50_000, density=0.001, random_state=draw, format="csr", dtype=np.float32)
        made = Features(GraphTensors(graph_of(wide, [])), Recipe("mean", 1, dim, 0, 0))
        assert made.base.shape == (count, dim or 50_000)
        assert (count * (dim or 50_000) > SMALL) == sp.issparse(made.base) == sparse


@pytest.mark.parametrize("kind", ["mean", "sgc", "separate"])
@pytest.mark.parametrize("dim", [0, 20])
def test_what_is_sparse_until_a_hop_fills_it_is_what_is_dense_at_once(kind, dim, monkeypatch):
    draw = np.random.default_rng(2)
    words = sp.random(90, 60, density=0.02, random_state=draw, format="csr", dtype=np.float32)
    graph = graph_of(words, draw.integers(0, 90, (200, 2)))
    dense = phi(graph, kind, hops=3, dim=dim)
    for name, value in (("SMALL", 0), ("_AT_ONCE", 300), ("_FEWEST", 1), ("_DENSE_PROJECTION", 0)):
        monkeypatch.setattr(fedridge_features, name, value)
        assert torch.allclose(phi(graph, kind, hops=3, dim=dim), dense, atol=1e-6)


def test_features_that_are_not_projected_are_made_once_for_all_widths_and_seeds():
    data = GraphTensors(graph_of([[1, 0], [0, 1]], [(0, 1)]))
    one, two = (Features(data, Recipe("mean", 1, dim, 0, seed)).base for dim, seed in ((0, 0), (9, 4)))
    assert one is two
    assert Features(data, Recipe("mean", 1, 1, 0, 4)).base is not one
    Features.forget_others(data, [Recipe("mean", 1, 7, 0, 0)])
    assert Features(data, Recipe("mean", 1, 0, 0, 0)).base is one
    Features.forget_others(data, [Recipe("mean", 1, 1, 0, 0)])
    assert Features(data, Recipe("mean", 1, 0, 0, 0)).base is not one


def test_only_features_of_the_chosen_kind_and_width_stay_in_memory(kit):
    silos = [kit.tiny_silo(client, nodes=12, train=range(6), seed=3) for client in range(2)]
    for pilot in (0, 2):
        _, federation = played(kit, silos, pilot=pilot)
        for silo in silos:
            cache = federation.client(silo.client).data._cache
            assert sum(key[0] == "ridge features" for key in cache) == 1


def test_words_that_stand_twice_in_a_row_count_as_their_sum():
    twice = sp.csr_matrix((np.array([1.0, 2, 4], np.float32), [0, 0, 1], [0, 3]), shape=(1, 2))
    assert not twice.has_canonical_format
    assert unit_rows(twice).toarray()[0].tolist() == pytest.approx([0.6, 0.8])
    assert twice.nnz == 3


def test_graphs_have_the_mean_and_the_sum_of_their_nodes():
    # Without edges; the second graph has two nodes e1, e2; a usual graph has 1.5 nodes.
    union = graph_of([[1, 0], [2, 0], [0, 5]], [], labels=[-1, -1, -1])
    graphs = GraphCollection(union, np.array([0, 1, 3]), np.array([0, 1]), 2)
    made = Features(GraphTensors(graphs), Recipe("sgc", 1, 0, 0, 0), size=1.5)
    ((_, rows),) = made.blocks(np.arange(2))
    assert rows[0].tolist() == pytest.approx([1, 0, 1 / 1.5, 0, 0.1])
    assert rows[1].tolist() == pytest.approx([0.5, 0.5, 1 / 1.5, 1 / 1.5, 0.1])
    assert made.width == 5


def test_blocks_are_those_of_the_whole(kit):
    count = BLOCK + 10
    features = np.random.default_rng(0).standard_normal((count, 3)).astype(np.float32)
    graph = graph_of(features, list(pairwise(range(count))))
    made = Features(GraphTensors(graph), Recipe("mean", 1, 0, 2, 0))
    parts = list(made.blocks(np.arange(count)))
    assert [len(items) for items, _ in parts] == [BLOCK, 10]
    assert torch.equal(parts[1][1], next(made.blocks(np.arange(BLOCK, count)))[1])


def test_a_column_a_thousandth_of_the_others_still_tells_classes_apart():
    """Sums of few columns cross in float64: in float32 such a direction drowns in the rounding of the constant's."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 600)
    small = 0.001 * (2 * labels - 1) * (1 + 0.1 * random.standard_normal(600))
    graph = Graph(
        features=np.stack([np.ones(600), small], axis=1).astype(np.float32),
        edges=np.zeros((2, 0), dtype=np.int64), labels=labels, num_classes=2, name="small",
    )  # fmt: skip
    result = graphsilo.run(data=graph, partition="random", clients=3, method={"name": "fedridge"})
    assert result.accuracy() == 1.0


@pytest.mark.parametrize("dim", [3, 0])
def test_rows_that_lose_most_of_the_mean_of_their_entries(dim):
    """x − 0.9 x̄, projected or not, to length 1; sparse or not."""
    raw = np.random.default_rng(0).random((6, 9)).astype(np.float32)
    rows = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    rows = rows - 0.9 * rows.mean(axis=1, keepdims=True)
    rows = rows @ projection(9, 3, 0).toarray() if dim else rows
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for features in (raw, sp.csr_matrix(raw)):
        made = Features(GraphTensors(graph_of(features, [(0, 1), (1, 2)])), Recipe("mean", 0, dim, 0, 0, centred=True))
        found = torch.cat([part for _, part in made.blocks(np.arange(6))]).numpy()
        assert np.abs(found[:, :-1] - rows).max() < 1e-6
