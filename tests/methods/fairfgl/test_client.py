"""What a client of FairFGL computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import MessageError
from graphsilo.evaluate.groups import node_groups
from graphsilo.methods import fairfgl
from graphsilo.methods.fairfgl.client import Alignment, alignment_rows, deflect
from graphsilo.methods.fairfgl.messages import TrainRequest
from graphsilo.methods.fairfgl.updates import SparseUpdate, expand
from graphsilo.models import GraphTensors
from graphsilo.random import generator
from graphsilo.training.local import weights_of
from kit.fairfgl import patch, rounds

# -- history -------------------------------------------------------------------------------------------------------


def test_history_is_the_mean_of_the_last_models_downloaded(kit):
    server, federation = kit.build("fairfgl", [patch(0), patch(1)], history=3)
    client = federation.client(0)
    seen = []
    for number in range(1, 6):
        seen.append(torch.cat([value.reshape(-1) for value in server.weights.values()]))
        rounds(server, federation, 1, number)
        expected = torch.stack(seen[-3:]).mean(0)
        torch.testing.assert_close(client._mean_of_history(), expected, atol=1e-7, rtol=1e-6)
    assert len(client._history) == 3


@pytest.mark.parametrize("alpha", ["entries", "scalar"])
def test_the_chain_rule_against_autograd(kit, alpha):
    """One SGD step of W_local and α agrees with autograd through Ŵ = σ(a) W_hist + (1 − σ(a)) W_local."""
    silo = patch(nodes=40, train=24, classes=3)
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 1, "alpha_start": 0.3}
    server, federation = kit.build("fairfgl", [silo], alpha=alpha, correction=False, top_k=1.0, **settings)
    client = federation.client(0)
    rounds(server, federation, 2)  # so that the history is not the download alone
    logit, history = client._logit.clone(), list(client._history)
    request = TrainRequest(weights={name: value.clone() for name, value in server.weights.items()})
    client.round = 3
    reply = client.train(request)

    local = {name: value.clone().requires_grad_() for name, value in request.weights.items()}
    logit.requires_grad_()
    past = {name: torch.stack([*(one[name] for one in history), request.weights[name]]).mean(0) for name in local}
    fused, place = {}, 0
    for name, value in local.items():
        part = logit if alpha == "scalar" else logit[place : place + value.numel()].view(value.shape)
        place += value.numel()
        share = torch.sigmoid(part)
        fused[name] = share * past[name] + (1 - share) * value
    model = server.build_model()
    view = GraphTensors(silo.graph).full
    teacher = F.log_softmax(torch.func.functional_call(model, past, (view,)), dim=1).detach()
    logits = torch.func.functional_call(model, fused, (view,))
    rest = np.setdiff1d(np.arange(silo.graph.num_nodes), silo.train)
    loss = F.cross_entropy(logits[silo.train], torch.from_numpy(silo.labels[silo.train]))
    loss = loss + F.kl_div(F.log_softmax(logits[rest], dim=1), teacher[rest], reduction="batchmean", log_target=True)

    plan = client._fixed_goal().alignment
    assert plan is not None
    # The hidden layer of the two-layer GCN, Â X W, by hand.
    hat = torch.from_numpy(GraphTensors(silo.graph).matrix("gcn").toarray())
    hidden = (hat @ torch.from_numpy(silo.graph.features) @ fused["layers.0.weight"] + fused["layers.0.bias"]).relu()
    terms = []
    for number in range(len(plan.sizes)):
        prototype = hidden[plan.homo[plan.homo_class == number]].mean(0).detach()
        drawn = hidden[plan.hete[plan.hete_class == number]]
        target = F.softmax(prototype, dim=0).expand(len(drawn), -1)
        terms.append(F.kl_div(F.log_softmax(drawn, dim=1), target, reduction="batchmean"))
    loss = loss + torch.stack(terms).sum()
    gradients = torch.autograd.grad(loss, [*local.values(), logit])
    expected = torch.cat(
        [
            (value - 0.1 * slope).detach().reshape(-1)
            for value, slope in zip(local.values(), gradients[:-1], strict=True)
        ]
    )
    torch.testing.assert_close(client._local, expected, atol=2e-6, rtol=1e-5)
    # What is uploaded is what W_local has moved by, not the fused model, which α keeps near the history.
    downloaded = torch.cat([value.reshape(-1) for value in request.weights.values()])
    sent = expand(SparseUpdate(reply.values, reply.positions, reply.bitmap), len(downloaded))
    torch.testing.assert_close(sent, expected - downloaded, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(client._logit, (logit - 0.1 * gradients[-1]).detach(), atol=2e-6, rtol=1e-5)


def test_what_predicts_is_the_fused_model(kit):
    server, federation = kit.build("fairfgl", [patch(0), patch(1)])
    rounds(server, federation, 3)
    client = federation.client(0)
    mixed = torch.sigmoid(client._logit) * client._mean_of_history()
    mixed += (1 - torch.sigmoid(client._logit)) * client._local
    flat = torch.cat([value.reshape(-1) for value in weights_of(client.model).values()])
    torch.testing.assert_close(flat, mixed, atol=1e-6, rtol=1e-5)
    model = server.build_model()
    torch.nn.utils.vector_to_parameters(flat, model.parameters())
    expected = model(client.data.full)
    torch.testing.assert_close(client.predict(client.data), expected, atol=1e-6, rtol=1e-5)


def test_alpha_starts_where_it_is_told_and_may_stay_there(kit):
    server, federation = kit.build("fairfgl", [patch(0), patch(1)], alpha_start=0.2, alpha_learned=False)
    rounds(server, federation, 2)
    assert federation.client(0).study()["alpha"] == pytest.approx(0.2, abs=1e-6)
    server, federation = kit.build("fairfgl", [patch(0), patch(1)], alpha_start=0.2)
    rounds(server, federation, 4)
    alpha = federation.client(0)._alpha
    assert alpha.std() > 1e-4
    assert 0 < alpha.min() <= alpha.max() < 1


@pytest.mark.parametrize("settings", [{"history": 0}, {"alpha_start": 0.0}], ids=str)
def test_without_mixing_the_fused_model_is_the_local_one(kit, settings):
    server, federation = kit.build("fairfgl", [patch(0), patch(1)], **settings)
    rounds(server, federation, 2)
    client = federation.client(1)
    assert client._fused is client._local
    assert len(client._logit) == 0
    assert client.study()["alpha"] == 0


# -- losses --------------------------------------------------------------------------------------------------------


def star():
    """Node 0 with five leaves 1-5, and 6-7 linked; labels 0 0 0 0 1 1 0 0."""
    pairs = np.array([[0, 0, 0, 0, 0, 6], [1, 2, 3, 4, 5, 7]])
    labels = np.array([0, 0, 0, 0, 1, 1, 0, 0])
    return Graph(np.eye(8, dtype=np.float32), np.concatenate([pairs, pairs[::-1]], axis=1), labels, 2)


def test_who_is_drawn_to_whom_by_hand():
    # All train. Shares of like neighbours: node 0 3/5; 1, 2, 3: 1; 4, 5: 0; 6, 7: 1. Ranked: 1 2 3 6 | 7 0 4 5.
    # Class 0 has 6 of 8 nodes, more than the mean of 4: majority. Its prototype is made by 1, 2, 3, 6 and draws 7, 0.
    graph = star()
    found = alignment_rows(graph, np.arange(8), graph.labels, graph.labels, 2)
    assert (found.homo.tolist(), found.hete.tolist()) == ([1, 2, 3, 6], [0, 7])
    assert found.sizes.tolist() == [[4.0]]
    assert found.share.tolist() == [[0.5], [0.5]]


def test_unlabelled_neighbours_are_left_out_unless_guessed():
    # Only 0, 1, 4, 6 train. Labels known: share of 0 is 1/2 (1 is like, 4 is not), of 1 it is 1, of 4 it is 0, and 6
    # has no labelled neighbour, which makes it heterophilous. Ranked 1 0 | 4 6.
    graph = star()
    train = np.array([0, 1, 4, 6])
    known = np.full(8, -1)
    known[train] = graph.labels[train]
    found = alignment_rows(graph, train, graph.labels[train], known, 2)
    assert (found.homo.tolist(), found.hete.tolist()) == ([0, 1], [6])
    # With 7 guessed to be like 6 and everything else unlike, 0 is at 1/5: ranked 1 6 | 0 4.
    guess = np.array([0, 0, 1, 1, 1, 1, 0, 0])
    found = alignment_rows(graph, train, graph.labels[train], guess, 2)
    assert (found.homo.tolist(), found.hete.tolist()) == ([1, 6], [0])


def test_a_client_ranks_by_the_labels_of_its_training_nodes(kit):
    # The case above at a client. By the labels of all nodes 1 and 6 would be homophilous and 0 drawn to them.
    graph = star()
    train = np.array([0, 1, 4, 6])
    silo = Silo(
        0, graph, train, (EvaluationSet("seen", graph, {"test": np.array([2, 3, 5, 7])}),), Schema("node", 8, 2)
    )
    _, federation = kit.build("fairfgl", [silo])
    found = federation.client(0)._fixed_goal().alignment
    assert (found.homo.tolist(), found.hete.tolist()) == ([0, 1], [6])


def test_the_distillation_may_end(kit):
    # 10 training nodes of 24 weigh 1/10 each, the other 14 λ/14. Until round 4, of λ = 2 these shares are left in
    # rounds 1 to 6: 1, 3/4, 1/2, 1/4, 0, 0.
    _, federation = kit.build("fairfgl", [patch()], distillation=2.0, distillation_until=4)
    client = federation.client(0)
    client._history.append(weights_of(client.model))
    for number, left in enumerate([1.0, 0.75, 0.5, 0.25, 0.0, 0.0], start=1):
        client.round = number
        share = client._goal(client._fused.clone()).share[:, 0]
        rest = np.setdiff1d(np.arange(24), client.silo.train)
        assert share[client.silo.train].tolist() == pytest.approx([0.1] * 10)
        assert share[rest].tolist() == pytest.approx([left * 2 / 14] * 14)


def test_groups_are_those_of_the_metrics():
    silo = patch(nodes=60, train=40, classes=3, seed=4)
    known = np.full(60, -1)
    known[silo.train] = silo.labels[silo.train]
    groups = node_groups(replace(silo.graph, labels=known))
    found = alignment_rows(silo.graph, silo.train, silo.labels[silo.train], known, 3)
    majority = np.isin(np.arange(60), silo.train) & ~groups.minority
    assert set(found.homo.tolist()) == set(np.flatnonzero(majority & ~groups.hete).tolist())
    assert set(found.hete.tolist()) == set(np.flatnonzero(majority & groups.hete).tolist())


def test_nothing_to_align():
    graph = star()
    none = np.full(8, -1)
    assert alignment_rows(graph, np.array([], dtype=np.int64), graph.labels[:0], none, 2) is None
    one_class = np.array([0, 1, 2])  # no class above the mean
    assert alignment_rows(graph, one_class, graph.labels[one_class], graph.labels, 2) is None
    assert alignment_rows(graph, np.arange(8), graph.labels, none, 2) is None  # nobody is homophilous


@pytest.mark.parametrize("to_prototype", [True, False])
def test_the_gradient_of_s_loss(to_prototype):
    silo = patch(nodes=60, train=40, classes=3, seed=4)
    plan = alignment_rows(silo.graph, silo.train, silo.labels[silo.train], silo.labels, 3)
    embedding = torch.randn(60, 6, generator=generator(0), dtype=torch.float64).requires_grad_()
    plan = Alignment(*(part.double() if part.is_floating_point() else part for part in plan))
    expected = torch.zeros((), dtype=torch.float64)
    for number in range(len(plan.sizes)):
        prototype = embedding[plan.homo[plan.homo_class == number]].mean(0).detach()
        own = F.log_softmax(embedding[plan.hete[plan.hete_class == number]], dim=1)
        target = F.log_softmax(prototype, dim=0).expand_as(own)
        first, second = (target, own) if to_prototype else (own, target)
        expected = expected + (first.exp() * (first - second)).sum(1).mean()
    rows = plan.gradient(embedding.detach(), to_prototype=to_prototype)
    (gradient,) = torch.autograd.grad(expected, embedding)
    torch.testing.assert_close(rows, gradient[plan.hete])


def test_batches_are_of_labelled_nodes(kit):
    _, federation = kit.build("fairfgl", [patch(train=10)], batch_size=4)
    client = federation.client(0)
    goal = client._fixed_goal()
    shares = list(client._batches(goal, generator(0)))
    assert [int((share[goal.labelled] > 0).sum()) for share in shares] == [4, 4, 2]
    assert [float(share[goal.labelled].sum()) for share in shares] == [pytest.approx(1.0)] * 3
    assert [float(share.sum()) for share in shares] == [pytest.approx(2.0)] * 3  # and the distillation, whole


# -- gradient modification -----------------------------------------------------------------------------------------


def test_deflection_by_hand():
    # g = (1, -2), v = (0, 2): g·v = -4, ‖v‖² = 4, so g + v = (1, 0). With margin 0.5 also + 0.5 (0, 1).
    direction = torch.tensor([0.0, 2.0])
    gradient = torch.tensor([1.0, -2.0])
    assert deflect(gradient, direction)
    assert gradient.tolist() == [1.0, 0.0]
    gradient = torch.tensor([1.0, -2.0])
    assert deflect(gradient, direction, 0.5)
    assert gradient.tolist() == [1.0, 0.5]
    gradient = torch.tensor([1.0, 0.5])
    assert not deflect(gradient, direction, 0.5)
    assert gradient.tolist() == [1.0, 0.5]


def test_no_gradient_opposes_after_the_correction():
    for seed in range(50):
        gradient, direction = torch.randn(2, 500, generator=generator(seed))
        direction[100:] = 0
        before = gradient.clone()
        moved = deflect(gradient, direction)
        assert float(gradient @ direction) >= -1e-3
        assert torch.equal(gradient[100:], before[100:])
        assert moved == (float(before @ direction) < 0)
        assert moved or torch.equal(gradient, before)


@pytest.mark.parametrize("reading", ["loss", "update"])
def test_the_direction_is_the_own_loss_at_the_others_model(kit, reading):
    silos = [patch(client) for client in range(3)]
    server, federation = kit.build("fairfgl", silos, deviated_gradient=reading, top_k=0.4, dropout=0.5)
    client = federation.client(0)
    before = {name: value.clone() for name, value in server.weights.items()}
    rounds(server, federation)
    other = server.deviated[0]
    assert other in (1, 2)
    total = sum(value.numel() for value in before.values())
    change = expand(SparseUpdate(**server.updates[other]), total)
    request = server._requests((0, 1, 2))[0]
    with torch.no_grad():
        direction = client._direction(request)
    if reading == "update":
        assert torch.equal(direction, -change)
        return
    model = server.build_model()
    start = torch.cat([value.reshape(-1) for value in before.values()])
    torch.nn.utils.vector_to_parameters(start + change, model.parameters())
    silo = silos[0]
    logits = model(GraphTensors(silo.graph).full)[silo.train]
    F.cross_entropy(logits, torch.from_numpy(silo.labels[silo.train])).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    torch.testing.assert_close(direction, expected * (change != 0), atol=1e-6, rtol=1e-5)


def test_no_correction_in_round_one_and_for_newcomers(kit):
    server, federation = kit.build("fairfgl", [patch(client) for client in range(4)], participation=0.5)
    assert all(request.deviated_values is None for request in server._requests((0, 1, 2, 3)).values())
    rounds(server, federation)
    there = server.select(federation, 1)
    requests = server._requests((0, 1, 2, 3))
    assert {client for client, request in requests.items() if request.deviated_values is not None} == set(there)
    assert server.deviated == {there[0]: there[1], there[1]: there[0]}


def test_a_lost_state_is_noticed(kit):
    server, federation = kit.build("fairfgl", [patch(client) for client in range(3)])
    rounds(server, federation)
    federation.client(0)._history.clear()
    failure = federation.ask(fairfgl.Client.train, server._requests((0,))).failures[0]
    assert failure.kind == MessageError.__name__
    assert "restore its state" in failure.reason
