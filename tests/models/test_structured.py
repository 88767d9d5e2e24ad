"""A backbone beside an MLP on vectors of nodes."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.models.structured import Structured
from graphsilo.models.view import GraphTensors


def path_of(nodes):
    ends = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    features = np.random.default_rng(nodes).standard_normal((nodes, 4)).astype(np.float32)
    edges = np.concatenate([ends, ends[::-1]], axis=1)
    return Graph(features, edges, np.zeros(nodes, dtype=np.int64), 3)


def test_logits_are_the_sum_of_both():
    """On any other graph nothing is known of structure, and the backbone is alone."""
    draw = torch.Generator().manual_seed(0)
    backbone = models.build("gcn", num_features=4, num_classes=3, task="node", generator=draw, hidden=5)
    model = Structured(backbone, 2, 6, 0.5)
    model.reset(draw)
    graph, other = path_of(6), path_of(5)
    rows = torch.randn(6, 2, generator=draw)
    model.known = graph, rows
    data = GraphTensors(graph)
    beside = torch.relu(rows @ model.first.weight + model.first.bias) @ model.second.weight + model.second.bias
    both = backbone(data.full) + beside
    assert float(beside.detach().abs().max()) > 1e-2
    torch.testing.assert_close(model(data.full), both)
    view = data.view(np.array([3, 1]))
    torch.testing.assert_close(model(view), both[[3, 1]])
    outputs = model.outputs(view)
    torch.testing.assert_close(outputs.logits, both[[3, 1]])
    torch.testing.assert_close(outputs.embeddings, backbone.embed(view))
    assert torch.equal(model(GraphTensors(other).full), backbone(GraphTensors(other).full))
