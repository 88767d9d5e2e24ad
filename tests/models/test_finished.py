from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.models import build
from graphsilo.models.finished import dense_layers, first_columns
from graphsilo.models.view import GraphTensors

# A path of three nodes: Â has 1/2 and 1/√6 for the ends, 1/3 in the middle.
PATH = Graph(
    features=np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], dtype=np.float32),
    edges=np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), labels=np.array([0, 1, 0]), num_classes=2,
)  # fmt: skip


def _network(name, **settings):
    return build(name, num_features=2, num_classes=2, seed=1, **settings).eval(), GraphTensors(PATH).full


def test_columns_of_one_hop():
    network, view = _network("sgc", hops=1)
    root = 6**-0.5
    expected = [[0.5, root], [3 * root, 1 / 3], [1.0, root]]
    assert first_columns(network, view).numpy() == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize("name", ["mlp", "sgc", "ssgc", "sign"])
def test_dense_layers_on_these_columns_are_the_network(name):
    network, view = _network(name)
    rows = first_columns(network, view)
    for place, (weight, bias) in enumerate(dense_layers(network, view, dict(network.named_parameters()))):
        rows = (rows.relu() if place else rows) @ weight + bias
    assert torch.allclose(rows.log_softmax(1), network(view).log_softmax(1), atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "gat", "gin"])
def test_networks_that_exchange_messages_have_none(name):
    network, view = _network(name)
    assert first_columns(network, view) is None
    assert dense_layers(network, view, dict(network.named_parameters())) == []
