"""FedGM's server: the joint graph, its refinement, and the choice of a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.methods.fedgm import server as server_module
from graphsilo.methods.fedgm.messages import GradientRequest
from graphsilo.training.matching import Distance
from kit.fedgm import built, silos_of


def test_the_joint_graph_has_every_clients_block_and_nothing_between(kit):
    """Other features at one client change nothing of another's part."""
    silos = silos_of(kit)
    server, federation = built(kit, silos)
    kit.rounds(server, federation)
    assert server.labels.tolist() == [0, 0, 1, 0, 0, 0, 1, 1]  # ⌊0.5 · 6⌋ of 3 and 3; 5 of 5 and 5
    assert {(int(a) < 3, int(b) < 3) for a, b in server.ends.t()} == {(True, True), (False, False)}
    assert server.ends.shape[1] == len(server.links) == 3 + 10
    assert bool((server.ends[0] < server.ends[1]).all())
    graph = silos[1].graph
    other = replace(silos[1], graph=replace(graph, features=graph.features + 1))
    changed, federation = built(kit, [silos[0], other])
    kit.rounds(changed, federation)
    assert torch.equal(changed.features[:3], server.features[:3])
    assert torch.equal(changed.links[:3], server.links[:3])
    assert not torch.equal(changed.links[3:], server.links[3:])


def test_the_server_moves_features_towards_the_weighted_mean_and_nothing_else(kit, monkeypatch):
    """ḡ_c = Σ_k n'_kc g_kc / Σ_k n'_kc, here with 2 and 3 nodes of class 0, and 1 and 2 of class 1."""
    seen = []

    class Seen(Distance):
        def __call__(self, network, features, mixing, target):
            seen.append((network, target.second))
            return super().__call__(network, features, mixing, target)

    monkeypatch.setattr(server_module, "Distance", Seen)
    server, federation = built(kit)
    kit.rounds(server, federation)
    before = server.features.clone(), server.labels.clone(), server.links.clone()
    kit.rounds(server, federation, start=2)
    ((network, found),) = seen
    request = GradientRequest(network=network._asdict())
    replies = [federation.client(client).gradients(request) for client in (0, 1)]
    assert [reply.sizes.tolist() for reply in replies] == [[2, 1], [3, 2]]
    means = [reply.gradients["second"] / reply.sizes[:, None, None] for reply in replies]
    torch.testing.assert_close(found[0], (2 * means[0][0] + 3 * means[1][0]) / 5)
    torch.testing.assert_close(found[1], (1 * means[0][1] + 2 * means[1][1]) / 3)
    moved = (server.features - before[0]).abs()
    assert float(moved.max()) == pytest.approx(server.config.server_lr, rel=1e-3)  # Adam's first step
    assert torch.equal(server.labels, before[1])
    assert torch.equal(server.links, before[2])


def test_a_round_without_gradients_of_any_class_moves_nothing(kit):
    server, federation = built(kit)
    kit.rounds(server, federation)
    before = server.features.clone()
    server.labels = torch.full_like(server.labels, 0)  # the only class here, and in this round nobody has it
    for client in (0, 1):
        federation.client(client).sizes = torch.tensor([0, 0])
    kit.rounds(server, federation, start=2)
    assert torch.equal(server.features, before)


def test_validation_nodes_of_all_choose_the_model_and_none_take_the_last(kit):
    silos = silos_of(kit)
    server, federation = built(kit, silos)
    kit.rounds(server, federation)

    def biased(number):
        """Weights of a model that says this class of every node; silo 0 has 4 of 7 validation nodes of class 0."""
        last = max(name for name in server.weights if name.endswith("bias"))
        return {name: torch.zeros_like(each) for name, each in server.weights.items()} | {
            last: torch.eye(2)[number]
        }  # fmt: skip

    labels = np.concatenate([silo.graph.labels[silo.labelled_validation()] for silo in silos])
    usual = int(np.bincount(labels, minlength=2).argmax())
    for order in ((0, 1), (1, 0)):
        server._choose(federation, [biased(number) for number in order], 1)
        assert server.log["chosen_epoch"] == 4.0 * (1 + order.index(usual))
    nobody = [
        replace(each, evaluations=tuple(
            replace(one, items={**one.items, "val": np.zeros(0, np.int64)}) for one in each.evaluations
        )) for each in silos
    ]  # fmt: skip
    server, federation = built(kit, nobody)
    kit.rounds(server, federation)
    assert server.log["chosen_epoch"] == 8.0


def test_models_are_trained_when_they_are_due_and_graphs_sent_once(kit):
    server, federation = built(kit, rounds=5, train_every=3)
    chosen = []
    for number in range(6):
        federation.at("round" if number else "setup", number)
        server.round(federation, number) if number else server.set_up(federation)
        chosen.append("chosen_epoch" in server.log)
        server.log.clear()
    assert chosen == [False, True, False, True, False, True]
    sent = {
        (row[1], row[4]) for row in federation.ledger.rows() if row[3] == "up" and row[7] in ("synthetic", "gradient")
    }
    assert sent == {(0, "condense"), (2, "gradients"), (3, "gradients"), (4, "gradients"), (5, "gradients")}


def test_silos_without_training_nodes_or_with_one_class(kit):
    nobody, one = kit.tiny_silo(0, train=()), kit.tiny_silo(1, nodes=8, train=(0, 2, 4, 6))
    server, federation = built(kit, [nobody, one])
    kit.rounds(server, federation, 2)
    assert server.labels.tolist() == [0, 0]
    assert all(bool(torch.isfinite(each).all()) for each in server.weights.values())
    server, federation = built(kit, [nobody, replace(nobody, client=1)])
    first = server.weights
    kit.rounds(server, federation, 2)
    assert server.weights is first
