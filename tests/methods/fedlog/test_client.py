"""What a client of FedLoG computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.column_scales import own_scale
from graphsilo.data.silos.scaling import FeatureScale, scale_silo
from graphsilo.methods.fedlog.messages import RangeRequest
from graphsilo.testing.small import play
from kit.fedlog import SHORT, build, silo_of


def test_one_client_of_one_class_gets_its_own_head_nodes_back(kit):
    server, federation = build(kit, [silo_of(0, [1, 1, 1])])
    play(server, federation, 1)
    client = federation.client(0)
    assert client.rates().tolist() == [0.0, 1.0, 0.0]
    each = SHORT["prototypes"]
    assert torch.equal(server.synthetic[each : 2 * each], client.prototypes[0, each : 2 * each])
    # Rates of 0 for everybody weigh alike, hence here too.
    torch.testing.assert_close(server.synthetic, client.prototypes[0])


def test_learnable_nodes_are_drawn_without_a_look_at_the_graph(kit):
    silo = silo_of(0, [0, 1, 2], features=40)
    other = replace(silo, graph=silo.graph.with_features(1.0 - silo.graph.features))
    first, second = (build(kit, [one])[1].client(0).prototypes for one in (silo, other))
    assert torch.equal(first, second)
    assert float(first.abs().max()) <= (6 / (6 + 40)) ** 0.5  # Xavier-uniform


@pytest.mark.parametrize(
    ("knowledge", "branch", "weights"),
    [
        ("HH", 0, [0.75, 0.25, 1e-12]),
        ("HT", 1, [0.75, 0.25, 1e-12]),
        ("TH", 0, [1 / 0.751, 1 / 0.251, 1000.0]),
        ("TT", 1, [1 / 0.751, 1 / 0.251, 1000.0]),
    ],
)
def test_knowledge_of_head_or_tail(kit, knowledge, branch, weights):
    _, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], synthetic=knowledge)
    client = federation.client(0)
    reply = client.reply()
    assert reply.class_weights.tolist() == pytest.approx(weights, rel=1e-6)
    wanted = client.prototypes[branch] * reply.class_weights.repeat_interleave(2)[:, None]
    torch.testing.assert_close(reply.synthetic, wanted, rtol=1e-6, atol=0)


def test_untrained_generators_are_drawn_again_and_not_kept_in_checkpoints(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])], class_generators=False)
    client = federation.client(0)
    assert client.state()["generators"] is None
    play(server, federation, 1)
    state, held = client.state(), client.generators
    assert state["generators"] == {}
    client.load_state({**state, "generators": None})
    assert client.generators is None
    client.load_state(state)
    assert all(torch.equal(client.generators[name], value) for name, value in held.items())


def test_features_beyond_one_ask_for_an_open_end(kit):
    near, far = silo_of(0, [0, 1, 2]), silo_of(1, [0, 1, 2])
    far = replace(far, graph=far.graph.with_features(3.0 * far.graph.features))
    for silos, wanted in (([near], "tanh"), ([near, far], "identity")):
        server, federation = build(kit, silos)
        play(server, federation, 0)
        assert federation.client(0).output == wanted


def test_no_scale_asks_for_single_cells(kit):
    """What cells hold changes no answer where they are scaled, and a scale that the silo has is answered as it was."""
    silo = silo_of(0, [0, 1, 2])
    silo = replace(silo, graph=silo.graph.with_features(np.arange(5.0 * len(silo.graph.labels)).reshape(-1, 5)))
    largest, column, one = float(silo.graph.features[:, 2].max()), np.eye(5)[2], np.ones(5)
    for scale, wanted in (
        (FeatureScale(0 * one, column / (largest - 1)), 1),
        (FeatureScale(0 * one, column / (largest + 1)), 1),  # the cells say no
        (own_scale(silo, "standard"), 1),
        (FeatureScale(0 * one, one), 0),  # nothing but columns of 0 and 1, says who made it
        (FeatureScale(one, 0 * one), 0),  # nothing but columns that are constant
    ):
        client = build(kit, [scale_silo(silo, scale)])[1].client(0)
        assert client.check_range(RangeRequest()).outside == wanted


def test_difficulty_draws_nodes_to_their_mean(kit):
    _, federation = build(kit, [silo_of(0, [0, 1, 2])])
    client = federation.client(0)
    nodes = torch.arange(30.0).view(6, 5)

    def customised():
        return torch.from_numpy(client.customise(nodes).rows.data.graph.features)

    assert torch.equal(customised(), nodes)
    client.difficulty = torch.tensor([1.0, 0.0, 0.5])
    found = customised()
    mean = nodes.mean(0)
    torch.testing.assert_close(found[:2], mean.expand(2, -1))
    torch.testing.assert_close(found[2:4], nodes[2:4])
    torch.testing.assert_close(found[4:], 0.5 * nodes[4:] + 0.5 * mean)


def test_difficulty_follows_accuracy(kit):
    settings = {"difficulty_step": 0.25, "difficulty_decrease": 0.2, "difficulty_threshold": 0.4}
    _, federation = build(kit, [silo_of(0, [0, 1, 2])], **settings)
    client = federation.client(0)
    # The prototypes themselves, well apart: each class is recognised.
    with torch.no_grad():
        client.prototypes[:] = 4.0 * torch.eye(3, 5).repeat_interleave(2, 0)
    synthetic = client.customise(client.prototypes[0].clone())
    client.difficulty = torch.tensor([0.0, 0.5, 0.9])
    client.adapt(synthetic)
    assert client.difficulty.tolist() == pytest.approx([0.25, 0.75, 1.0])
    # With labels shifted by a class nothing is recognised.
    client.adapt(synthetic._replace(labels=synthetic.labels.roll(2)))
    client.adapt(synthetic._replace(labels=synthetic.labels.roll(2)))
    assert client.difficulty.tolist() == pytest.approx([0.0, 0.35, 0.6])


@pytest.mark.parametrize("each", [5, 10, 20])
def test_a_class_recognised_at_the_threshold_is_not_yet_recognised(kit, each, monkeypatch):
    _, federation = build(kit, [silo_of(0, [0, 1, 2])], prototypes=each)
    client = federation.client(0)
    recognised = torch.zeros(3, each, dtype=torch.bool)
    recognised[0, : 4 * each // 5] = True  # exactly 80 %
    recognised[1, : 4 * each // 5 + 1] = True
    monkeypatch.setattr(client.network, "recognise", lambda *_: recognised.flatten())
    client.difficulty = torch.full((3,), 0.5)
    client.adapt(client.customise(client.prototypes[0]))
    assert client.difficulty.tolist() == pytest.approx([0.499, 0.501, 0.499])


def test_the_papers_difficulty_never_falls(kit):
    _, federation = build(kit, [silo_of(0, [0, 1, 2])], difficulty_decrease=0, difficulty_threshold=1.0)
    client = federation.client(0)
    client.difficulty = torch.tensor([0.0, 0.5, 0.9])
    client.adapt(client.customise(client.prototypes[0].clone()))
    assert client.difficulty.tolist() == pytest.approx([0.0, 0.5, 0.9])


def test_a_client_without_training_nodes_counts_nothing_and_learns_from_the_others(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2]), silo_of(1, [0, 1, 2], train=[])])
    play(server, federation, 1)
    alone, empty = (federation.client(client) for client in (0, 1))
    assert empty.weight == 0.0
    assert all(torch.equal(server.weights[name], value) for name, value in alone.weights.items())
    before = empty.prototypes.clone()
    federation.at("round", 2)
    server.round(federation, 2)
    assert not torch.equal(empty.prototypes, before)


@pytest.mark.parametrize("adaptive", [True, False])
def test_without_the_adaptive_factor_nothing_becomes_harder(kit, adaptive):
    settings = {"adaptive_factor": adaptive, "difficulty_threshold": 0.0, "difficulty_step": 0.25}
    server, federation = build(kit, [silo_of(0, [0, 1, 2])], **settings)
    play(server, federation, 3)
    assert bool((federation.client(0).difficulty > 0).any()) is adaptive


def test_pretraining_goes_on_in_round_1_and_reads_no_test_label(kit):
    def trained(silo, **settings):
        server, federation = build(kit, [silo], **settings)
        play(server, federation, 1)
        return server.weights

    silo = silo_of(0, [0, 1, 2, 0, 1, 2])
    labels = silo.graph.labels.copy()
    labels[silo.seen.items["test"]] = (labels[silo.seen.items["test"]] + 1) % 3
    other = replace(silo.graph, labels=labels)
    hidden = replace(silo, graph=other, evaluations=(replace(silo.seen, graph=other),))
    first, second = (trained(one, compat="release", pretrain_epochs=5) for one in (silo, hidden))
    assert all(torch.equal(first[name], second[name]) for name in first)
    plain = trained(silo, compat="release", pretrain_epochs=0)
    assert not torch.equal(first["encoder.layers.0.own.weight"], plain["encoder.layers.0.own.weight"])


def test_study_tells_of_real_and_learned_features(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])])
    play(server, federation, 2)
    facts = federation.client(0).study()
    assert facts["real_features"].shape == (3, 5)
    assert facts["synthetic_features"].shape == (6, 5)
    assert facts["synthetic_labels"].tolist() == [0, 0, 1, 1, 2, 2]
    assert facts["nearest_real_node"] > 0
    assert facts["generator_loss_first"] > facts["generator_loss_last"] > 0
    prototypes, difficulty = federation.client(0).prototypes, federation.client(0).difficulty
    assert torch.equal(facts["synthetic_features"], prototypes[0])
    assert (facts["head_norm"], facts["tail_norm"]) == (float(prototypes[0].norm()), float(prototypes[1].norm()))
    assert facts["mean_difficulty"] == float(difficulty.mean())
    assert torch.equal(facts["real_features"], torch.from_numpy(federation.client(0).silo.graph.features[:3]))
    assert facts["real_labels"].tolist() == [0, 1, 2]
