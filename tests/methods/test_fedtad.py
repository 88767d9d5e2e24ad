"""FedTAD: how well a class is known, what graphs are made for and what the mean model learns of them, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph
from graphsilo.errors import MessageError
from graphsilo.federation.message import Empty
from graphsilo.methods.fedtad import Reliability, agreement, shares_of, slope_of
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.local import weights_of
from graphsilo.training.losses import likeness
from graphsilo.training.synthesis import Ensemble, Synthetic, nearest
from kit.messages import check_sent

SHORT = {"iterations": 2, "student_steps": 2, "nodes": 8, "noise_dim": 4}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed))


def path(features, edges=((0, 1, 1, 2), (1, 0, 2, 1)), weights=None):
    weights = None if weights is None else np.array(weights, dtype=np.float32)
    return GraphTensors(Graph(features, np.array(edges), np.full(3, -1), 2, edge_weights=weights))


ROWS = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], dtype=np.float32)
"""The first two nodes of a path are alike, the last one is not."""


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_agreement_by_hand(form):
    """Cosines 1 and 0: (1 + 1) / 2, (1 + 1 + 0) / 3, (1 + 0) / 2. With two steps an end, (0, ½), and the centre,
    (0, 1), are told apart: (2 + ½) / √(4¼ · 2) at the first link, ½ / √(9¼ · 2) at the second."""
    nodes = np.array([2, 0, 1])
    assert agreement(path(form(ROWS)), nodes, 0).tolist() == pytest.approx([1 / 2, 1, 2 / 3])
    first, second = 2.5 / math.sqrt(4.25 * 2), 0.5 / math.sqrt(9.25 * 2)
    wanted = [(1 + second) / 2, (1 + first) / 2, (1 + first + second) / 3]
    assert agreement(path(form(ROWS)), nodes, 2).tolist() == pytest.approx(wanted)


def test_links_count_in_both_directions_by_their_weight_and_loops_do_not():
    """(1 + 3 · 1) / 4, (1 + 3 · 1 + 0) / 5; without links a node agrees with itself."""
    one_way = path(ROWS, ((0, 1, 1), (1, 2, 1)), (3.0, 1.0, 7.0))
    assert agreement(one_way, np.arange(3), 0).tolist() == pytest.approx([1.0, 4 / 5, 1 / 2])
    assert agreement(path(ROWS, np.zeros((2, 0), dtype=int)), np.arange(3), 5).tolist() == pytest.approx([1, 1, 1])


def test_shares_by_hand():
    known = torch.tensor([[3.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert shares_of(known, "clients").tolist() == [[0.75, 1.0, 0.0], [0.25, 0.0, 0.0]]
    assert shares_of(known, "classes").tolist() == [[0.75, 0.25, 0.0], [1.0, 0.0, 0.0]]
    assert not shares_of(torch.zeros(2, 3), "classes").any()


def test_a_client_rates_its_classes(kit):
    """Nodes 0 and 2 of class 0, 1 of class 1. Where each is the opposite of its neighbours, φ is 0, −1/3 and −1/3."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, train=())]
    unlike = kit.tiny_silo(0)
    unlike.graph.features[:] = np.where(np.arange(6)[:, None] % 2, [[1.0, 0.0, 0.0]], [[-1.0, 0.0, 0.0]])
    assert agreement(GraphTensors(unlike.graph), np.arange(3), 0).tolist() == pytest.approx([0, -1 / 3, -1 / 3])
    _, federation = kit.build("fedtad", [unlike], walks=0)
    assert federation.client(0).rate_classes(Empty()).reliability.tolist() == [0.0, 0.0]
    _, federation = kit.build("fedtad", silos)
    client = federation.client(0)
    alike = agreement(client.data, np.arange(3), 5)
    wanted = [max(alike[0] + alike[2], 0.0), max(alike[1], 0.0)]
    assert client.rate_classes(Empty()).reliability.tolist() == pytest.approx(wanted)
    assert federation.client(1).rate_classes(Empty()).reliability.tolist() == [0.0, 0.0]
    for fewest, counts in ((1, [2.0, 1.0]), (2, [2.0, 0.0])):
        _, federation = kit.build("fedtad", silos, reliability="counts", min_count=fewest)
        assert federation.client(0).rate_classes(Empty()).reliability.tolist() == counts


def test_the_slope_is_the_gradient_and_rounding_has_none():
    logits, answers, weight = drawn(5, 3).requires_grad_(), drawn(2, 5, 3, seed=1), drawn(2, 5, seed=2).abs()
    (weight * (logits - answers).abs().mean(2)).sum().backward()
    torch.testing.assert_close(slope_of(logits.detach(), answers, weight), logits.grad)
    assert not slope_of(answers[0] * (1 + 1e-7), answers[:1], weight[:1]).any()


def several(kit, count=2, **settings):
    """A server and as many other models' weights."""
    server, _ = kit.build("fedtad", [kit.tiny_silo(0)], **{**SHORT, **settings})
    models = [server.build_model(seed_names=("other", number)) for number in range(count)]
    return server, models, [weights_of(model) for model in models]


def generator_slopes(server, models, shares, noise, labels):
    """The generator's gradient with λ₁ = 2 and λ₂ = 3, where answers are fixed but in the cross-entropy."""
    features = server.made_by.of_classes(noise, labels)
    view = Synthetic(features.detach(), nearest(features, 1), labels).live(features)
    mean, value = server.student(view), 3.0 * 2 * likeness(noise, features)
    for share, model in zip(shares, models, strict=True):
        logits = model(view)
        for c in (0, 1):
            of = labels == c
            value = value - share[c] * 2.0 * logits.log_softmax(1)[of, c].mean()
            value = value - share[c] * (mean - logits.detach())[of].abs().mean()
    return torch.autograd.grad(value, server.learned)


def test_what_the_generator_is_trained_for(kit):
    """Every term as it is written, node by node; classes of three and one nodes, the second known by one model."""
    server, models, _ = several(kit, semantic=2.0, diversity=3.0, neighbours=1)
    labels, noise = torch.tensor([0, 0, 0, 1]), drawn(4, 4)
    shares = torch.tensor([[0.75, 0.0], [0.25, 1.0]])
    features = server.made_by.of_classes(noise, labels).detach()
    view = Synthetic(features, nearest(features, 1), labels).tensors().full
    with torch.no_grad():
        mean, wanted = server.student(view), 0.0
        for share, model in zip(shares, models, strict=True):
            logits = model(view)
            for c in (0, 1):
                of = labels == c
                entropy = -logits.log_softmax(1)[of, c].mean()
                wanted += share[c] * (2.0 * entropy - (mean - logits)[of].abs().mean())
        wanted += 3.0 * 2 * likeness(noise, features)
    wanted_slopes = generator_slopes(server, models, shares, noise, labels)
    caught, step = [], server.generator_optimizer.step
    server.generator_optimizer.step = lambda slopes: caught.extend(map(torch.clone, slopes)) or step(slopes)
    kept = [weights_of(server.student), *map(weights_of, models)]
    kept = [{name: value.clone() for name, value in each.items()} for each in kept]
    before = [part.detach().clone() for part in server.learned]
    weight = shares[:, labels] / torch.tensor([3, 3, 3, 1])
    ensemble = Ensemble([("gcn", {"hidden": 4, "dropout": 0.0}, model) for model in models])
    found = server.improve_generator(ensemble, noise, labels, weight)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    for slope, each in zip(caught, wanted_slopes, strict=True):
        torch.testing.assert_close(slope, each, atol=1e-5, rtol=1e-4)
    assert all(map(same, [weights_of(server.student), *map(weights_of, models)], kept))
    assert not any(torch.equal(part, old) for part, old in zip(server.learned, before, strict=True))


def test_of_its_own_answers_the_mean_learns_nothing(kit):
    server, _, _ = several(kit, server_weight_decay=0.0)
    start = {name: value.clone() for name, value in server.weights.items()}
    server.distil([start, start], torch.tensor([[0.5, 1.0], [0.5, 0.0]]), generator(1))
    assert same(server.weights, start)
    server.distil([start], torch.tensor([[1.0, 1.0]]), generator(2))
    assert same(server.weights, start)


def test_the_mean_learns_from_whom_a_class_is_known_by(kit):
    """Whose share is 0 has no say; step by step the mean comes closer to the answers of the other."""
    learned, distances = [], []
    for stranger, steps in ((1, 60), (2, 60), (2, 1)):
        server, _, weights = several(kit, 3, diversity=0.0, iterations=1, student_steps=steps, student_lr=0.01)
        server.distil([weights[0], weights[stranger]], torch.tensor([[1.0, 1.0], [0.0, 0.0]]), generator(1))
        learned.append(server.weights)
        distances.append(server.log["distance"])
    for name, value in learned[0].items():
        torch.testing.assert_close(value, learned[1][name], atol=1e-4, rtol=1e-3)
    assert distances[1] < 0.3 * distances[2]


def test_whom_the_mean_learns_from(kit):
    """Who answers in this round, has said how well it knows classes, and has something to train on."""
    silos = [kit.tiny_silo(client, train=() if client == 1 else (0, 1, 2)) for client in range(4)]
    server, federation = kit.build("fedtad", silos, **SHORT, min_clients=1, reliability="counts")
    server.set_up(federation)
    assert {client: known.tolist() for client, known in server.reliability.items()} == {
        0: [2, 1], 1: [0, 0], 2: [2, 1], 3: [2, 1],
    }  # fmt: skip
    del server.reliability[2]
    seen = []
    server.distil = lambda teachers, shares, draw: seen.append((teachers, shares))
    server.round(federation, 1)
    ((teachers, shares),) = seen
    assert all(map(same, teachers, (federation.client(client).weights for client in (0, 3))))
    assert shares.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert server.teachers == {}


def test_classes_that_nobody_knows_are_not_made(kit):
    server, _, weights = several(kit, 1)
    seen = []
    server.improve_generator = lambda ensemble, noise, labels, weight: seen.append((labels, weight)) or 0.0
    server.distil(weights, torch.tensor([[0.0, 1.0]]), generator(1))
    assert [(labels.tolist(), weight.tolist()) for labels, weight in seen] == [([1] * 8, [[1 / 8] * 8])] * 2


def test_running_statistics_stay_those_of_clients(kit):
    server, _, _ = several(kit, model="gin", model_options={"norm": "batch"})
    means = {name: value.clone() for name, value in server.weights.items() if "running" in name}
    start = dict(server.weights)
    server.distil([start], torch.ones(1, 2), generator(1))
    assert means
    assert all(torch.equal(server.weights[name], value) for name, value in means.items())
    assert not same(server.weights, start)


def test_lies(kit):
    with pytest.raises(MessageError, match="at least 0"):
        Reliability(reliability=torch.tensor([1.0, -0.1])).check()
    Reliability(reliability=torch.tensor([2.0, 1.0])).check_size(Empty(), 3.0, 9.0)
    with pytest.raises(MessageError, match="more than the 2 items"):
        Reliability(reliability=torch.tensor([2.0, 1.0])).check_size(Empty(), 2.0, 9.0)
    with pytest.raises(MessageError, match="2 classes must be rated; 3 were"):
        kit.build("fedtad", [kit.tiny_silo(0)])[0].check(0, Reliability(reliability=torch.ones(3)))


def test_what_leaves_a_silo():
    check_sent(
        "fedtad",
        """
        rate_classes reliability: statistic float32 [classes] per_class=min_count
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        """,
    )
