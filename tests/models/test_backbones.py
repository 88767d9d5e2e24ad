"""What holds for every backbone, and each one's formula written out with dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.models import GraphTensors, names
from graphsilo.random import generator
from kit.backbones import IDS, VARIANTS, made, shaken, typed


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_restricting_the_rows_changes_no_number(name: str, options: dict, sparse: bool, make_graph) -> None:
    data = GraphTensors(make_graph(sparse=sparse))
    model = shaken(made(name, options))
    logits, embeddings = model(data.full), model.embed(data.full)
    assert logits.shape == (30, 3)
    assert embeddings.shape == (30, model.embedding_dim)
    for rows in (np.array([4, 0, 17, 9]), np.array([1]), np.arange(30), np.array([], dtype=np.int64)):
        view = data.view(rows)
        torch.testing.assert_close(model(view), logits[rows], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(model.embed(view), embeddings[rows], atol=1e-6, rtol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(model(view), logits[rows], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_sparse_and_dense_features_agree(name: str, options: dict, make_graph) -> None:
    graph = make_graph(sparse=True)
    model = shaken(made(name, options))
    dense = graph.with_features(graph.features.toarray())
    torch.testing.assert_close(model(GraphTensors(graph).full), model(GraphTensors(dense).full), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_odd_graphs(name: str, options: dict) -> None:
    single = Graph(np.ones((1, 12), np.float32), np.zeros((2, 0), np.int64), np.array([0]), 1)
    edgeless = Graph(np.eye(5, 12, dtype=np.float32), np.zeros((2, 0), np.int64), np.zeros(5, np.int64), 1)
    blank = Graph(np.zeros((3, 12), np.float32), np.array([[0, 1], [1, 0]]), np.zeros(3, np.int64), 1)
    for graph in (single, edgeless, blank):
        data = GraphTensors(typed(graph))
        model = made(name, options, classes=1)
        for view in (data.full, data.view(np.array([0]))):
            output = model(view, generator(0))
            assert torch.isfinite(output).all()
            gradients = torch.autograd.grad(output.sum(), list(model.parameters()))
            assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_dropout_is_reproducible_and_only_in_training(name: str, options: dict, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = shaken(made(name, options))
    first, again = model(view, generator(0, "a")), model(view, generator(0, "a"))
    assert torch.equal(first, again)
    assert torch.equal(model(view), model(view))
    silent = made(name, {**options, "dropout": 0.0, **({"attention_dropout": 0.0} if "att" in str(options) else {})})
    torch.testing.assert_close(silent(view, generator(0, "a")), silent(view))


@pytest.mark.parametrize("name", names())
def test_dropout_changes_training(name: str, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = made(name, {"layers": 2})
    assert not torch.equal(model(view, generator(0, "a")), model(view, generator(0, "b")))


@pytest.mark.parametrize("name", ["mlp", "gcn", "sage", "gat", "appnp", "sign", "gamlp"])
def test_dropout_keeps_the_mean(name: str, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = made(name, {"layers": 2})
    wanted = model(view)
    total = torch.zeros_like(wanted)
    for draw in range(600):
        total += model(view, generator(0, draw)).detach()
    # With one hidden layer the output is linear in the mask, so its mean is the output without dropout.
    assert (total / 600 - wanted).abs().max().item() < 0.25 * wanted.abs().max().item()


def count(name: str, features: int, classes: int, hidden: int, **options: object) -> int:
    return made(name, {"hidden": hidden, **options}, features, classes).num_parameters


def test_parameter_counts() -> None:
    d, c, h = 50, 7, 64
    assert count("mlp", d, c, h) == d * h + h + h * c + c
    assert count("gcn", d, c, h) == d * h + h + h * c + c
    assert count("sage", d, c, h) == 2 * d * h + h + 2 * h * c + c
    assert count("rgcn", d, c, h) == 7 * (d * h + h * c) + h + c
    assert count("rgcn", d, c, h, bases=2) == 3 * (d * h + h * c) + h + c + 2 * 6 * 2
    assert count("gat", d, c, h) == d * h + 3 * h + h * c + 3 * c
    assert count("gin", d, c, h) == (d * h + h + h * h + h) + (h * h + h + h * c + c)
    layer = 4 * 2 * (h * h + h) + 2 + 6 * (2 * h * h // 4 + 4)
    assert count("hgt", d, c, h) == d * h + h + 2 * layer + h * c + c
    assert count("gine", d, c, h, layers=3) == d * h + h + 3 * (2 * (h * h + h) + 9 * h) + h * c + c
    assert count("sgc", d, c, h) == count("ssgc", d, c, h) == d * c + c
    assert count("appnp", d, c, h) == count("ssgc_mlp", d, c, h) == d * h + h + h * c + c
    assert count("gcnii", d, c, h, layers=8) == d * h + h + 8 * h * h + h * c + c
    assert count("sign", d, c, h, hops=3) == 4 * d * h + h + h * c + c
    # The spec's count for L = 3, without the unused link-prediction layer.
    assert count("gamlp", d, c, 64) == 5 * d + 1 + 64 * d + 64 + 64**2 + 64 + 64 * c + c + 1
    assert count("gamlp", d, c, 64, attention="recursive") == 2 * d + 1 + 64 * d + 64 + 64**2 + 64 + 64 * c + c + 1


@pytest.mark.slow
def test_every_model_learns_a_separable_graph() -> None:
    """Two cliques with their own features: a few steps of plain gradient descent lower the loss."""
    size = 6
    block = np.stack(np.nonzero(np.kron(np.eye(2), np.ones((size, size))) - np.eye(2 * size)))
    labels = np.repeat([0, 1], size)
    graph = Graph(np.eye(2, dtype=np.float32)[labels], block.astype(np.int64), labels, 2)
    view, target = GraphTensors(typed(graph)).full, torch.from_numpy(labels)
    for name in names():
        model = made(name, {"layers": 2, "dropout": 0.2}, 2, 2)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        losses = []
        for step in range(100):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(view, generator(0, step)), target)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        with torch.no_grad():
            assert (model(view).argmax(1) == target).all(), name
        assert losses[-1] < losses[0], name
