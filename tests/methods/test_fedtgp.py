"""FedTGP: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import FederationError
from graphsilo.federation.interface import Replies
from graphsilo.federation.prototypes import TrainReply, gather_rows
from graphsilo.methods.fedtgp import margin_loss, margin_of
from graphsilo.random import generator
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from graphsilo.training.optimizer import optimizer
from graphsilo.training.prototypes import PrototypeGenerator

ROWS = torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [4.0, 2.0]])
LABELS = torch.tensor([0, 0, 1, 1])
ONES = torch.ones(4)
MIDDLES = torch.tensor([[0.0, 1.0], [4.0, 1.0]])


def models(federation):
    return [weights_of(federation.client(client).model) for client in federation.clients]


def test_without_epochs_of_the_server_its_prototypes_stay(kit):
    server, federation = kit.build("fedtgp", [kit.tiny_silo(client) for client in range(2)], server_epochs=0)
    assert server.request().prototypes is None  # nobody has described a class: what is drawn is not sent
    play(server, federation, 1)
    first = server.request().prototypes
    play(server, federation, 1)
    assert torch.equal(first, server.net())
    assert torch.equal(first, server.request().prototypes)


def test_margin_by_hand():
    """Means (0, 1) and (4, 1) are 4 apart; of three, the largest gap to the nearest other counts; τ is the bound."""
    assert margin_of(ROWS, LABELS, ONES, 100.0) == pytest.approx(4.0)
    assert margin_of(ROWS, LABELS, ONES, 1.0) == 1.0
    assert margin_of(3 * ROWS, LABELS, ONES, 100.0) == pytest.approx(12.0)
    assert margin_of(ROWS[:2], LABELS[:2], ONES[:2], 7.0) == 7.0  # no other class
    # Weights 3 : 1 move the first mean to (0, 0.5): √(16 + 0.25). Numbers of classes may have holes.
    assert margin_of(ROWS, 5 * LABELS, torch.tensor([3.0, 1, 1, 1]), 100.0) == pytest.approx(math.sqrt(16.25))
    # (10, 1) is 6 from (4, 1), which is 4 from (0, 1).
    three = torch.cat([ROWS, torch.tensor([[10.0, 1.0]])])
    assert margin_of(three, torch.tensor([0, 0, 1, 1, 2]), torch.ones(5), 100.0) == pytest.approx(6.0)


@pytest.mark.parametrize(("margin", "expected"), [(4.0, 1.2247820), (1.0, 0.1130246), (0.0, 0.0430789)])
def test_loss_by_hand(margin, expected):
    """All four are 1 from their own prototype and √17 from the other: log(1 + e^(1 + δ − √17))."""
    assert expected == pytest.approx(math.log(1 + math.exp(1 + margin - math.sqrt(17))), abs=1e-6)
    loss, _ = margin_loss(ROWS, LABELS, ONES, MIDDLES, margin)
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_what_counts_more_weighs_more():
    """A row that counts twice is there twice."""
    rows, labels = torch.randn(3, 4, generator=generator(0)), torch.tensor([0, 2, 1])
    prototypes = torch.randn(3, 4, generator=generator(1))
    twice = [0, 0, 1, 2]
    one = margin_loss(rows, labels, torch.tensor([2.0, 1.0, 1.0]), prototypes, 0.5)
    other = margin_loss(rows[twice], labels[twice], torch.ones(4), prototypes, 0.5)
    torch.testing.assert_close(one, other)


def test_gradient_is_autograds():
    draw = generator(0)
    rows, labels = torch.randn(9, 5, generator=draw).double(), torch.randint(4, (9,), generator=draw)
    weights, prototypes = torch.rand(9, generator=draw).double(), torch.randn(6, 5, generator=draw).double()
    prototypes.requires_grad_()
    far = (rows[:, None] - prototypes[None]).square().sum(-1).sqrt()
    scores = -(far + 0.7 * torch.nn.functional.one_hot(labels, 6))
    each = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
    wanted = (each * weights).sum() / weights.sum()
    wanted.backward()
    loss, slope = margin_loss(rows, labels, weights, prototypes.detach(), 0.7)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(slope, prototypes.grad)


@pytest.mark.parametrize("batch", [0, 2])
def test_the_servers_steps_are_those_of_the_formula(kit, batch):
    """Two epochs of descent on what generates the prototypes, by autograd: as the formula says it, in float64.

    Means are (0, 1/2) and (4, 0), as the first row counts three times: δ = √16.25.
    """
    server, _ = kit.build(
        "fedtgp", [kit.tiny_silo(0)], server_optimizer="sgd", server_epochs=2, server_batch=batch, server_lr=0.5, lr=0.1
    )
    rows = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0]])
    labels, weights, margin = torch.tensor([0, 0, 1]), torch.tensor([3.0, 1.0, 2.0]), math.sqrt(16.25)
    leaves = [each.double() for each in server.net.parameters]
    server.learn(1, rows, labels, weights)
    draw = server.generator("round", 1, "batches")
    for _ in range(2):
        order, value = torch.randperm(3, generator=draw), 0.0
        for some in order.split(batch or 3):
            vectors, first, first_bias, second, second_bias = leaves = [each.requires_grad_() for each in leaves]
            prototypes = (vectors @ first + first_bias).relu() @ second + second_bias
            far = (rows[some, None].double() - prototypes[None]).square().sum(2).sqrt()
            own, other = far[range(len(some)), labels[some]], far[range(len(some)), 1 - labels[some]]
            each = torch.log1p(torch.exp(own + margin - other))
            loss = (weights[some].double() * each).sum() / weights[some].sum()
            slopes = torch.autograd.grad(loss, leaves)
            leaves = [(leaf - 0.5 * slope).detach() for leaf, slope in zip(leaves, slopes, strict=True)]
            value += float(loss.detach()) * len(some) / 3
    for found, wanted in zip(server.net.parameters, leaves, strict=True):
        torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-5)
    assert server.log["margin"] == pytest.approx(margin)
    assert server.log["prototype_loss"] == pytest.approx(value, rel=1e-5)


def test_a_prototype_on_a_row_is_no_infinity():
    _, slope = margin_loss(ROWS, LABELS, ONES, ROWS[[0, 2]], 1.0)
    assert bool(torch.isfinite(slope).all())


def test_small_distances_are_exact_with_many_classes():
    """Each prototype a thousandth from its row: the gradient is what double precision says, at most 1 over 40 rows."""
    draw = generator(0)
    rows, labels, ones = 5 * torch.randn(40, 64, generator=draw).relu(), torch.arange(40), torch.ones(40)
    near = rows + 1e-3 * F.normalize(torch.randn(40, 64, generator=draw))
    _, slope = margin_loss(rows, labels, ones, near, 100.0)
    _, exact = margin_loss(rows.double(), labels, ones.double(), near.double(), 100.0)
    torch.testing.assert_close(slope.double(), exact, atol=1e-4, rtol=1e-2)
    assert float(slope.norm()) < 1.0


def test_learned_prototypes_are_a_margin_apart():
    """Each row ends nearer to its own prototype than to any other, by δ − 0.1 at least."""
    draw = generator(0)
    centres = 2 * torch.eye(3, 8)
    labels = torch.arange(3).repeat(5)
    rows, weights = centres[labels] + 0.01 * torch.randn(15, 8, generator=draw), torch.ones(15)
    margin = margin_of(rows, labels, weights, 100.0)
    net = PrototypeGenerator(3, 8, draw, initial="torch")
    steps, losses = optimizer("adam", net.parameters, lr=0.02), []
    for _ in range(800):
        prototypes, hidden = net.forward()
        loss, slope = margin_loss(rows, labels, weights, prototypes, margin)
        steps.step(net.gradients(hidden, slope))
        losses.append(float(loss))
    assert losses[-1] == pytest.approx(math.log(3), abs=0.03)  # at D = 0 and δ, the best there is
    assert losses[0] > 3
    far = torch.cdist(rows, net())
    own = far.gather(1, labels[:, None])
    others = far.scatter(1, labels[:, None], torch.inf).amin(1, keepdim=True)
    assert float((others - own).min()) > margin - 0.1


def test_classes_that_a_client_has_not_are_not_learned_from():
    first = TrainReply(sums=torch.tensor([[4.0, 2.0], [0.0, 0.0], [3.0, 9.0]]), counts=torch.tensor([2, 0, 3]))
    second = TrainReply(sums=torch.tensor([[0.0, 0.0], [5.0, 6.0], [0.0, 0.0]]), counts=torch.tensor([0, 1, 0]))
    rows, labels, weights = gather_rows(Replies({0: first, 1: second}))
    assert rows.tolist() == [[2.0, 1.0], [1.0, 3.0], [5.0, 6.0]]
    assert (labels.tolist(), weights.tolist()) == ([0, 2, 1], [2, 3, 1])


def test_a_class_that_nobody_has_is_never_predicted_by_prototype(kit):
    silos = [kit.tiny_silo(client, train=(0, 2)) for client in range(2)]
    server, federation = kit.build("fedtgp", silos, predict="prototype")
    play(server, federation, 2)
    client = federation.client(0)
    assert client.prototypes.any(1).tolist() == [True, True]
    assert client.present.tolist() == [True, False]
    assert set(client.predict(client.data).argmax(1).tolist()) == {0}


def test_who_has_nothing_to_describe_changes_nothing(kit):
    server, federation = kit.build("fedtgp", [kit.tiny_silo(0, train=())])
    play(server, federation, 2)
    assert server.request().prototypes is None


def test_prototypes_of_another_width_are_refused(kit):
    server, federation = kit.build("fedtgp", [kit.tiny_silo(client) for client in range(2)])
    client = federation.client(1)
    client.upload_prototypes = lambda: TrainReply(sums=torch.ones(2, 5), counts=torch.ones(2, dtype=torch.int64))
    with pytest.raises(FederationError, match=r"client 1 must send prototypes of shape \(2, 4\); \(2, 5\) came"):
        play(server, federation, 1)


def test_prototypes_of_two_classes_part(kit):
    """Over rounds they become farther apart than means of embeddings are."""
    far = {}
    for name in ("fedtgp", "fedproto"):
        server, federation = kit.build(name, [kit.tiny_silo(client) for client in range(3)])
        play(server, federation, 20)
        far[name] = float((server.prototypes[0] - server.prototypes[1]).norm())
    assert far["fedtgp"] > far["fedproto"]


def test_bytes(kit):
    """FedProto's: each way and client 4 C p and, up, 8 C, down C: 2 classes, 4 wide, 2 clients, 100 rounds."""
    server, _ = kit.build("fedtgp", [kit.tiny_silo(client) for client in range(2)])
    assert server.expected_bytes() == (200 * (32 + 16), 200 * (32 + 2))
