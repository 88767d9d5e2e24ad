"""FedLoG's neighbour generator: targets by hand, gradient matching against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.methods.fedlog import generator as fg
from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.models.view import GraphTensors
from graphsilo.training.upstream import gradients_of

CLASSES, WIDTH = 3, 5


def path(isolated=1):
    """0 - 1 - 2 - 3 with a loop at 1, and isolated nodes behind."""
    features = np.array([[1, 0], [2, 1], [3, 4], [5, 6], *[[9, 9]] * isolated], dtype=np.float32)
    edges = np.array([[0, 1, 1, 2, 2, 3, 1], [1, 0, 2, 1, 3, 2, 1]])
    return GraphTensors(Graph(features, edges, np.arange(len(features)) % 2, 2))


def test_neighbour_means_by_hand():
    nodes = np.array([1, 3, 4])
    means, known = fg.neighbour_means(path(), nodes, 1)
    assert means.tolist() == [[2.0, 2.0], [3.0, 4.0], [0.0, 0.0]]
    assert known.tolist() == [True, True, False]
    means, _ = fg.neighbour_means(path(), nodes, 2)
    assert means.tolist() == [[3.0, pytest.approx(10 / 3)], [2.5, 2.5], [0.0, 0.0]]


@pytest.fixture
def random_graph():
    draw = np.random.default_rng(0)
    pairs = draw.integers(0, 12, (2, 20))
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    features = draw.standard_normal((12, 7)).astype(np.float32)
    return Graph(features, edges, draw.integers(0, CLASSES, 12), CLASSES)


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize(("name", "hidden"), [("sage", [8]), ("gcn", [8]), ("mlp", [8]), ("sage", [8, 6])], ids=str)
def test_gradient_matching_is_the_gradient_of_a_gradient(random_graph, name, hidden, elementwise):
    data, nodes = GraphTensors(random_graph, dtype=torch.float64), np.array([0, 2, 3, 7, 9])
    labels, draw = torch.from_numpy(random_graph.labels[nodes]), torch.Generator().manual_seed(0)
    model = models.build(
        name, num_features=7, num_classes=CLASSES, task="link", embedding_dim=WIDTH, seed=0, hidden=hidden
    ).double()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # biases are 0 at the start, which would hide a mistake
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    head = tuple(torch.randn(*shape, generator=draw).double() for shape in ((WIDTH, CLASSES), (CLASSES,)))
    fake = torch.randn(len(nodes), 7, generator=draw).double().requires_grad_()
    matching = fg.GradientMatching(data, nodes, labels, elementwise=elementwise)
    loss = matching.distance(matching.network(model, head), fake)
    (gradient,) = gradients_of(loss, [fake])

    norm = "gcn" if name == "gcn" else "mean"
    parts = dict(model.named_parameters())

    def loss_of(features, adjacency, rows):
        value = features
        for layer in range(len(model.layers)):
            part = {key.split(".", 2)[2]: item for key, item in parts.items() if key.startswith(f"layers.{layer}.")}
            if name == "sage":
                value = (adjacency @ value) @ part["neighbours.weight"] + value @ part["own.weight"]
                value = value + part["neighbours.bias"]
            else:
                value = (adjacency @ value if name == "gcn" else value) @ part["weight"] + part["bias"]
            value = value.relu() if layer < len(model.layers) - 1 else value
        return F.cross_entropy(value[rows] @ head[0] + head[1], labels)

    count = len(nodes)
    swap = torch.eye(2 * count).roll(count, 0).double()
    swap = (swap + torch.eye(2 * count)) / 2 if name == "gcn" else swap
    whole = torch.from_numpy(data.matrix(norm).toarray()).double()
    features = torch.from_numpy(random_graph.features).double()
    real = torch.autograd.grad(loss_of(features, whole, nodes), list(parts.values()))
    said = torch.autograd.grad(
        loss_of(torch.cat([features[nodes], fake]), swap, np.arange(count)), list(parts.values()), create_graph=True
    )
    squares = [(mine - other).square() for mine, other in zip(said, real, strict=True)]
    wanted = sum(square.mean() if elementwise else square.sum() for square in squares)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-10, abs=1e-12)
    reference = torch.autograd.grad(wanted, fake)[0]
    torch.testing.assert_close(gradient, reference, rtol=1e-9, atol=1e-12)
    assert (float(reference.abs().max()) > 1e-3) is (name != "mlp")  # a perceptron hears nothing of neighbours


def test_a_generator_that_says_what_the_graph_says_costs_nothing():
    """Two joined nodes: the pair with the true neighbour is the graph itself."""
    graph = Graph(np.eye(2, 3, dtype=np.float32), np.array([[0, 1], [1, 0]]), np.array([0, 1]), 2)
    data = GraphTensors(graph)
    matching = fg.GradientMatching(data, np.array([0]), torch.tensor([0]))
    model = models.build("sage", num_features=3, num_classes=2, task="link", embedding_dim=4, seed=0, hidden=[5])
    network = matching.network(model, (torch.eye(4, 2), torch.zeros(2)))
    assert matching.distance(network, torch.tensor([[0.0, 1.0, 0.0]])).item() == pytest.approx(0.0, abs=1e-10)
    assert matching.distance(network, torch.tensor([[1.0, 1.0, 1.0]])).item() > 1e-4


def fitting(graph, output="tanh", **settings):
    nodes = np.array([0, 2, 3, 7, 9])
    return fg.Fitting(
        GraphTensors(graph), nodes, torch.from_numpy(graph.labels[nodes]), CLASSES, FedLoGConfig(**settings), output,
        lambda draw: models.build(
            "sage", num_features=7, num_classes=CLASSES, task="link", embedding_dim=WIDTH, generator=draw, hidden=[8]
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        {"grad_weight": 0.0},
        {"nets_per_epoch": 1},
        pytest.param({"nets_per_epoch": 3}, marks=pytest.mark.slow),
        pytest.param({"matching": "last"}, marks=pytest.mark.slow),
        pytest.param({"output": "identity"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_fitting_lowers_the_loss_and_repeats_itself(random_graph, settings):
    fit = fitting(random_graph, generator_epochs=60, networks=3, **settings)
    start = fg.draw(7, torch.Generator().manual_seed(0))
    kept = {name: value.clone() for name, value in start.items()}
    first, losses = fit.run(start, torch.Generator().manual_seed(5))
    again, _ = fit.run(start, torch.Generator().manual_seed(5))
    assert np.mean(losses[-5:]) < 0.6 * losses[0]
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(torch.equal(start[name], kept[name]) for name in kept)


@pytest.mark.parametrize(
    ("settings", "count", "share"),
    [
        ({"nets_per_epoch": 3}, 3, 2 / 3),  # the weight is shared by the networks that an epoch uses
        ({"nets_per_epoch": 2}, 2, 2 / 2),
        ({"matching": "last"}, 1, 2 / 3),  # a fresh one, which counts as one of all
        ({"grad_weight": 0.0}, 0, 0.0),
    ],
    ids=str,
)
def test_the_loss_of_an_epoch(random_graph, settings, count, share):
    fit = fitting(random_graph, **{"generator_epochs": 1, "networks": 3, "grad_weight": 2.0, **settings})
    start, draw = fg.draw(7, torch.Generator().manual_seed(0)), torch.Generator().manual_seed(5)
    _, (loss,) = fit.run(start, torch.Generator().manual_seed(5))
    kept = [fit._network(draw) for _ in range(3)] if "nets_per_epoch" in settings else []
    fake = fit._forward(start, draw)
    chosen, found = fit._choose(kept, draw)
    wanted = ((fake - fit.targets).square() * fit.known).sum()
    wanted = wanted + share * sum(fit.matching.distance(network, fake) for network in chosen)
    assert (len(chosen), found) == (count, pytest.approx(share))
    assert len({id(network) for network in chosen}) == count
    assert loss == pytest.approx(wanted.item(), rel=1e-5)


def test_a_neighbour_learns_to_pull_as_the_graph_does(random_graph):
    """With a weight beside which the features' means count nothing, the distance of the gradients falls."""
    fit = fitting(random_graph, generator_epochs=100, networks=1, grad_weight=1e6, output="identity")
    fit.known = torch.zeros_like(fit.known)
    _, losses = fit.run(fg.draw(7, torch.Generator().manual_seed(0)), torch.Generator().manual_seed(5))
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])


def test_fitting_a_graph_without_edges_stays_finite(random_graph):
    fit = fitting(random_graph.with_edges(np.zeros((2, 0), dtype=np.int64)), generator_epochs=3, networks=1)
    weights, losses = fit.run(fg.draw(7, torch.Generator().manual_seed(0)), torch.Generator().manual_seed(5))
    assert np.isfinite(losses).all()
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_class_wise_generation_uses_each_classs_generator():
    draws = [fg.draw(4, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    stacked = {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    made = fg.generate(stacked, features, "tanh")
    for label, draw in enumerate(draws):
        one = {name: value[None] for name, value in draw.items()}
        torch.testing.assert_close(
            made[3 * label : 3 * label + 3], fg.generate(one, features[3 * label : 3 * label + 3], "tanh")
        )
    assert float(made.abs().max()) < 1.0
