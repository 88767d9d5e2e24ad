"""Co-Boosting: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from graphsilo.federation import one_shot, registry
from graphsilo.methods.co_boosting import slope_of
from graphsilo.random import generator
from graphsilo.training.local import weights_of
from graphsilo.training.synthesis import synthesise
from kit.one_shot import SHORT, gone_on

METHOD = registry.load("co_boosting")


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def loss(answer, student, labels, **settings):
    return METHOD.server.generator_loss(SimpleNamespace(config=METHOD.config(**settings)), answer, student, labels)


def test_what_a_graph_is_made_for_by_hand():
    """p = 1/4 with label 1: 3/4 log 4 with h = 1, 9/16 log 4 with h = 2; less β T² KL((3/4, 1/4) ‖ (1/2, 1/2))."""
    answer, student = torch.tensor([[0.75, 0.25]]).log(), torch.tensor([[0.5, 0.5]]).log()
    labels, apart = torch.tensor([1]), 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    for power, factor in ((0.0, 1.0), (1.0, 0.75), (2.0, 0.5625)):
        found = loss(answer, student, labels, hardness=power, adversarial=0.0)
        assert float(found) == pytest.approx(factor * math.log(4))
    found = loss(answer, student, labels, adversarial=2.0, adversarial_temperature=1.0)
    assert float(found) == pytest.approx(0.75 * math.log(4) - 2 * apart)


def test_the_distance_moves_ensemble_and_student_by_hand():
    """p = (3/4, 1/4), q = (1/4, 3/4), β = 2 at a temperature of 1: by the ensemble's logits p − y − 2 p (log p/q − KL),
    by the student's −2 (q − p); log p/q is ± log 3, and KL ½ log 3."""
    answer = torch.tensor([[0.75, 0.25]]).log().requires_grad_()
    student = torch.tensor([[0.25, 0.75]]).log().requires_grad_()
    settings = {"hardness": 0.0, "adversarial": 2.0, "adversarial_temperature": 1.0}
    loss(answer, student, torch.tensor([0]), **settings).backward()
    pull = 2 * 0.75 * 0.5 * math.log(3)
    assert answer.grad[0].tolist() == pytest.approx([-0.25 - pull, 0.25 + pull])
    assert student.grad[0].tolist() == pytest.approx([1.0, -1.0])


def test_shares_are_divided_by_their_sum():
    """(1/2 · (4, 0) + 1/4 · (1, 3)) / (3/4) = (3, 1)."""
    server, logits = SimpleNamespace(shares=torch.tensor([0.5, 0.25])), torch.tensor([[[4.0, 0.0]], [[1.0, 3.0]]])
    assert METHOD.server.answer(server, logits)[0].tolist() == pytest.approx([3.0, 1.0])


def test_the_factor_of_hard_nodes_is_a_constant():
    answer, labels = drawn(4, 3).requires_grad_(), torch.tensor([0, 1, 2, 0])
    (found,) = torch.autograd.grad(loss(answer, answer.detach(), labels, adversarial=0.0), answer)
    chance = torch.softmax(answer.detach(), 1)
    hard = 1 - chance[range(4), labels]
    torch.testing.assert_close(found, hard[:, None] * (chance - F.one_hot(labels, 3)) / 4)


def test_the_slope_of_the_shares_is_autograds():
    logits, shares = drawn(3, 5, 4), torch.tensor([0.2, 0.9, 0.4], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 0])
    value = F.cross_entropy(torch.tensordot(shares / shares.sum(), logits, dims=1), labels)
    torch.testing.assert_close(slope_of(logits, shares.detach(), labels), torch.autograd.grad(value, shares)[0])
    alike = logits[:1].expand(3, 5, 4)
    assert float(slope_of(alike, shares.detach(), labels).abs().max()) < 1e-12


def boosted(logits, labels, epochs=1, shares=None, **settings):
    """The shares after so many epochs on one graph."""
    server = SimpleNamespace(
        config=METHOD.config(**settings), pool=[SimpleNamespace(labels=labels)], known=[logits], log={},
        shares=torch.full((len(logits),), 1 / len(logits)) if shares is None else torch.tensor(shares),
    )  # fmt: skip
    seen = []
    for epoch in range(1, epochs + 1):
        METHOD.server.before_distilling(server, epoch)
        seen.append(server.shares.clone())
    return seen


def test_shares_by_hand():
    """A perfect model and one that says the same of everything: μ = 0.05, falling by half in each epoch."""
    labels = torch.tensor([0, 1])
    logits = torch.stack([8.0 * torch.eye(2), torch.tensor([[3.0, 0.0], [3.0, 0.0]])])
    found = boosted(logits, labels, 2, step_size=0.05, step_decay=0.5)
    assert found[0].tolist() == pytest.approx([0.525, 0.475])
    assert found[1].tolist() == pytest.approx([0.5375, 0.4625])
    assert boosted(logits, labels)[0].tolist() == pytest.approx([0.5 + 0.99 * 0.05, 0.5 - 0.99 * 0.05])


def test_each_graph_of_a_pool_moves_the_shares():
    """The first model is right on the first graph and the second one on the second: up by μ, and down again."""
    labels, right = torch.tensor([0, 1]), 8.0 * torch.eye(2)
    wrong = torch.tensor([[3.0, 0.0], [3.0, 0.0]])
    server = SimpleNamespace(
        config=METHOD.config(step_size=0.05, step_decay=0.5), log={}, shares=torch.tensor([0.5, 0.5]),
        pool=[SimpleNamespace(labels=labels)] * 2,
        known=[torch.stack([right, wrong]), torch.stack([wrong, right])],
    )  # fmt: skip
    METHOD.server.before_distilling(server, 1)
    assert server.shares.tolist() == pytest.approx([0.5, 0.5])
    server.known[1] = server.known[0]
    METHOD.server.before_distilling(server, 1)
    assert server.shares.tolist() == pytest.approx([0.55, 0.45])


def test_shares_stay_between_0_and_1():
    labels = torch.tensor([0, 1])
    logits = torch.stack([8.0 * torch.eye(2), -8.0 * torch.eye(2)])
    for shares in boosted(logits, labels, 30, step_size=0.2):
        assert 0 <= float(shares.min()) <= float(shares.max()) <= 1
    assert shares.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_equal_models_keep_their_shares(count):
    """Whose slopes are 0: of three, and of ten, the rounding of float32 would move all of them to 1, or to 0."""
    logits = 5.0 * drawn(1, 100, 7).float().expand(count, 100, 7)
    labels = torch.randint(7, (100,), generator=generator(1))
    assert boosted(logits, labels, 100)[-1].tolist() == torch.full((count,), 1 / count).tolist()


def test_equal_clients_keep_their_shares(kit):
    """Three who have the same nodes and, without dropout, learn the same from them: through the real models."""
    silos = [replace(kit.tiny_silo(0), client=client) for client in range(3)]
    server, federation = kit.build("co_boosting", silos, dropout=0.0, **{**SHORT, "epochs": 5})
    kit.rounds(server, federation)
    own = [weights_of(federation.client(client).model) for client in range(3)]
    assert all(torch.equal(own[0][name], value) for one in own for name, value in one.items())
    assert server.shares.tolist() == torch.full((3,), 1 / 3).tolist()


def test_when_no_share_is_left_all_begin_again():
    """The only one there is is next to nothing and has no slope, the other's model is worse."""
    logits = torch.stack([8.0 * torch.eye(2), -8.0 * torch.eye(2)])
    labels = torch.tensor([0, 1])
    assert boosted(logits, labels, shares=[1e-9, 0.0])[0].tolist() == [0.5, 0.5]
    assert boosted(logits, labels, shares=[1e-7, 0.0])[0].tolist() == pytest.approx([1e-7, 0.0])


def test_shares_do_not_vanish_together():
    """With a step of 1 each falls to 0 or rises to 1, and the slopes of a pair, weighted, are opposite."""
    logits, labels = drawn(4, 6, 3).float(), torch.tensor([0, 1, 2, 0, 1, 2])
    for shares in boosted(logits, labels, 12, step_size=1.0, step_decay=1.0):
        assert float(shares.sum()) >= 1
    weights = torch.tensor([0.1, 0.7, 0.3, 1.0], dtype=torch.float64)
    assert float(slope_of(logits, weights, labels) @ weights) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_features_are_disturbed_by_a_share_of_their_deviation(kit, size):
    """|δ| = ε σ entry by entry where there is a slope, links as they were; without ε the graph itself."""
    server, federation = kit.build("co_boosting", [kit.tiny_silo(0), kit.tiny_silo(1)], disturbance=size, **SHORT)
    seen, learn = [], server._learn

    def spied(draw):
        graph, kept = server.pool[-1], server.pool[-1].features.clone()
        view, target = server.lesson(len(server.pool) - 1, generator(1))
        moved = view.features().dense() - kept
        assert bool((moved.abs() <= size * kept.std(0, correction=0) + 1e-6).all())
        assert bool(moved.any()) is (size > 0)
        assert torch.equal(graph.features, kept)
        assert view.data.graph.edges.tolist() == graph.ends.tolist()
        assert not target.requires_grad
        torch.testing.assert_close(target, server.answer(server.ensemble(view)))
        seen.append(size)
        return learn(draw)

    server._learn = spied
    kit.rounds(server, federation)
    assert len(seen) == 3


def test_the_direction_by_autograd(kit):
    """Away from the graph along the sign of Σ u ⊙ softmax(A / 4), u uniform from −1 to 1."""
    server, federation = kit.build("co_boosting", [kit.tiny_silo(0), kit.tiny_silo(1)], disturbance=0.5, **SHORT)
    seen, learn = [], server._learn

    def spied(draw):
        graph, ensemble = server.pool[-1], server.ensemble
        server.ensemble = lambda view: 40.0 * ensemble(view)  # so that another temperature would turn some of the signs
        leaf = graph.features.clone().requires_grad_()
        u = 2 * torch.rand(8, 2, generator=generator(5)) - 1
        mean = torch.tensordot(server.shares / server.shares.sum(), server.ensemble(graph.live(leaf)), 1)
        (u * torch.softmax(mean / 4, 1)).sum().backward()
        wanted = graph.features + 0.5 * graph.features.std(0, correction=0) * leaf.grad.sign()
        with torch.no_grad():
            seen.append((server.disturb(len(server.pool) - 1, generator(5)), wanted))
        server.ensemble = ensemble
        return learn(draw)

    server._learn = spied
    kit.rounds(server, federation)
    assert len(seen) == 3
    for found, wanted in seen:
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("name", "bounded"), [("co_boosting", True), ("dense", False)])
def test_gradients_are_shortened_to_10(kit, monkeypatch, name, bounded):
    """The student's first step of descent is 10 η long where its gradient is longer, and DENSE's is as long as that is;
    of generators the same is said."""
    said = []
    monkeypatch.setattr(
        one_shot, "synthesise", lambda *parts, **more: said.append(more["max_norm"]) or synthesise(*parts, **more)
    )
    silos = [kit.tiny_silo(0), kit.tiny_silo(1)]
    settings = {**SHORT, "epochs": 1, "student_optimizer": "sgd", "student_lr": 0.01, "row_length": 100.0}
    server, federation = kit.build(name, silos, **settings)
    for weight in server.student.parameters():
        weight.data.mul_(10.0)
    start = [weight.detach().clone() for weight in server.student.parameters()]
    kit.rounds(server, federation)
    moved = [now.detach() - then for now, then in zip(server.student.parameters(), start, strict=True)]
    length = float(torch.cat([part.flatten() for part in moved]).norm())
    assert length == pytest.approx(0.1, rel=1e-3) if bounded else length > 0.2
    assert said == [10.0 if bounded else None]


def test_without_its_changes_the_shares_stay_and_nodes_count_alike(kit):
    server, federation = kit.build(
        "co_boosting", [kit.tiny_silo(0), kit.tiny_silo(1)], step_size=0.0, disturbance=0.0, hardness=0.0, **SHORT
    )
    kit.rounds(server, federation)
    assert server.shares.tolist() == [0.5, 0.5]


def test_shares_are_learned_from_the_second_graph_on(kit):
    server, federation = kit.build("co_boosting", [kit.tiny_silo(0), kit.tiny_silo(1)], step_size=0.01, **SHORT)
    seen, learn = [], server._learn
    server._learn = lambda draw: (seen.append(server.shares.tolist()), learn(draw))[1]
    kit.rounds(server, federation)
    assert seen[0] == [0.5, 0.5]
    assert seen[1] != [0.5, 0.5]


def test_stopped_within_the_servers_work_it_goes_on(kit):
    """Shares come back with the rest."""

    def build():
        return kit.build("co_boosting", [kit.tiny_silo(client) for client in range(2)], **SHORT)

    whole, federation = build()
    kit.rounds(whole, federation)
    fresh = gone_on(kit, build)
    assert fresh.shares.tolist() == whole.shares.tolist()
    assert all(torch.equal(fresh.weights[name], value) for name, value in whole.weights.items())
