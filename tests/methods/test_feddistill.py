"""FedDistill: the invariants of its specification, through the real machinery."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import MessageError
from graphsilo.methods.feddistill import TrainReply, TrainRequest
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from graphsilo.training.objective import Step
from graphsilo.training.prototypes import class_means

COMMON = {"leave_one_out": False, "weight_by": "count"}


def clients_of(federation):
    return [federation.client(client) for client in federation.clients]


def outputs(client):
    """Logits and labels of a client's training items."""
    with torch.no_grad():
        rows = client.model(client.data.full)[torch.from_numpy(client.silo.train)]
    return rows, torch.from_numpy(client.silo.labels[client.silo.train])


def same_models(one, other):
    pairs = [(weights_of(a.model), weights_of(b.model)) for a, b in zip(one, other, strict=True)]
    return all(torch.equal(mine[name], theirs[name]) for mine, theirs in pairs for name in mine)


def step_of(client, logits, labels):
    return Step(client.silo.train, labels, logits, torch.zeros(len(labels), 4), client.data.full, None)


def test_one_client_learns_from_nobody_if_its_own_part_is_left_out(kit):
    found = []
    for name, more in (("local", {}), ("feddistill", {"initial": "common"}), ("feddistill", {**COMMON})):
        server, federation = kit.build(name, [kit.tiny_silo(0)], **more)
        play(server, federation, 3)
        found.append(clients_of(federation))
    assert same_models(found[0], found[1])
    assert found[1][0].present.tolist() == [False, False]
    assert not same_models(found[0], found[2])


@pytest.mark.parametrize("exchange", ["probabilities", "logits"])
def test_the_table_of_equal_frozen_models_is_the_mean_over_all_items(kit, exchange):
    silos = [kit.tiny_silo(client, train=range(2 + client)) for client in range(3)]
    still = {"initial": "common", "lr": 1e-30, "weight_decay": 0.0, "exchange": exchange}
    server, federation = kit.build("feddistill", silos, **COMMON, **still)
    play(server, federation, 1)
    logits, labels = (torch.cat(parts) for parts in zip(*map(outputs, clients_of(federation)), strict=True))
    means, counts = class_means(logits if exchange == "logits" else F.softmax(logits, 1), labels, 2)
    torch.testing.assert_close(server.prototypes, means)
    assert server.counts.tolist() == counts.tolist() == [5, 4]


def test_own_parts_left_out_by_hand(kit):
    """Three clients' mean of class 0 is (0.6, 0.4); without (0.9, 0.1) that of two is (0.45, 0.55). Nobody else has
    class 1, so that it has no row."""
    _, federation = kit.build("feddistill", [kit.tiny_silo(0)])
    client = federation.client(0)
    table = {"prototypes": torch.tensor([[0.6, 0.4], [0.2, 0.8]]), "present": torch.tensor([True, True])}
    client.own = {"sums": torch.tensor([[0.9, 0.1], [0.2, 0.8]]), "counts": torch.tensor([1, 1])}
    client.receive(TrainRequest(**table, probabilities=True, counts=torch.tensor([3, 1])))
    torch.testing.assert_close(client.prototypes[0], torch.tensor([0.45, 0.55]))
    assert client.present.tolist() == [True, False]
    client.receive(TrainRequest(**table, probabilities=True))  # its last part is not in this table: nothing to take out
    assert torch.equal(client.prototypes, table["prototypes"])
    assert client.present.tolist() == [True, True]


@pytest.mark.parametrize("weight_by", ["uniform", "count"])
def test_what_clients_are_left_with_is_the_mean_of_the_others(kit, weight_by):
    """Σ_k G^(k) = Σ_k F_k over the clients that have a class; one that has it not learns from all of these."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1), kit.tiny_silo(2, train=(0, 2, 4, 1)), kit.tiny_silo(3, train=(1, 3))]
    server, federation = kit.build("feddistill", silos, weight_by=weight_by)
    play(server, federation, 1)
    sent = [client.own for client in clients_of(federation)]
    play(server, federation, 1)  # sends what came of the first round
    total = torch.stack([own["sums"] for own in sent]).sum(0)
    counts = torch.stack([own["counts"] for own in sent]).sum(0)
    for client, own in zip(clients_of(federation), sent, strict=True):
        rest = (total - own["sums"]) / (counts - own["counts"])[:, None]
        torch.testing.assert_close(client.prototypes, rest)
    if weight_by == "uniform":
        whole = torch.stack([client.prototypes[0] for client in clients_of(federation)[:3]]).sum(0)
        torch.testing.assert_close(whole, total[0])  # clients 0 to 2 have class 0
        torch.testing.assert_close(federation.client(3).prototypes[0], total[0] / 3)


def test_only_whose_part_is_in_the_table_is_told_to_take_it_out(kit):
    """With half of the clients per round: 2 of 4 are asked, and of these some were in the round before."""
    server, federation = kit.build("feddistill", [kit.tiny_silo(client) for client in range(4)], participation=0.5)
    sums, seen = type(federation).sum, []

    def watched(handler, request, *, to):
        seen.append((set(server.authors), {client: one.counts is not None for client, one in request.items()}))
        return sums(federation, handler, request, to=to)

    federation.sum = watched
    play(server, federation, 8)
    assert all(told == (client in authors) for authors, asked in seen for client, told in asked.items())
    assert {told for _, asked in seen[1:] for told in asked.values()} == {True, False}


def test_a_class_that_nobody_described_in_the_last_round_has_no_row(kit):
    silos = [kit.tiny_silo(0, train=(0, 2)), kit.tiny_silo(1, train=(1, 3))]
    server, federation = kit.build("feddistill", silos, participation=0.5)
    for number in range(1, 9):
        federation.at("round", number)
        (asked,) = server.select(federation, number)
        server.round(federation, number)
        assert server.present.tolist() == [asked == 0, asked == 1]
        assert server.prototypes[1 - asked].tolist() == [0.0, 0.0]


def test_clients_learn_from_the_last_round_or_from_nothing_by_hand(kit):
    """All features are 0: outputs are softmax(b, -b), and a step with rate 0.1 on items of class 0 adds to b
    0.1 (1 - p) and, where others sent g, 0.1 (g - p), with p = σ(2b).

    1. Clients 0 and 1, from b = 0: b = 0.05, both send σ(0.1) = 0.5249792.
    2. Client 0 alone, without its own part g = 0.5249792: b = 0.05 + 0.0475021; it sends σ(0.1950042).
    3. Client 2, which has nothing to train on: nobody described a class, there is no table.
    4. Client 0 has nothing to learn from, and no older table either: b = 0.0975021 + 0.1 (1 - 0.5485971).
    5. Client 1 was away since round 1 and learns from round 4, g = σ(0.2852848) = 0.5708413:
       b = 0.05 + 0.0475021 + 0.1 (0.5708413 - 0.5249792).
    """
    silos = [kit.tiny_silo(client, train=train) for client, train in enumerate([(0, 2), (0, 2), ()])]
    silos = [replace(s, graph=replace(s.graph, features=np.zeros_like(s.graph.features))) for s in silos]
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 1, "min_clients": 1}
    server, federation = kit.build("feddistill", silos, model="mlp", model_options={"layers": 1}, **settings)
    for client in clients_of(federation):
        for weight in client.weights.values():
            weight.detach().zero_()
    asked = [(0, 1), (0,), (2,), (0,), (1,)]
    server.select = lambda federation, number: asked[number - 1]
    moves = [(0, 0.05), (0, 0.0975021), (2, 0.0), (0, 0.1426424), (1, 0.1020883)]
    for number, (client, b) in enumerate(moves, start=1):
        kit.rounds(server, federation, start=number)
        bias = federation.client(client).weights["layers.0.bias"]
        assert bias.tolist() == pytest.approx([b, -b], abs=1e-6), number


def slope_of_mse(p, goal):
    """2 / C · J (p − G), with J = diag(p) − p pᵀ and two classes."""
    return p * (p - goal - (p * (p - goal)).sum(1, keepdim=True))


GRADIENTS = [
    ({}, lambda z, goal: F.softmax(z, 1) - goal),
    ({"temperature": 2.0}, lambda z, goal: 2 * (F.softmax(z / 2, 1) - F.softmax(goal.log() / 2, 1))),
    ({"distance": "mse"}, lambda z, goal: slope_of_mse(F.softmax(z, 1), goal)),
    ({"exchange": "logits"}, lambda z, goal: F.softmax(z, 1) - F.softmax(goal, 1)),
    ({"exchange": "logits", "temperature": 2.0}, lambda z, goal: 2 * (F.softmax(z / 2, 1) - F.softmax(goal / 2, 1))),
    ({"exchange": "logits", "distance": "mse"}, lambda z, goal: z - goal),  # 2 (z - G) / C with two classes
]


@pytest.mark.parametrize(("settings", "slope"), GRADIENTS, ids=[str(settings) for settings, _ in GRADIENTS])
def test_the_terms_gradient_by_hand(kit, settings, slope):
    """γ / b times what stands above; nothing for an item whose class has no row, whatever stands there."""
    _, federation = kit.build("feddistill", [kit.tiny_silo(0)], strength=3.0, **settings)
    client = federation.client(0)
    logits, labels = torch.tensor([[1.0, -0.5], [0.2, 0.7], [0.0, 3.0]]), torch.tensor([0, 1, 0])
    client.present = torch.tensor([True, False])
    for absent in (torch.zeros(2), torch.tensor([9.0, -4.0])):
        client.prototypes = torch.stack([torch.tensor([0.8, 0.2]), absent])
        leaf = logits.clone().requires_grad_()
        client.term(step_of(client, leaf, labels)).backward()
        expected = 3.0 / 3 * slope(logits, client.prototypes[labels])
        expected[1] = 0.0
        torch.testing.assert_close(leaf.grad, expected)


def test_the_loss_by_hand(kit):
    _, federation = kit.build("feddistill", [kit.tiny_silo(0)])
    client = federation.client(0)
    client.prototypes, client.present = torch.tensor([[0.8, 0.2], [1.0, 0.0]]), torch.tensor([True, True])
    at_goal = torch.tensor([[0.8, 0.2]]).log() + 5.0
    cases = [
        (at_goal, 0, 0.5004024),  # the entropy -0.8 log 0.8 - 0.2 log 0.2: no less is possible
        (torch.tensor([[3.0, 3.0]]), 0, 0.6931472),  # log 2
        (torch.tensor([[3.0, 3.0]]), 1, 0.6931472),  # a mean output of 0 is no infinity
    ]
    for logits, label, value in cases:
        assert float(client.term(step_of(client, logits, torch.tensor([label])))) == pytest.approx(value, abs=1e-6)


def test_small_classes_are_not_described(kit):
    server, federation = kit.build("feddistill", [kit.tiny_silo(0, train=(0, 1, 2))], min_count=2)
    play(server, federation, 1)
    assert server.present.tolist() == [True, False]


def test_models_without_hidden_layer_take_part(kit):
    """Only outputs are sent."""
    server, federation = kit.build(
        "feddistill", [kit.tiny_silo(client) for client in range(2)], model="gcn", model_options={"layers": 1}
    )
    play(server, federation, 2)
    assert server.prototypes.shape == (2, 2)


@pytest.mark.parametrize(("sums", "counts"), [([[1.0, 2.0], [0.0, 0.0]], [-1, 0]), ([[1.0, 2.0], [3.0, 0.0]], [2, 0])])
def test_sums_that_cannot_be_are_refused(sums, counts):
    with pytest.raises(MessageError, match="at least 0 rows, and without rows no sum"):
        TrainReply(sums=torch.tensor(sums), counts=torch.tensor(counts)).check()


@pytest.mark.parametrize(("leave_one_out", "more"), [(True, 16), (False, 0)])
def test_bytes(kit, leave_one_out, more):
    """Each way and client 4 C², up 8 C, down C, and 8 C to leave one out: 2 classes, 2 clients, 100 rounds."""
    silos = [kit.tiny_silo(client) for client in range(2)]
    server, _ = kit.build("feddistill", silos, leave_one_out=leave_one_out)
    assert server.expected_bytes() == (200 * (16 + 16), 200 * (16 + 2 + more))


def test_probabilities_that_do_not_add_up_are_refused():
    """Two items of class 0: their probabilities add up to 2."""
    request = TrainRequest(probabilities=True)
    sums = torch.tensor([[1.5, 0.5], [0.0, 0.0]])
    counts = torch.tensor([2, 0])
    TrainReply(sums=sums, counts=counts).check_answer(request)
    for wrong in (sums * 1e8, torch.tensor([[2.5, -0.5], [0.0, 0.0]]), sums / 2):
        with pytest.raises(MessageError, match="a row of their sums to how many items"):
            TrainReply(sums=wrong, counts=counts).check_answer(request)
    TrainReply(sums=sums * 1e3, counts=counts).check_answer(TrainRequest(probabilities=False))
