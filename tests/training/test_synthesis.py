"""Graphs that are made for models to answer on."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.random import generator
from graphsilo.training import synthesis
from graphsilo.training.local import weights_of
from graphsilo.training.synthesis import (
    ConditionalGenerator,
    Ensemble,
    Generator,
    Synthetic,
    nearest,
    pack,
    spread_classes,
    synthesise,
    unpack,
)

WIDTH, CLASSES = 4, 3


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed))


def model(name="gcn", seed=0, **settings):
    return models.build(name, num_features=WIDTH, num_classes=CLASSES, seed=seed, **settings)


def made(count=6):
    features = drawn(count, WIDTH)
    return Synthetic(features, nearest(features, 2), torch.zeros(count, dtype=torch.int64))


def test_nearest_by_hand():
    """Directions at 0, 10, 30 and 180 degrees, whatever the lengths: 0-1, 1-0, 2-1, 3-2, and back."""
    angles = torch.tensor([0.0, 10.0, 30.0, 180.0]).deg2rad()
    rows = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor([1.0, 5.0, 0.1, 2.0])[:, None]
    assert set(map(tuple, nearest(rows, 1).t().tolist())) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    everybody = nearest(rows, 9)
    assert everybody.shape == (2, 12)
    assert bool((everybody[0] != everybody[1]).all())
    # Of two groups the first node is left alone, and 30 and 180 degrees are each other's.
    assert nearest(rows, 2, torch.tensor([0, 1, 1, 1])).tolist() == [[1, 1, 2, 2, 3, 3], [2, 3, 1, 3, 1, 2]]


def test_nearest_in_blocks_is_the_definition(monkeypatch):
    """Nobody is a neighbour of itself, in whichever block its row is."""
    rows = drawn(11, WIDTH)
    for groups in (torch.zeros(11), torch.arange(11) // 5):  # the last node is a group of its own
        alike = F.cosine_similarity(rows[:, None], rows[None], dim=2).fill_diagonal_(-2.0)
        alike[groups[:, None] != groups] = -2.0
        linked = torch.zeros(11, 11, dtype=torch.bool).scatter_(1, alike.topk(3, dim=1).indices, True) & (alike > -2.0)
        wanted = (linked | linked.t()).nonzero().t()
        for block in (4, 11):
            monkeypatch.setattr(synthesis, "_ROWS", block)
            assert torch.equal(nearest(rows, 3, groups), wanted)


def test_classes_in_equal_parts():
    found = spread_classes(torch.tensor([0, 2, 5]), 7)
    assert found.tolist() == [0, 0, 0, 2, 2, 5, 5]
    assert spread_classes(torch.tensor([0, 2, 5]), 2).tolist() == [0, 2]


def test_a_conditional_generator_by_hand():
    """It reads a class's row, then the noise; dropout is behind each Tanh, at rate 1/2 doubling what stays."""
    made = ConditionalGenerator(2, CLASSES, WIDTH, generator(0), rate=0.5)
    assert made.classes.shape == (CLASSES, CLASSES)
    noise, labels = drawn(5, 2), torch.tensor([2, 0, 1, 1, 2])
    hidden = torch.cat([made.classes[labels], noise], 1)
    *inner, last = made.layers
    for layer in inner:
        hidden = torch.tanh(hidden @ layer.weight + layer.bias)
    torch.testing.assert_close(made.of_classes(noise, labels), hidden @ last.weight + last.bias)
    assert not torch.allclose(made.of_classes(noise, labels, generator(1)), made.of_classes(noise, labels))
    bound = (6 / (2 + CLASSES + 64)) ** 0.5
    assert 0.8 * bound < float(inner[0].weight.detach().abs().max()) <= bound


def test_a_generators_rows_have_their_length():
    for length in (None, 1.0, 3.0):
        found = Generator(5, WIDTH, generator(0), length)(drawn(7, 5)).detach().norm(dim=1)
        assert bool((found < 0.1).all()) if length is None else found.tolist() == pytest.approx([length] * 7)


def test_an_ensemble_answers_as_its_models_do_in_their_order():
    """Equal ones, which are run as one, among others."""
    kinds = [
        ("gcn", {"hidden": 5}),
        ("gat", {"hidden": 4}),
        ("gcn", {"hidden": 5}),
        ("gcn", {"hidden": 6}),
        ("gat", {"hidden": 4}),
    ]
    several = [(name, settings, model(name, seed, **settings)) for seed, (name, settings) in enumerate(kinds)]
    before = [{key: value.clone() for key, value in weights_of(one).items()} for _, _, one in several]
    graph = made()
    found = Ensemble(several)
    assert len(found.parts) == 4
    for view in (graph.tensors().full, graph.live(graph.features.clone().requires_grad_())):
        logits = found(view)
        assert logits.shape == (5, 6, CLASSES)
        for mine, (_, _, one) in zip(logits, several, strict=True):
            torch.testing.assert_close(mine, one(view), atol=1e-5, rtol=1e-4)
    for (_, _, one), kept in zip(several, before, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in weights_of(one).items())


def test_the_gradient_reaches_features_and_not_links():
    graph, one = made(), model(hidden=5)
    leaf = graph.features.clone().requires_grad_()
    one(graph.live(leaf)).square().sum().backward()
    dense = torch.zeros(6, 6)
    dense[tuple(graph.ends)] = 1.0
    other = graph.features.clone().requires_grad_()
    matrix = dense + torch.eye(6)
    scale = matrix.sum(1).rsqrt()
    matrix = scale[:, None] * matrix * scale
    first, second = one.layers
    hidden = (matrix @ other @ first.weight + first.bias).relu()
    (matrix @ hidden @ second.weight + second.bias).square().sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_it_makes_what_the_loss_wants_and_keeps_the_best_step():
    """Of a model whose answer is known: nodes that it takes for their labels."""
    one = model("mlp", hidden=8).requires_grad_(False)
    labels = torch.arange(9) % CLASSES
    seen = []

    def loss(view, wanted):
        value = F.cross_entropy(one(view), wanted)
        seen.append(float(value.detach()))
        return value

    draw = generator(0)
    noise = torch.randn(9, 6, generator=draw)
    start = noise.clone()
    graph, lowest = synthesise(Generator(6, WIDTH, draw, 3.0), noise, labels, loss, steps=60, lr=1e-2, neighbours=2)
    assert lowest == min(seen) < 0.5 * seen[0]
    assert len(seen) == 60
    with torch.no_grad():
        assert float(F.cross_entropy(one(graph.tensors().full), labels)) == pytest.approx(lowest, rel=1e-4)
    assert not torch.equal(noise, start)  # it is trained, too
    assert not graph.features.requires_grad


def test_a_generators_weights_are_as_narrow_as_the_papers():
    """N(0, 0.02²) and biases of 0."""
    made = dict(Generator(64, 300, generator(0)).named_parameters())
    flat = torch.cat([part.detach().flatten() for name, part in made.items() if name.endswith("weight")])
    assert float(flat.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(flat.std()) == pytest.approx(0.02, rel=0.02)
    assert not any(part.any() for name, part in made.items() if name.endswith("bias"))


@pytest.mark.parametrize("longest", [None, 2.0])
def test_its_steps_are_adams_on_gradients_of_a_bounded_length(longest):
    """Betas 0.5 and 0.999 by torch's own; the generator's gradient is shortened, the noise's is not.

    The second of three steps has the lowest loss, and its graph is the one that is kept.
    """
    one, draw = model("mlp", hidden=8).requires_grad_(False), generator(0)
    labels, offsets = torch.arange(9) % CLASSES, iter((5.0, 0.0, 10.0))
    maker, noise = Generator(6, WIDTH, draw, 3.0), torch.randn(9, 6, generator=draw)
    twin, start = copy.deepcopy(maker), noise.clone().requires_grad_()
    adam = torch.optim.Adam([start, *twin.parameters()], lr=0.1, betas=(0.5, 0.999))

    def loss(view, wanted):
        return 30.0 * F.cross_entropy(one(view), wanted) + next(offsets)

    lengths, features = [], []
    for offset in (5.0, 0.0, 10.0):
        features.append(twin(start))
        view = Synthetic(features[-1].detach(), nearest(features[-1], 2), labels).live(features[-1])
        value = 30.0 * F.cross_entropy(one(view), labels) + offset
        adam.zero_grad()
        value.backward()
        lengths.append(float(torch.nn.utils.clip_grad_norm_(twin.parameters(), longest or torch.inf)))
        adam.step()
    assert min(lengths) > 2.0
    assert max(lengths) > 1.2 * min(lengths)  # else Adam would not notice
    graph, _ = synthesise(maker, noise, labels, loss, steps=3, lr=0.1, neighbours=2, max_norm=longest)
    torch.testing.assert_close(noise, start.detach(), atol=1e-4, rtol=1e-3)
    for found, wanted in zip(maker.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(graph.features, features[1].detach(), atol=1e-4, rtol=1e-3)


def test_a_pool_survives_its_state():
    (again,) = unpack(pack([graph := made()]))
    assert all(torch.equal(one, other) for one, other in zip(again, graph, strict=True))
    assert np.array_equal(again.tensors().graph.features, graph.features.numpy())
