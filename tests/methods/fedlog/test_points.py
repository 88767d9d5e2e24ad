"""FedLoG's encoder on nodes alone and in pairs, against the model on a graph of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.errors import UnsupportedError
from graphsilo.methods.fedlog.points import PointEncoder, layers_of
from graphsilo.models.view import GraphTensors


@pytest.mark.parametrize("hidden", [[8], [8, 5]], ids=str)
@pytest.mark.parametrize("name", ["sage", "gcn", "mlp"])
def test_points_are_encoded_as_a_graph_of_single_nodes_and_pairs(name, hidden):
    alone, pairs, draw = 4, 3, torch.Generator().manual_seed(0)
    model = models.build(
        name, num_features=7, num_classes=2, task="link", embedding_dim=5, seed=0, hidden=hidden
    ).double()
    features = torch.randn(alone + 2 * pairs, 7, generator=draw).numpy()
    first, second = np.arange(alone, alone + pairs), np.arange(alone + pairs, alone + 2 * pairs)
    edges = np.stack([np.concatenate([first, second]), np.concatenate([second, first])])
    graph = Graph(features, edges, np.zeros(len(features), dtype=np.int64), 2)
    wanted = model(GraphTensors(graph, dtype=torch.float64).full)
    points = torch.from_numpy(features).double()
    encoder = PointEncoder(model, 0.5)
    run = encoder.forward(points[:alone], points[alone:], None)
    torch.testing.assert_close(run.output, wanted.detach())
    pushed = torch.randn(*run.output.shape, generator=draw, dtype=torch.float64)
    gradients, below = encoder.backward(run, pushed.clone(), wanted=alone)
    for mine, reference in zip(
        gradients, torch.autograd.grad((wanted * pushed).sum(), list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(mine, reference)
    assert below.shape == (alone, 7)
    step = 1e-6
    for row, column in ((0, 0), (3, 6)):
        moved = points.clone()
        moved[row, column] += step
        change = ((encoder.forward(moved[:alone], moved[alone:], None).output - run.output) * pushed).sum() / step
        assert float(below[row, column]) == pytest.approx(float(change), abs=1e-6)


def test_other_backbones_are_refused():
    model = models.build("gat", num_features=3, num_classes=2, task="link", seed=0)
    with pytest.raises(UnsupportedError, match="sage, gcn and mlp"):
        layers_of(model)
