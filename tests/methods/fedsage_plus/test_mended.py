"""The mended graph of FedSage+."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo import models
from graphsilo.methods.fedsage_plus import mended as mended_graph
from graphsilo.methods.fedsage_plus.mended import Mended, MendedTensors
from graphsilo.models.view import GraphTensors
from graphsilo.training.neighbour_sampling import SampledView
from kit.fedsage_plus import draw, graph_of

# -- mending ---------------------------------------------------------------------------------------------------------


def test_mending_by_hand():
    graph = graph_of([(0, 1), (1, 2)], 3)
    mended = Mended(torch.tensor([1, 1, 2]), torch.full((3, 3), 0.5), torch.tensor([0.0, 2.0, 1.0]))
    after = mended.graph(graph)
    assert after.num_nodes == 6
    assert after.labels[3:].tolist() == [-1, -1, -1]
    matrix = after.adjacency().toarray()
    assert np.array_equal(matrix, matrix.T)
    assert matrix[3:].tolist() == [[0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert np.array_equal(after.features[:3], graph.features)
    assert (after.features[3:] == 0.5).all()


def test_generated_rows_stand_below_sparse_ones():
    graph = replace(
        graph_of([(0, 1)], 3), features=sp.csr_matrix(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], np.float32))
    )
    made = torch.tensor([[0.5, 0.0, -1.0], [0.25, 1.0, 2.0]])
    after = Mended(torch.tensor([1, 2]), made, torch.zeros(3)).graph(graph).features
    after.check_format()
    assert after.toarray().tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 3], [0.5, 0, -1], [0.25, 1, 2]]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("generated", [30, 1])
def test_tensors_of_a_mended_graph_give_the_numbers_of_the_graph(sparse, generated):
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 40, (60, 2)).tolist()
    dense = (rng.random((40, 50)) < 0.05).astype(np.float32)
    graph = graph_of(edges, 40, features=dense)
    graph = replace(graph, features=sp.csr_matrix(dense)) if sparse else graph
    features = torch.from_numpy(rng.standard_normal((generated, 50)).astype(np.float32))
    mended = Mended(torch.from_numpy(rng.integers(0, 40, generated)), features, torch.zeros(40)).graph(graph)
    model = models.build("sage", num_features=50, num_classes=2, seed=0, hidden=8)
    for items in (None, np.array([3, 7, 20])):
        outputs, gradients = [], []
        for tensors in (GraphTensors(mended), MendedTensors(mended, features.numpy())):
            trace = model.trace(tensors.view(items), draw(5))
            outputs.append(trace.logits)
            gradients.append(trace.pull(torch.ones_like(trace.logits)))
        assert torch.allclose(*outputs, atol=1e-5)
        assert all(torch.allclose(*both, atol=1e-4) for both in zip(*gradients, strict=True))


def test_sampling_on_a_mended_graph():
    rng = np.random.default_rng(1)
    dense = (rng.random((30, 20)) < 0.1).astype(np.float32)
    graph = replace(graph_of(rng.integers(0, 30, (40, 2)).tolist(), 30, features=dense), features=sp.csr_matrix(dense))
    made = torch.from_numpy(rng.standard_normal((8, 20)).astype(np.float32))
    mended = Mended(torch.from_numpy(rng.integers(0, 30, 8)), made, torch.zeros(30)).graph(graph)
    tensors = MendedTensors(mended, made.numpy())
    model = models.build("sage", num_features=20, num_classes=2, seed=0, hidden=8)
    items = np.array([21, 3, 7])
    everything = SampledView(tensors, items, (0, 0), draw())
    assert torch.allclose(model(everything), model(tensors.full)[items], atol=1e-5)
    sampled = SampledView(tensors, items, (5, 5), draw())
    assert torch.allclose(model(sampled), model(SampledView(GraphTensors(mended), items, (5, 5), draw())), atol=1e-5)


def test_study_by_hand():
    # The cut took node 3 from node 0. Mending gives it back exactly to 0, and an unneeded one to 2.
    whole = graph_of([(0, 1), (1, 2), (0, 3)], 4)
    local = whole.subgraph(np.array([0, 1, 2]))
    features = torch.tensor([[0.0, 0, 0, 1], [0, 1, 0, 0]])
    mended = Mended(torch.tensor([0, 2]), features, torch.tensor([1.5, 0.0, 1.0]))
    found = mended_graph.study(local, mended, whole)
    assert found["missing_true"] == pytest.approx(1 / 3)
    assert found["missing_generated"] == pytest.approx(2 / 3)
    assert found["missing_error"] == pytest.approx(1 / 3)
    assert found["missing_counts"][:3, :3].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]  # [true, generated]
    assert found["nodes_lacking"] == 1
    assert found["missing_smooth_l1"] == pytest.approx((0.125 + 0 + 0.5) / 3)
    # mean of N(0): e_1 before, (e_1 + e_3)/2 in truth and after: √(¼ + ¼)
    assert found["distance_local"] == pytest.approx(np.sqrt(0.5) / 3)
    assert found["distance_local_lacking"] == pytest.approx(np.sqrt(0.5))
    # node 2's new neighbour equals its old one: nothing changes there
    assert found["distance_mended"] == pytest.approx(0.0, abs=1e-7)
    assert found["mended_edges"].shape == (2, 8)
    assert found["mended_features"].shape == (5, 4)
