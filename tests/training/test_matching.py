"""Class gradients and their distance, against autograd on the models of the package."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.models.view import GraphTensors
from graphsilo.training.condensation import SyntheticGraphConfig, symmetric_norm
from graphsilo.training.local import load_weights
from graphsilo.training.matching import ClassItems, Distance, Layers, Target, draw_network, match_gradients

CLASSES, HIDDEN = 3, 5


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def some_graph(nodes=9, features=4, *, kind="dense"):
    """A ring with a chord and an isolated node, classes in turn."""
    rows = np.random.default_rng(nodes).standard_normal((nodes, features)).astype(np.float32)
    ring = np.arange(nodes - 1)
    ends = np.stack([np.append(ring, 0), np.append(np.roll(ring, 1), 3)])
    edges = ends if kind == "directed" else np.concatenate([ends, ends[::-1]], axis=1)
    return Graph(
        sp.csr_matrix(rows) if kind == "sparse" else rows,
        edges.astype(np.int64),
        (np.arange(nodes) % CLASSES).astype(np.int64),
        CLASSES,
    )


def items_of(data, numbers=range(CLASSES), among=7):
    labels = data.graph.labels[:among]
    return [ClassItems(number, data.kept_view(np.flatnonzero(labels == number))) for number in numbers]


def by_autograd(network, features, mixing, labels, number):
    """Gradients of the mean cross-entropy of a class, themselves with a gradient."""
    first, second = (layer.clone().requires_grad_() for layer in network)
    hidden = torch.relu(mixing @ features @ first[:-1] + first[-1])
    logits = mixing @ hidden @ second[:-1] + second[-1]
    mine = labels == number
    return torch.autograd.grad(F.cross_entropy(logits[mine], labels[mine]), [first, second], create_graph=True)


@pytest.mark.parametrize("kind", ["dense", "sparse", "directed"])
def test_class_gradients_are_those_of_a_gcn(kind):
    data = GraphTensors(some_graph(kind=kind))
    network = draw_network(4, HIDDEN, CLASSES, drawn())
    model = models.build("gcn", num_features=4, num_classes=CLASSES, task="node", generator=drawn(), hidden=HIDDEN)
    names = dict(zip(("layers.0.", "layers.1."), network, strict=True))
    load_weights(model, {f"{name}weight": layer[:-1] for name, layer in names.items()}
                 | {f"{name}bias": layer[-1] for name, layer in names.items()})  # fmt: skip
    for items in items_of(data):
        rows = np.flatnonzero(data.graph.labels[:7] == items.number)
        loss = F.cross_entropy(model(data.full)[rows], torch.full((len(rows),), items.number))
        wanted = dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, model.parameters()), strict=True))
        for name, found in zip(names, items.gradients(network), strict=True):
            torch.testing.assert_close(found[:-1], wanted[f"{name}weight"])
            torch.testing.assert_close(found[-1], wanted[f"{name}bias"])


@pytest.mark.parametrize("nodes", [3, 6], ids=["fewer nodes than features", "more nodes than features"])
def test_the_distance_and_its_slopes_are_those_of_second_order_gradients(nodes):
    """Class 1 has one node of 3 (6: of five) in the small graph, class 0 the others; class 2 has none."""
    items = items_of(GraphTensors(some_graph()), (0, 1))
    network = draw_network(4, HIDDEN, CLASSES, drawn())
    labels, numbers = torch.tensor([0] * (nodes - 1) + [1]), torch.tensor([0, 1])
    features = torch.randn(nodes, 4, generator=drawn(1)).requires_grad_()
    links = torch.rand(nodes, nodes, generator=drawn(2)).fill_diagonal_(0.0).requires_grad_()
    mixing = symmetric_norm(links + links.t())
    real = [each.gradients(network) for each in items]
    made = [by_autograd(network, features, mixing, labels, number) for number in (0, 1)]
    parts = [[(one - other).square().sum() for one, other in zip(*pair, strict=True)]
             for pair in zip(made, real, strict=True)]  # fmt: skip
    wanted = sum(parts[0]) + sum(parts[1]) / (nodes - 1)
    lengths = [gradients.first.square().sum() for gradients in real]
    slopes = torch.autograd.grad(wanted, [features, links], retain_graph=True)
    distance = Distance(labels, numbers, CLASSES)
    known = Layers(*map(torch.stack, zip(*real, strict=True)))
    for target in (Target.of_items(items, network), Target.of_gradients(known)):
        found = distance(network, features, mixing, target)
        torch.testing.assert_close(found + lengths[0] + lengths[1] / (nodes - 1), wanted, rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(torch.autograd.grad(found, [features, links], retain_graph=True), slopes, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_a_graph_is_at_no_distance_from_itself():
    data = GraphTensors(some_graph())
    items, labels = items_of(data, among=9), torch.from_numpy(data.graph.labels)
    network = draw_network(4, HIDDEN, CLASSES, drawn())
    features = torch.from_numpy(data.graph.features).requires_grad_()
    mixing = data.full.blocks("gcn", 1)[0]
    found = Distance(labels, torch.arange(CLASSES), CLASSES)(
        network, features, mixing, Target.of_items(items, network)
    )  # fmt: skip
    length = sum(each.gradients(network).first.square().sum() for each in items)
    assert float((found + length).detach()) == pytest.approx(0.0, abs=1e-5)
    (slope,) = torch.autograd.grad(found, [features])
    assert float(slope.abs().max()) < 1e-5


@pytest.mark.parametrize("links", ["learned", "direct", "cosine", "edgeless"])
def test_matching_comes_nearer_and_gives_a_graph(links):
    data = GraphTensors(some_graph(nodes=30))
    items, labels = items_of(data, among=29), np.array([0, 0, 1, 1, 2])
    settings = SyntheticGraphConfig(links=links, cycle=4, link_steps=2, lr_features=0.05, link_hidden=8)

    def make(steps):
        start = 3.0 * torch.randn(5, 4, generator=drawn(1))
        return match_gradients(lambda _: items, labels, start, CLASSES, settings, drawn(), steps=steps, hidden=HIDDEN)

    def far(graph):
        distance = Distance(graph.labels, torch.arange(CLASSES), CLASSES)
        networks = [draw_network(4, HIDDEN, CLASSES, drawn(seed)) for seed in range(10, 30)]
        mixing = symmetric_norm(graph.adjacency)
        return sum(float(distance(one, graph.features, mixing, Target.of_items(items, one))) for one in networks)

    before, after = make(0), make(60)
    assert far(after) < far(before)
    adjacency = after.adjacency
    assert torch.equal(adjacency, adjacency.t())
    assert not adjacency.diagonal().any()
    assert bool(adjacency.any()) is (links != "edgeless")
    assert 0 <= float(adjacency.min()) <= float(adjacency.max()) <= 1
    assert after.labels.tolist() == labels.tolist()
    assert torch.equal(after.features, make(60).features)
