"""Same weights, same output as PyTorch Geometric's layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphsilo.models import GraphTensors, Model, build
from graphsilo.random import generator

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.fixture
def setting(make_graph):
    graph = make_graph(nodes=25, features=6)
    return GraphTensors(graph), torch.from_numpy(graph.features), torch.from_numpy(graph.edges)


@pytest.fixture(params=["unweighted", "weighted"])
def weighted(request, make_graph):
    """Data, features, edges and weights; those differ by direction, and two nodes have links to themselves."""
    graph = make_graph(nodes=25, features=6)
    weights = None
    if request.param == "weighted":
        loops = np.array([[1, 7], [1, 7]])
        edges = np.concatenate([graph.edges, loops], axis=1)
        weights = np.random.default_rng(0).uniform(0.1, 5.0, edges.shape[1]).astype(np.float32)
        graph = graph.with_edges(edges, weights)
        weights = torch.from_numpy(weights)
    return GraphTensors(graph), torch.from_numpy(graph.features), torch.from_numpy(graph.edges), weights


def made(name: str, **options: object) -> Model:
    model = build(name, num_features=6, num_classes=3, seed=0, **{"hidden": 8, **options})
    draws = generator(0, "shake")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
    return model


def put(target: nn.Parameter, value: Tensor) -> None:
    assert target.shape == value.shape
    with torch.no_grad():
        target.copy_(value)


def check(model: Model, data: GraphTensors, wanted: Tensor) -> None:
    torch.testing.assert_close(model(data.full), wanted, atol=1e-5, rtol=1e-4)
    rows = np.array([3, 20, 0])
    torch.testing.assert_close(model(data.view(rows)), wanted[rows], atol=1e-5, rtol=1e-4)


def test_gcn(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("gcn", layers=3)
    for index, layer in enumerate(model.layers):
        conv = pyg.GCNConv(*layer.weight.shape)
        put(conv.lin.weight, layer.weight.t())
        put(conv.bias, layer.bias)
        x = conv(x, edges, weights)
        x = x.relu() if index < 2 else x
    check(model, data, x)


@pytest.mark.parametrize("unit_rows", [False, True])
def test_sage(setting, unit_rows: bool) -> None:
    data, x, edges = setting
    model = made("sage", layers=3, unit_rows=unit_rows)
    for index, layer in enumerate(model.layers):
        conv = pyg.SAGEConv(*layer.own.weight.shape, aggr="mean")
        put(conv.lin_l.weight, layer.neighbours.weight.t())
        put(conv.lin_l.bias, layer.neighbours.bias)
        put(conv.lin_r.weight, layer.own.weight.t())
        x = conv(x, edges)
        x = x.relu() if index < 2 else x
        x = nn.functional.normalize(x, dim=1) if index < 2 and unit_rows else x
    check(model, data, x)


@pytest.mark.parametrize(("heads", "output_heads"), [(1, 1), (4, 2)])
def test_gat(setting, heads: int, output_heads: int) -> None:
    data, x, edges = setting
    model = made("gat", layers=3, heads=heads, output_heads=output_heads)
    for index, layer in enumerate(model.layers):
        count, width = layer.source.shape
        conv = pyg.GATConv(layer.linear.weight.shape[0], width, heads=count, concat=index < 2)
        put(conv.lin.weight, layer.linear.weight.t())
        put(conv.att_src, layer.source[None])
        put(conv.att_dst, layer.target[None])
        put(conv.bias, layer.bias)
        x = conv(x, edges)
        x = x.relu() if index < 2 else x
    check(model, data, x)


@pytest.mark.parametrize("train_eps", [False, True])
def test_gin(setting, train_eps: bool) -> None:
    data, x, edges = setting
    model = made("gin", eps=0.4, train_eps=train_eps)
    for index, layer in enumerate(model.layers):
        first, second = (nn.Linear(*linear.weight.shape) for linear in layer.mlp)
        eps = layer.eps.value.item() if train_eps else 0.4
        conv = pyg.GINConv(nn.Sequential(first, nn.ReLU(), second), eps=eps)  # draws the weights anew
        for target, source in zip((first, second), layer.mlp, strict=True):
            put(target.weight, source.weight.t())
            put(target.bias, source.bias)
        x = conv(x, edges)
        x = x.relu() if index < 1 else x
    check(model, data, x)


def test_sgc(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("sgc", hops=3)
    conv = pyg.SGConv(6, 3, K=3)
    put(conv.lin.weight, model.layers[0].weight.t())
    put(conv.lin.bias, model.layers[0].bias)
    check(model, data, conv(x, edges, weights))


def test_ssgc(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("ssgc", hops=5, alpha=0.1)
    conv = pyg.SSGConv(6, 3, alpha=0.1, K=5)
    put(conv.lin.weight, model.layers[0].weight.t())
    put(conv.lin.bias, model.layers[0].bias)
    check(model, data, conv(x, edges, weights))


def test_appnp(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("appnp", hops=7, alpha=0.2)
    first, last = model.layers
    predictions = (x @ first.weight + first.bias).relu() @ last.weight + last.bias
    check(model, data, pyg.APPNP(K=7, alpha=0.2)(predictions, edges, weights))


@pytest.mark.parametrize("name", ["gcnii", "gcnii_openfgl"])
def test_gcnii(weighted, name: str) -> None:
    data, x, edges, weights = weighted
    model = made(name, layers=4)
    start = x = (x @ model.input.weight + model.input.bias).relu()
    for level, layer in enumerate(model.convolutions, 1):
        theta = 0.5 if name == "gcnii" else None
        conv = pyg.GCN2Conv(8, alpha=0.1, theta=theta, layer=level if theta else None)
        assert model.betas[level - 1] == pytest.approx(math.log(0.5 / level + 1) if theta else 1.0)
        put(conv.weight1, layer.weight)
        x = conv(x, start, edges, weights)
        x = x.relu() if name == "gcnii" else x
    check(model, data, x @ model.output.weight + model.output.bias)


@pytest.mark.parametrize("name", ["sign", "gamlp", "ssgc_mlp", "appnp_features"])
def test_propagated_features(weighted, name: str) -> None:
    """These four are layers on Â^l X; PyG's SGConv with the identity as its weight gives Â^l X."""
    data, x, edges, weights = weighted
    for level in (1, 3):
        conv = pyg.SGConv(6, 6, K=level, bias=False)
        put(conv.lin.weight, torch.eye(6))
        wanted = conv(x, edges, weights)
        torch.testing.assert_close(data.full.hop(level).dense(), wanted, atol=1e-5, rtol=1e-4)
    model = made(name)
    assert not torch.equal(model(data.full), model(GraphTensors(data.graph.with_edges(data.graph.edges[:, :0])).full))


def test_sage_takes_the_weighted_mean(weighted) -> None:
    """Σ w h / Σ w over the neighbours, which PyG's SAGEConv does not have, by a dense matrix."""
    data, x, edges, weights = weighted
    matrix = torch.zeros(25, 25).index_put_((edges[1], edges[0]), torch.ones(1) if weights is None else weights)
    matrix = matrix.fill_diagonal_(0)
    mean = matrix / matrix.sum(1, keepdim=True).clamp_min(1e-12)
    model = made("sage", layers=3)
    for index, layer in enumerate(model.layers):
        x = mean @ x @ layer.neighbours.weight + layer.neighbours.bias + x @ layer.own.weight
        x = x.relu() if index < 2 else x
    check(model, data, x)
