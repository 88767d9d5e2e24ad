"""The classic GNN against PyG's layers, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphsilo.data.graph import Graph
from graphsilo.models import GraphTensors, build
from graphsilo.random import generator
from kit.backbones import DOUBLE
from kit.models import made, put, pyg


@pytest.mark.parametrize("conv", ["gcn", "sage"])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("residual", [True, False])
def test_layers_of_pyg_with_the_same_weights(conv: str, norm: str, residual: bool, make_graph) -> None:
    graph = make_graph(nodes=25, features=6)
    model = made("classic", conv=conv, norm=norm, residual=residual).double()
    x, edges = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.edges)
    x = x @ model.input.weight + model.input.bias
    for layer in model.convolutions:
        itself = x
        if conv == "gcn":
            theirs = pyg.GCNConv(8, 8).double()
            put(theirs.lin.weight, layer.neighbours.weight.t())
            put(theirs.bias, layer.neighbours.bias)
        else:
            theirs = pyg.SAGEConv(8, 8, aggr="mean").double()
            put(theirs.lin_l.weight, layer.neighbours.weight.t())
            put(theirs.lin_l.bias, layer.neighbours.bias)
            put(theirs.lin_r.weight, layer.own.weight.t())
        x = theirs(x, edges)
        x = x + itself @ layer.residual.weight if residual else x
        x = F.layer_norm(x, (8,), layer.norm.weight, layer.norm.bias) if norm == "layer" else x
        x = x.relu()
    wanted, data = x @ model.output.weight + model.output.bias, GraphTensors(graph, dtype=DOUBLE)
    # The constant matrix is kept in single precision.
    torch.testing.assert_close(model(data.full), wanted, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(model(data.view(np.array([3, 20, 0]))), wanted[[3, 20, 0]], atol=1e-6, rtol=1e-6)


# The path 0 - 1 - 2 with x = 1, 2, 4 and hidden width 1: H⁰ = 2x - 1 = 1, 3, 7.
# gcn: degrees 2, 3, 2 with the loops: 1/2 + 3/√6, 8/√6 + 1, 3/√6 + 7/2. sage: means 3, 4, 3 of the neighbours.
# Both - 2; for sage 3 H⁰ more, with the residual H⁰ / 2 more. Of the first row ReLU leaves nothing without it.
SIX = 6**0.5
BY_HAND = [
    ("gcn", False, [0.5 + 3 / SIX - 2, 8 / SIX - 1, 3 / SIX + 1.5]),
    ("gcn", True, [3 / SIX - 1, 8 / SIX + 0.5, 3 / SIX + 5]),
    ("sage", False, [4.0, 11.0, 22.0]),
    ("sage", True, [4.5, 12.5, 25.5]),
]


@pytest.mark.parametrize(("conv", "residual", "before"), BY_HAND)
def test_three_nodes_by_hand(conv: str, residual: bool, before: list[float]) -> None:
    graph = Graph(
        np.array([[1], [2], [4]], np.float32), np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), np.zeros(3, np.int64), 1
    )
    model = build(
        "classic", num_features=1, num_classes=1, seed=0, conv=conv, hidden=1, layers=1, norm="none", residual=residual
    )
    values = {
        "input.weight": 2.0, "input.bias": -1.0, "output.weight": 10.0, "output.bias": 0.25,
        "convolutions.0.neighbours.weight": 1.0, "convolutions.0.neighbours.bias": -2.0,
        "convolutions.0.own.weight": 3.0, "convolutions.0.residual.weight": 0.5,
    }  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(values[name])
    wanted = 10.0 * torch.tensor(before).clamp_min(0.0) + 0.25
    torch.testing.assert_close(model(GraphTensors(graph).full).flatten(), wanted)


def test_where_dropout_is(make_graph) -> None:
    """Behind the first linear layer and each convolution's ReLU: with all but these at 1, masks are what is left."""
    view = GraphTensors(make_graph(nodes=25, features=6)).full
    model = build("classic", num_features=6, num_classes=1, seed=0, hidden=4, layers=1, dropout=0.5, norm="none")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.input.bias.fill_(1.0)
        model.convolutions[0].residual.weight.copy_(torch.eye(4))
    found = model.embed(view, generator(0))
    assert sorted(set(found.flatten().tolist())) == [0.0, 4.0]  # 2 of the first mask times 2 of the second
    assert 0.1 < (found > 0).float().mean().item() < 0.4


def test_the_number_of_parameters() -> None:
    d, c, h, layers = 50, 7, 64, 4
    bare = d * h + h + layers * (h * h + h) + h * c + c
    for conv, norm, residual, more in [
        ("gcn", "none", False, 0),
        ("sage", "none", False, h * h),
        ("gcn", "none", True, h * h),
        ("sage", "layer", True, 2 * h * h + 2 * h),
    ]:
        model = build(
            "classic", num_features=d, num_classes=c, seed=0, conv=conv, layers=layers, norm=norm, residual=residual
        )
        assert model.num_parameters == bare + layers * more
