"""GINs between linear layers: their formulas with dense matrices, and which of their layers are shared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.models import GraphTensors, build
from graphsilo.models.backbones.gin_fedstar import FedStarGIN
from graphsilo.models.encodings import structure_of
from kit.backbones import DOUBLE, close, shaken

NAMES = ["gin_gcfl", "gin_fedstar"]


def graph(nodes=12):
    draw = np.random.default_rng(0)
    ends = draw.integers(0, 4, (2, 30)) + 4 * draw.integers(0, nodes // 4, 30)
    ends = ends[:, ends[0] != ends[1]]
    features = draw.standard_normal((nodes, 6)).astype(np.float32)
    return Graph(features, np.concatenate([ends, ends[::-1]], 1), np.full(nodes, -1), 2)


def collection():
    return GraphCollection(graph(), np.array([0, 4, 8, 12]), np.array([0, 1, 0]), 2)


def model_of(name, **more):
    return shaken(build(name, num_features=6, num_classes=3, hidden=5, layers=2, seed=0, **more)).double()


def formula(model, data):
    """Embeddings of nodes, as the papers print them."""
    whole = torch.from_numpy(data.matrix("sum").toarray()).double() + torch.eye(data.num_nodes)
    mixing = torch.from_numpy(data.matrix("gcn").toarray()).double()
    hidden = model.pre(torch.from_numpy(data.graph.features).double())
    star = isinstance(model, FedStarGIN)
    if star:
        start, *others = model.structure
        structure = start(torch.from_numpy(structure_of(data, 16, 16)).double())
    for place, layer in enumerate(model.convolutions):
        inner, outer = layer.mlp
        read = torch.cat([hidden, structure], 1) if star else hidden
        hidden = outer(inner(whole @ read).relu()).relu()
        if star:
            structure = torch.tanh(mixing @ (structure @ others[place].weight) + others[place].bias)
    return model.joined(torch.cat([hidden, structure], 1)) if star else hidden


@pytest.mark.parametrize("name", NAMES)
def test_nodes_are_as_the_formula_says(name):
    model, data = model_of(name), GraphTensors(graph(), dtype=DOUBLE)
    embeddings = model.post(formula(model, data)).relu()
    close(model.embed(data.full), embeddings)
    close(model(data.full), model.output(embeddings))
    some = np.array([7, 2, 3])
    close(model(data.view(some)), model.output(embeddings)[torch.from_numpy(some)])
    close(model.classify(embeddings), model.output(embeddings))


@pytest.mark.parametrize("name", NAMES)
def test_graphs_are_sums_of_nodes(name):
    model, data = model_of(name, task="graph"), GraphTensors(collection(), dtype=DOUBLE)
    pooled = formula(model, data).view(3, 4, 5).sum(1)
    close(model(data.full), model.output(model.post(pooled).relu()))
    close(model(data.view(np.array([2, 0]))), model(data.full)[[2, 0]])


@pytest.mark.parametrize(("name", "floats"), [("gin_gcfl", 24_960), ("gin_fedstar", 14_592)])
def test_what_is_shared(name, floats):
    """2 L (h² + h), and (k₁ + k₂) h + h + L (h² + h), with h = 64, L = 3 and 16 columns of either encoding."""
    sizes = {}
    for features, classes in ((7, 2), (9, 5)):
        model = build(name, num_features=features, num_classes=classes, seed=0)
        core = {key: tuple(value.shape) for key, value in model.named_parameters() if key.startswith(model.core)}
        sizes[features] = core
        assert sum(np.prod(shape) for shape in core.values()) == floats
    assert sizes[7] == sizes[9]


def test_the_loss_reaches_the_channel_of_structure():
    model, data = model_of("gin_fedstar", task="graph"), GraphTensors(collection(), dtype=DOUBLE)
    found = torch.autograd.grad(model(data.full).square().sum(), list(model.structure.parameters()))
    assert all(bool((one != 0).any()) for one in found)


def test_without_encodings_and_biases_structure_means_nothing():
    model = model_of("gin_fedstar")
    with torch.no_grad():
        for layer in model.structure:
            layer.bias.zero_()
        model.structure[0].weight.zero_()
        data = GraphTensors(graph(), dtype=DOUBLE)
        before = model(data.full)
        model.structure[1].weight.mul_(5.0)
        close(model(data.full), before)


def test_dropout_is_drawn_in_training_alone():
    model, data = model_of("gin_gcfl"), GraphTensors(graph(), dtype=DOUBLE)
    draws = torch.Generator().manual_seed(0)
    assert not torch.equal(model(data.full, draws), model(data.full))
