"""Views: normalisations by hand, restricted rows, pooling."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph
from graphsilo.models import hops as hops_module
from graphsilo.models import view as view_module
from graphsilo.models.hops import hop_cost, hop_matrix
from graphsilo.models.operators import SPARSE_COST, SparseOperator, product
from graphsilo.models.view import GraphTensors, distinct, normalise

# 0 - 1 - 2 and the isolated node 3
PATH = Graph(
    np.arange(8, dtype=np.float32).reshape(4, 2), np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), np.array([0, 1, 0, 1]), 2
)


def test_norms_by_hand() -> None:
    adjacency = PATH.adjacency()
    root = 1 / 6**0.5
    gcn = [[1 / 2, root, 0, 0], [root, 1 / 3, root, 0], [0, root, 1 / 2, 0], [0, 0, 0, 1]]
    mean = [[0, 1, 0, 0], [1 / 2, 0, 1 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    row = [[1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 1 / 2, 1 / 2, 0], [0, 0, 0, 1]]
    for norm, wanted in (("gcn", gcn), ("mean", mean), ("row", row)):
        np.testing.assert_allclose(normalise(adjacency, norm).toarray(), wanted, rtol=1e-6)
    np.testing.assert_array_equal(normalise(adjacency, "sum").toarray(), adjacency.toarray())
    np.testing.assert_array_equal(normalise(adjacency, "loops").toarray(), adjacency.toarray() + np.eye(4))


def test_self_loops_count_once() -> None:
    looped = sp.csr_matrix(np.array([[1.0, 1.0], [1.0, 0.0]], dtype=np.float32))
    np.testing.assert_allclose(normalise(looped, "gcn").toarray(), np.full((2, 2), 0.5))
    np.testing.assert_array_equal(normalise(looped, "sum").toarray(), [[0, 1], [1, 0]])
    # With a weight of its own it counts as that: 3 / 4, 1 / 4; and 1 / 2, 1 / 2 where there was none.
    weighted = sp.csr_matrix(np.array([[3.0, 1.0], [1.0, 0.0]], dtype=np.float32))
    np.testing.assert_allclose(normalise(weighted, "row").toarray(), [[0.75, 0.25], [0.5, 0.5]])
    np.testing.assert_array_equal(normalise(weighted, "sum").toarray(), [[0, 1], [1, 0]])


def test_weights_enter_by_hand() -> None:
    # 0 -2- 1 -6- 2: degrees 2, 8, 6, and one more each with the node itself.
    weights = np.array([2, 2, 6, 6], dtype=np.float32)
    graph = PATH.with_edges(np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), weights)
    mean = [[0, 1, 0, 0], [1 / 4, 0, 3 / 4, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    one, two = 2 / 27**0.5, 6 / 63**0.5
    gcn = [[1 / 3, one, 0, 0], [one, 1 / 9, two, 0], [0, two, 1 / 7, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(normalise(graph.adjacency(), "mean").toarray(), mean, rtol=1e-6)
    np.testing.assert_allclose(normalise(graph.adjacency(), "gcn").toarray(), gcn, rtol=1e-6)


def test_restricted_view_keeps_only_what_is_needed() -> None:
    view = GraphTensors(PATH).view(np.array([3, 0]))
    assert view.num_rows == view.num_items == 2
    blocks = view.blocks("gcn", 2)
    assert [block.shape for block in blocks] == [(3, 4), (2, 3)]  # {0,1,3} from {0,1,2,3}; {3,0} from {0,1,3}
    assert view.own_rows("gcn", 2)[1].tolist() == [2, 0]
    np.testing.assert_array_equal(view.features().dense().numpy(), PATH.features[[3, 0]])
    np.testing.assert_array_equal(view.features("gcn", 1).dense().numpy(), PATH.features[[0, 1, 3]])


def test_saturated_layers_share_their_operator() -> None:
    view = GraphTensors(PATH).view(np.array([0]))
    blocks = view.blocks("gcn", 6)  # {0}, {0,1}, {0,1,2}, and no more from there
    assert [block.shape for block in blocks[-2:]] == [(2, 3), (1, 2)]
    assert all(block is blocks[0] for block in blocks[1:4])
    assert view.own_rows("gcn", 6)[:4] == [None] * 4


def test_hops_equal_repeated_products(make_graph) -> None:
    for sparse in (False, True):
        graph = make_graph(sparse=sparse)
        data = GraphTensors(graph)
        dense = graph.features.toarray() if sparse else graph.features
        step = data.matrix("gcn").toarray()
        wanted = [dense, step @ dense, step @ step @ dense, step @ step @ step @ dense]
        rows = np.array([5, 0, 7])
        assert data.full.hops(3)[0] is data.full.features()
        for level, matrix in enumerate(wanted):
            np.testing.assert_allclose(data.full.hops(3)[level].dense().numpy(), matrix, atol=1e-6)
            np.testing.assert_allclose(data.view(rows).hop(level).dense().numpy(), matrix[rows], atol=1e-6)
            np.testing.assert_allclose(data.kept_view(rows).hop(level).dense().numpy(), matrix[rows], atol=1e-6)


def test_sparse_hops_stay_sparse() -> None:
    features = sp.random(200, 1000, density=0.01, random_state=0, format="csr", dtype=np.float32)
    path = np.stack([np.arange(199), np.arange(1, 200)])
    data = GraphTensors(Graph(features, np.concatenate([path, path[::-1]], 1), np.zeros(200, np.int64), 1))
    assert all(sp.issparse(hop_matrix(data, level, "gcn")) for level in range(4))
    assert type(data.view(np.arange(200)).hop(2)).__name__ == "SparseOperator"


def _texts(nodes: int, words: int, links: int) -> Graph:
    """Nodes with few of many words, so that their neighbourhoods have most words."""
    draws = np.random.default_rng(0)
    features = sp.random(nodes, words, density=0.05, random_state=0, format="csr", dtype=np.float32)
    ends = draws.integers(0, nodes, (2, links))
    ends = ends[:, ends[0] != ends[1]]
    edges = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    return Graph(features, edges, np.zeros(nodes, np.int64), 1)


@pytest.mark.parametrize("rows", [None, np.arange(60)])
def test_filled_hops_are_factors_where_a_view_is_used_again_and_again(rows) -> None:
    graph = _texts(100, 1000, 600)
    data = GraphTensors(graph)
    view = data.full if rows is None else data.kept_view(rows)
    hop = view.hop(2)
    assert type(hop).__name__ == "ChainOperator"
    assert not [key for key in data._cache if key[0] == "hop"]  # the filled matrix was never made
    step = data.matrix("gcn").toarray().astype(np.float64)
    wanted = (step @ step @ graph.features.toarray())[slice(None) if rows is None else rows]
    right, left = torch.randn(1000, 3), torch.randn(len(wanted), 3)
    np.testing.assert_allclose(hop.mm(right).numpy(), wanted @ right.numpy(), atol=1e-4)
    np.testing.assert_allclose(hop.tmm(left).numpy(), wanted.T @ left.numpy(), atol=1e-4)


def test_filled_hops_are_one_matrix_where_factors_would_be_more_work() -> None:
    data = GraphTensors(_texts(100, 1000, 600))
    assert type(data.view(np.arange(60)).hop(2)).__name__ == "DenseOperator"  # a batch: used once
    assert type(data.kept_view(np.arange(2)).hop(2)).__name__ == "DenseOperator"  # needs all, and is two rows
    assert type(GraphTensors(PATH).full.hop(2)).__name__ == "DenseOperator"  # dense features


@pytest.mark.parametrize("rows", [None, np.arange(60)])
def test_first_layers_and_hops_multiply_the_features_once(rows, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplied = []

    def watched(left, right):
        multiplied.append(right)
        return product(left, right)

    for module in (view_module, hops_module):
        monkeypatch.setattr(module, "product", watched)

    def fresh():
        data = GraphTensors(_texts(100, 1000, 600))
        return data.full if rows is None else data.kept_view(rows)

    view = fresh()
    hops = view.hops(3)
    sparse = [right for right in multiplied if isinstance(right, SparseOperator)]
    assert len(sparse) == (1 if rows is None else 3)  # Of single rows, each hop begins with others.
    assert hops[1] is view.first_layer("gcn", 1)

    view = fresh()
    first = view.first_layer("gcn", 2)
    multiplied.clear()
    assert view.hop(2).right is first
    assert multiplied == [first]
    assert view.first_layer("gcn", 2) is first


def test_factors_that_are_not_used_are_not_kept() -> None:
    view = GraphTensors(_texts(100, 1000, 600)).kept_view(np.arange(2))
    assert all(type(hop).__name__ == "DenseOperator" for hop in view.hops(2)[1:])
    assert not [key for key in (*view._cache, *view.data._cache) if key[0] == "first"]


def test_the_work_of_a_hop_is_known_before_it_is_made() -> None:
    graph = _texts(60, 1000, 100)  # fewer than are sampled: exact
    data = GraphTensors(graph)
    for level in (1, 2, 3):
        filled = hop_matrix(data, level, "gcn").nnz if sp.issparse(hop_matrix(data, level, "gcn")) else None
        if filled is not None:
            assert hop_cost(data, level, "gcn") == pytest.approx(min(SPARSE_COST * filled / 60, 1000))
    assert hop_cost(data, 20, "gcn") <= 1000


def test_one_hop_keeps_no_lower_level() -> None:
    data = GraphTensors(PATH)
    data.full.hop(3)
    assert [key for key in data._cache if key[0] == "hop"] == [("hop", 3, "gcn")]


def test_pool(make_collection) -> None:
    collection = make_collection()
    data = GraphTensors(collection)
    nodes = np.split(collection.union.features, collection.pointer[1:-1])
    chosen = np.array([4, 1])
    view = data.view(chosen)
    assert view.num_items == 2
    values = view.features().dense()
    for how, reduce in (("sum", np.sum), ("mean", np.mean)):
        wanted = np.stack([reduce(nodes[graph], axis=0) for graph in chosen])
        np.testing.assert_allclose(view.pool(values, how).numpy(), wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="collection"):
        GraphTensors(PATH).full.pool(torch.zeros(4, 2))


@pytest.mark.parametrize("count", [10, 10_000])
def test_distinct_numbers_are_ascending(count: int) -> None:
    found = distinct(
        count, np.array([7, 2, 2], dtype=np.int32), np.array([2, 9], dtype=np.int64), np.array([], np.int64)
    )
    assert (found.tolist(), found.dtype) == ([2, 7, 9], np.int64)


@pytest.mark.parametrize("sparse", [True, False])
def test_some_graphs_are_cut_out_of_the_whole_collection(sparse: bool, make_collection) -> None:
    """The collection's own operators and first layer, so that a batch multiplies nothing again; in the order asked."""
    collection = make_collection()
    if sparse:
        features = sp.csr_matrix(collection.union.features)
        collection = dataclasses.replace(collection, union=dataclasses.replace(collection.union, features=features))
    data = GraphTensors(collection)
    pointer, graphs = collection.pointer, np.array([len(collection.pointer) - 2, 0])
    nodes = np.concatenate([np.arange(pointer[graph], pointer[graph + 1]) for graph in graphs])
    view = data.view(graphs)
    for norm in ("sum", "gcn", "mean"):
        whole = data.matrix(norm).toarray()
        for block in view.blocks(norm, 2):
            np.testing.assert_array_equal(block.dense().numpy(), whole[np.ix_(nodes, nodes)])
        first = view.first_layer(norm, 2).dense().numpy()
        expected = (data.matrix(norm) @ collection.union.features)[nodes]
        np.testing.assert_allclose(first, expected.toarray() if sparse else expected, rtol=1e-6, atol=1e-7)
