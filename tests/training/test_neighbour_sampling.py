"""Sampled neighbourhoods: what is drawn, what a matrix's rows become of it, and that every backbone takes them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.data.sources.directions import to_undirected
from graphsilo.errors import UnsupportedError
from graphsilo.models.view import GraphTensors
from graphsilo.training.neighbour_sampling import SampledView, draw
from kit.backbones import made, typed

NORMS = ("gcn", "mean", "sum", "row", "loops")


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def graph_of(edges, nodes, weights=None):
    features = np.eye(nodes, dtype=np.float32)
    return Graph(features, np.asarray(edges), np.zeros(nodes, np.int64), 2, edge_weights=weights)


def random_graph(nodes=40, edges=300, weighted=False):
    rng = np.random.default_rng(0)
    links = np.unique(rng.integers(0, nodes, (2, edges)), axis=1)
    weights = rng.uniform(0.5, 2.0, links.shape[1]).astype(np.float32) if weighted else None
    return graph_of(links, nodes, weights)


def test_draws_by_hand():
    # Row 0 has the columns 1 and 2, row 1 only 0, row 2 none.
    matrix = sp.csr_matrix(np.array([[0, 0.5, 0.5], [1, 0, 0], [0, 0, 0]], dtype=np.float32))
    drawn = draw(matrix, np.array([2, 1, 0]), 4, source())
    assert drawn.pointer.tolist() == [0, 0, 4, 8]
    assert matrix.indices[drawn.places[:4]].tolist() == [0] * 4
    assert set(matrix.indices[drawn.places[4:]]) <= {1, 2}
    every = draw(matrix, np.array([1, 0]), 0, source())
    assert every.places.tolist() == [2, 0, 1]


def test_a_mean_is_that_of_the_draws():
    star = graph_of([[1, 2, 3], [0, 0, 0]], 4)  # node 0 has three neighbours
    (block,) = SampledView(GraphTensors(star), np.array([0]), (5,), source()).blocks("mean", 1)
    values = block.matrix.data
    assert values.sum() == pytest.approx(1.0)
    assert np.rint(values * 5) / 5 == pytest.approx(values)
    assert 0 in SampledView(GraphTensors(star), np.array([0]), (5,), source())._frontier("mean", 1)[0]


def test_heavier_neighbours_count_more_in_a_mean():
    pair = graph_of([[1, 2], [0, 0]], 3, np.array([3.0, 1.0], dtype=np.float32))
    data, mean = GraphTensors(pair), np.zeros(3)
    for seed in range(300):
        view = SampledView(data, np.array([0]), (8,), source(seed))
        mean[view._frontier("mean", 1)[0]] += view.blocks("mean", 1)[0].matrix.toarray()[0] / 300
    # Of k draws of node 1 and 8 - k of node 2: 3k / (3k + 8 - k), 0.727 on average over k.
    assert mean == pytest.approx([0, 0.727, 0.273], abs=0.02)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", ["gcn", "sum", "row", "loops"])
def test_a_row_is_right_on_average_and_its_diagonal_always(norm, weighted):
    data = GraphTensors(random_graph(weighted=weighted))
    items, mean = np.array([5, 3]), np.zeros((2, 40))
    want = data.matrix(norm)[items].toarray()
    for seed in range(400):
        view = SampledView(data, items, (4,), source(seed))
        columns = view._frontier(norm, 1)[0]
        found = np.zeros((2, 40))
        found[:, columns] = view.blocks(norm, 1)[0].matrix.toarray()
        assert found[[0, 1], items] == pytest.approx(want[[0, 1], items])
        mean += found / 400
    # A draw of one of some seven neighbours: 7/4 of its weight so often; the mean of 400 is within 4 of its deviations.
    assert mean == pytest.approx(want, abs=4 * 7 / 4 * want.max() * np.sqrt(4 / 7 / 400) + 1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_taking_all_is_the_matrix(norm):
    data = GraphTensors(random_graph(weighted=True))
    items = np.array([7, 3])
    sampled, whole = SampledView(data, items, (0, 0), source()), data.view(items)
    for one, other in zip(sampled.blocks(norm, 2), whole.blocks(norm, 2), strict=True):
        assert one.matrix.toarray() == pytest.approx(other.matrix.toarray(), abs=1e-7)


def test_a_sampled_view_holds_few_rows():
    view = SampledView(GraphTensors(random_graph(200, 4000)), np.array([7, 3]), (2, 2), source())
    blocks = view.blocks("gcn", 2)
    assert blocks[1].shape[0] == 2
    assert blocks[1].shape[1] <= 6
    assert blocks[0].shape == (blocks[1].shape[1], blocks[0].shape[1])
    assert blocks[0].shape[1] <= 18


def test_what_is_drawn_does_not_depend_on_what_was_computed_before():
    graph = random_graph()
    model = models.build("sage", num_features=40, num_classes=2, seed=0, hidden=8)
    fresh, used = GraphTensors(graph), GraphTensors(graph)
    model(used.full)
    first, second = (SampledView(data, np.array([7, 3]), (2, 2), source()) for data in (fresh, used))
    for one, other in zip(first.blocks("mean", 2), second.blocks("mean", 2), strict=True):
        assert one.matrix.shape == other.matrix.shape
        assert (one.matrix != other.matrix).nnz == 0
    assert torch.equal(model(first), model(second))


@pytest.mark.parametrize(
    ("name", "settings"),
    [("gcn", {}), ("gcn", {"layers": 3}), ("sage", {}), ("sage", {"unit_rows": True}), ("gat", {}), ("gin", {}),
     ("gin", {"train_eps": True}), ("appnp", {"hops": 3}), ("gcnii", {"layers": 4}), ("classic", {}),
     ("classic", {"conv": "sage"}), ("sgc_stacked", {}), ("rgcn", {}), ("gine", {}), ("hgt", {})],
    ids=str,
)  # fmt: skip
def test_all_neighbours_give_what_the_whole_graph_gives(name, settings):
    graph = random_graph()
    graph = typed(graph.with_edges(to_undirected(graph.edges, 40))) if models.entry(name).relational else graph
    data, model = GraphTensors(graph), made(name, {"hidden": 64, **settings}, 40, 2)
    items = np.array([7, 3, 11])
    depth = model.message_layers
    assert depth
    sampled = SampledView(data, items, (0,) * depth, source())
    with torch.no_grad():
        whole, found = model.outputs(data.view(items)), model.outputs(sampled)
        some = model(SampledView(data, items, (2,) * depth, source()))
    assert torch.allclose(found.logits, whole.logits, atol=1e-5)
    assert torch.allclose(found.embeddings, whole.embeddings, atol=1e-5)
    assert some.shape == (3, 2)
    assert not torch.allclose(some, whole.logits, atol=1e-3)


def test_relations_are_not_sampled_along_one_direction():
    view = SampledView(GraphTensors(typed(random_graph())), np.array([7]), (2, 2), source())
    with pytest.raises(UnsupportedError, match=r"fan_out=0, or leave `directed` out"):
        made("rgcn", {}, 40, 2)(view)
