"""DENSE: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.federation import registry
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.one_shot import ModelReply
from graphsilo.training.local import load_weights, weights_of
from kit.messages import check_sent
from kit.one_shot import SHORT, gone_on

CONFIG = registry.load("dense").config


def silos_of(kit, count=3):
    return [kit.tiny_silo(client) for client in range(count)]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def loss(answer, student, labels, **settings):
    server = SimpleNamespace(config=CONFIG(**settings))
    return registry.load("dense").server.generator_loss(server, answer, student, labels)


def test_what_a_graph_is_made_for_by_hand():
    """Ensemble (3/4, 1/4) twice, student (1/4, 3/4) and (3/5, 2/5): they differ at the first node alone.

    KL = 3/4 log 3 − 1/4 log 3 = 1/2 log 3, over two nodes; CE with labels 0 and 1 is (log 4/3 + log 4) / 2.
    """
    answer = torch.tensor([[0.75, 0.25], [0.75, 0.25]]).log()
    student = torch.tensor([[0.25, 0.75], [0.6, 0.4]]).log()
    labels = torch.tensor([0, 1])
    entropy, apart = (math.log(4 / 3) + math.log(4)) / 2, 0.5 * math.log(3) / 2
    assert float(loss(answer, student, labels)) == pytest.approx(entropy - apart, abs=1e-6)
    assert float(loss(answer, student, labels, disagreement=3.0)) == pytest.approx(entropy - 3 * apart, abs=1e-6)


def test_where_both_agree_the_distance_is_nothing_and_has_no_gradient():
    answer = torch.tensor([[2.0, 1.0]], requires_grad=True)
    student = torch.tensor([[5.0, 1.0]], requires_grad=True)
    value = loss(answer, student, torch.tensor([0]))
    assert torch.equal(value, loss(answer, student, torch.tensor([0]), disagreement=0.0))
    (slope,) = torch.autograd.grad(value, [student])
    assert slope.tolist() == [[0.0, 0.0]]


def test_the_distance_moves_ensemble_and_student_by_hand():
    """p = (3/4, 1/4), q = (1/4, 3/4), λ₂ = 2: by the ensemble's logits p − y − 2 p (log p/q − KL), by the student's
    −2 (q − p); log p/q is ± log 3, and KL ½ log 3."""
    answer = torch.tensor([[0.75, 0.25]]).log().requires_grad_()
    student = torch.tensor([[0.25, 0.75]]).log().requires_grad_()
    loss(answer, student, torch.tensor([0]), disagreement=2.0).backward()
    pull = 2 * 0.75 * 0.5 * math.log(3)
    assert answer.grad[0].tolist() == pytest.approx([-0.25 - pull, 0.25 + pull])
    assert student.grad[0].tolist() == pytest.approx([1.0, -1.0])


@pytest.mark.parametrize(("weight_by", "shares"), [("uniform", [1 / 3] * 3), ("train", [3 / 6, 2 / 6, 1 / 6])])
def test_shares_of_the_ensemble(kit, weight_by, shares):
    silos = [kit.tiny_silo(client, train=range(3 - client)) for client in range(3)]
    server, federation = kit.build("dense", silos, weight_by=weight_by, **SHORT)
    kit.rounds(server, federation)
    assert server.shares.tolist() == pytest.approx(shares)
    logits = torch.arange(6.0).view(3, 1, 2)
    wanted = sum(share * row for share, row in zip(shares, logits, strict=True))
    torch.testing.assert_close(server.answer(logits), wanted)


def test_with_one_client_the_student_becomes_that_client(kit):
    """On what was made it answers alike."""
    server, federation = kit.build(
        "dense", silos_of(kit, 1), **{**SHORT, "epochs": 40, "nodes": 20, "local_epochs": 50}
    )
    pools = []
    learn = server._learn

    def spied(draw):
        pools[:] = server.pool
        return learn(draw)

    server._learn = spied
    kit.rounds(server, federation)
    model = server.build_model()
    right = []
    load_weights(model, server.weights)
    for graph in pools:
        view = graph.tensors().full
        with torch.no_grad():
            right.append((model(view).argmax(1) == federation.client(0).model(view).argmax(1)).double().mean())
    assert len(pools) == 40
    assert float(torch.stack(right).mean()) > 0.95
    curve = server.works[0].curves["student_loss"]
    assert curve[-1][1] < 0.1 * curve[0][1]


def test_clients_keep_their_models_and_one_message_goes_each_way(kit):
    silos = silos_of(kit)
    server, federation = kit.build("dense", silos, **SHORT)
    sizes, learn = [], server._learn

    def spied(draw):
        sizes.append([len(graph.features) for graph in server.pool])
        return learn(draw)

    server._learn = spied
    start = {name: value.clone() for name, value in server.weights.items()}
    kit.rounds(server, federation)
    alone = kit.build("local", silos, local_epochs=5)
    kit.rounds(alone[0], alone[1])
    assert sizes == [[8], [8, 8], [8, 8, 8]]
    assert not same(server.weights, start)
    assert server.pool == []
    assert server.uploads == {}
    for client in federation.clients:
        assert same(weights_of(federation.client(client).common), server.weights)
    found = [(row[1], row[2], row[3], row[4]) for row in federation.ledger.rows() if row[7] == "model"]
    assert sorted(found) == sorted(
        (number, client, way, handler) for client in range(3)
        for number, way, handler in ((0, "up", "train_alone"), (1, "down", "adopt"))
    )  # fmt: skip


def test_the_student_does_not_change_while_a_graph_is_made(kit):
    server, federation = kit.build("dense", silos_of(kit), **SHORT)
    seen, make, learn = [], server._loss, server._learn

    def made(view, labels):
        seen.append({name: value.clone() for name, value in weights_of(server.student).items()})
        return make(view, labels)

    def learned(draw):
        assert len(seen) == 3
        assert all(same(seen[0], other) for other in [*seen, weights_of(server.student)])
        seen.clear()
        return learn(draw)

    server._loss, server._learn = made, learned
    kit.rounds(server, federation)


def test_the_students_gradient_is_that_of_its_distance(kit):
    """One step of plain descent: rate times the gradient of T² KL by autograd."""
    server, federation = kit.build(
        "dense", silos_of(kit), **{**SHORT, "epochs": 1}, student_optimizer="sgd", student_lr=0.1, temperature=2.0
    )
    start = {name: value.clone() for name, value in server.weights.items()}
    kept, learn = [], server._learn

    def spied(draw):
        kept.append((server.pool[0], server.answer(server.ensemble(server.view(0)))))
        return learn(draw)

    server._learn = spied
    kit.rounds(server, federation)
    ((graph, target),) = kept
    model = server.build_model()
    load_weights(model, start)
    p = torch.softmax(target / 2, 1)
    distance = 4 * (p * (p.log() - torch.log_softmax(model(graph.tensors().full) / 2, 1))).sum(1).mean()
    slopes = torch.autograd.grad(distance, list(model.parameters()))
    for (name, value), slope in zip(model.named_parameters(), slopes, strict=True):
        torch.testing.assert_close(server.weights[name], value.detach() - 0.1 * slope, atol=1e-6, rtol=1e-4)


def test_the_students_passes_are_descent_with_momentum(kit):
    """A step for each graph of the pool, of one and then of two: 0.9 of the last step goes on, as in torch's SGD."""
    settings = {**SHORT, "epochs": 2, "student_optimizer": "sgd", "student_lr": 0.1, "temperature": 2.0}
    server, federation = kit.build("dense", silos_of(kit), **settings)
    start, kept, learn = {name: value.clone() for name, value in server.weights.items()}, [], server._learn

    def spied(draw):
        graphs = [(graph, server.answer(server.ensemble(graph.tensors().full))) for graph in server.pool]
        kept.append((graphs, learn(draw)))
        return kept[-1][1]

    server._learn = spied
    kit.rounds(server, federation)
    model = server.build_model()
    load_weights(model, start)
    steps = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for graphs, reported in kept:
        distances = []
        for graph, target in graphs:
            p = torch.softmax(target / 2, 1)
            found = 4 * (p * (p.log() - torch.log_softmax(model(graph.tensors().full) / 2, 1))).sum(1).mean()
            steps.zero_grad()
            found.backward()
            steps.step()
            distances.append(float(found.detach()))
        assert reported == pytest.approx(sum(distances) / len(distances), rel=1e-4)
    assert [len(graphs) for graphs, _ in kept] == [1, 2]
    for name, value in model.named_parameters():
        torch.testing.assert_close(server.weights[name], value.detach(), atol=1e-5, rtol=1e-4)


def test_noise_is_normal_and_each_graph_has_a_new_generator(kit):
    """What a graph begins as: the generator of its epoch, on N(0, I) of its epoch's draw, after uniform classes."""
    server, federation = kit.build("dense", silos_of(kit), **SHORT)
    seen, make = [], server._loss
    server._loss = lambda view, labels: seen.append((view.data.features.detach(), labels)) or make(view, labels)
    kit.rounds(server, federation)
    for epoch in range(3):
        features, labels = seen[3 * epoch]
        draw = server.generator("graph", epoch)
        assert labels.tolist() == torch.randint(2, (8,), generator=draw).tolist()
        with torch.no_grad():
            wanted = server._new_generator(epoch)(torch.randn(8, 4, generator=draw))
        torch.testing.assert_close(features, wanted)


def test_classes_that_nobody_has_are_not_drawn(kit):
    silos = [kit.tiny_silo(client, train=(1, 3)) for client in range(2)]
    server, federation = kit.build("dense", silos, **SHORT)
    seen, make = [], server._loss
    server._loss = lambda view, labels: seen.append(set(labels.tolist())) or make(view, labels)
    kit.rounds(server, federation)
    assert set.union(*seen) == {1}


def test_with_nothing_to_learn_from_the_student_stays(kit):
    server, federation = kit.build("dense", [kit.tiny_silo(0, train=())], **SHORT)
    start = dict(server.weights)
    kit.rounds(server, federation)
    assert same(server.weights, start)


def test_who_has_nothing_to_train_on_is_not_in_the_ensemble(kit):
    """Its model is as it was drawn: the student of the other two is the same without it."""
    silos = [*silos_of(kit, 2), kit.tiny_silo(2, train=())]
    (server, federation), (other, fewer) = (kit.build("dense", part, **SHORT) for part in (silos, silos[:2]))
    kit.rounds(server, federation)
    kit.rounds(other, fewer)
    assert server.shares.tolist() == [0.5, 0.5]
    assert same(server.weights, other.weights)


def test_one_generator_may_go_on(kit):
    found = []
    for reset in (True, False):
        server, federation = kit.build("dense", silos_of(kit), reset_generator=reset, **SHORT)
        kit.rounds(server, federation)
        found.append(server.weights)
    assert not same(*found)


def test_stopped_within_the_servers_work_it_goes_on(kit):
    """The numbers are those of one go."""

    def build():
        return kit.build("dense", silos_of(kit), **SHORT)

    whole, federation = build()
    kit.rounds(whole, federation)
    assert same(gone_on(kit, build).weights, whole.weights)


def test_a_model_of_another_architecture_is_refused(kit):
    server, _ = kit.build("dense", silos_of(kit), **SHORT)
    weights = dict(list(server.weights.items())[1:])
    with pytest.raises(MessageError, match="is missing"):
        server.check(0, ModelReply(weights=weights, label_counts=torch.zeros(2, dtype=torch.int64)))
    with pytest.raises(MessageError, match="2 classes must be counted; 3 were"):
        server.check(0, ModelReply(weights=server.weights, label_counts=torch.zeros(3, dtype=torch.int64)))
    with pytest.raises(MessageError, match="below 0"):
        ModelReply(weights={}, label_counts=torch.tensor([-1])).check()


def test_a_backbone_that_propagates_before_training_has_a_gradient_for_features(kit):
    server, _ = kit.build("dense", silos_of(kit), model="ssgc", **SHORT)
    assert list(server.weights) == ["layers.0.weight", "layers.0.bias"]


def test_bytes(kit):
    """P = 3·4 + 4 + 4·2 + 2 = 26 floats each way, and the counts of two classes up."""
    server, _ = kit.build("dense", silos_of(kit), **SHORT)
    assert server.expected_bytes() == (3 * (104 + 16), 3 * 104)
    server.context.models[1] = ModelSpec("gcn", {"hidden": 5})  # 3·5 + 5 + 5·2 + 2 = 32
    assert server.expected_bytes() == (2 * 104 + 128 + 48, 3 * 104)


def test_what_leaves_a_silo():
    check_sent(
        "dense",
        """
        train_alone weights: model float32
        train_alone label_counts: counts int64 [classes] per_class=True
        adopt clients: counts
        """,
    )
