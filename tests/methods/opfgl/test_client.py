"""What a client of O-pFGL computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.data.silos.silo import Links, Schema
from graphsilo.evaluate.scores import Score
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.codec import encode
from graphsilo.methods.opfgl import stages as opfgl_stages
from graphsilo.methods.opfgl.messages import StatisticsRequest, SurrogateRequest
from graphsilo.models.view import GraphTensors
from graphsilo.testing import conformance
from graphsilo.training.local import weights_of
from kit.opfgl import METHOD, SHORT, blocks, federation_of, graph_of, own_weights, same, silo_of, train

# -- upload --------------------------------------------------------------------------------------------------------

# Three chained triangles: 0-1-2, 3-4-5, and node 6 hanging on 2, node 7 alone.
HAND = graph_of([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 6)], [0, 0, 0, 1, 1, 1, 0, 1])


def client_of(silo, **settings):
    return METHOD.client(ClientContext(0, silo, METHOD.config(**{**SHORT, **settings}), ModelSpec("gcn", {}), 0))


def test_expansion_and_each_criterion():
    # Training: 0, 1 (class 0), 3 (class 1). H = (2, 0). Two steps reach 2 and 6 with class 0, 4 and 5 with class 1.
    silo = silo_of(0, HAND, [0, 1, 3])
    base = {"expand_classes": 1, "expand_confidence": 1.0, "expand_degree": 2}
    assert client_of(silo, **base).homophily.tolist() == [2.0, 0.0]

    def joined(**settings):
        return client_of(silo, **{**base, **settings}).expanded_labels().tolist()

    assert joined() == [0, 0, 0, 1, -1, -1, -1, -1]  # 6 has degree 1, 4 and 5 the less homophilic class
    assert joined(expand_degree=0) == [0, 0, 0, 1, -1, -1, 0, -1]
    assert joined(expand_classes=0) == [0, 0, 0, 1, 1, 1, -1, -1]
    assert joined(expand_classes=2, expand_degree=1) == [0, 0, 0, 1, 1, 1, 0, -1]
    assert joined(expand=False) == [0, 0, -1, 1, -1, -1, -1, -1]
    # A node between both classes is not sure; without that criterion it joins the likelier one.
    bridge = graph_of([(0, 1), (0, 2), (1, 2), (2, 3)], [0, 0, 0, 1])
    mixed = silo_of(0, bridge, [0, 1, 3])
    assert client_of(mixed, **base).expanded_labels().tolist() == [0, 0, -1, 1]
    assert client_of(mixed, **{**base, "expand_confidence": 0.0}).expanded_labels().tolist() == [0, 0, 0, 1]
    # A node that no label reaches never joins, whatever is switched off.
    free = {"expand_classes": 0, "expand_confidence": 0.0, "expand_degree": 0}
    assert client_of(silo, **free).expanded_labels().tolist() == [0, 0, 0, 1, 1, 1, 0, -1]


def test_statistics_are_those_of_the_training_nodes():
    silo = silo_of(0, HAND, [0, 1, 3])
    client = client_of(silo, expand=False, hops=1)
    reply = client.statistics(StatisticsRequest())
    propagated = GraphTensors(HAND).matrix("gcn") @ HAND.features
    rows = np.concatenate([HAND.features, propagated], axis=1)[:2].astype(np.float64)
    assert reply.counts.tolist() == [2, 0]  # class 1 has one node
    assert reply.labelled.tolist() == [2, 1]
    assert reply.totals.dtype == torch.float64
    assert reply.totals[0].numpy() == pytest.approx(rows.sum(axis=0), rel=1e-6)
    assert reply.within[0].numpy() == pytest.approx(rows.var(axis=0, ddof=1), rel=1e-5, abs=1e-9)
    assert not reply.totals[1].any()


# -- node weights --------------------------------------------------------------------------------------------------


def test_nodes_of_the_most_homophilic_class_are_held_least():
    client = client_of(silo_of(0, HAND, [0, 1, 3]))
    weights = client.node_weights()
    # Node 2 is surely of class 0 with H = 2, node 4 of class 1 with H = 0, node 7 of nothing: (w0 + w1) / 2.
    strict = 1.0 / (1.0 + np.log(3.0))
    assert weights[[2, 4, 7]] == pytest.approx([strict, 1.0, (strict + 1.0) / 2])


def test_node_weights_can_be_scaled_bounded_fixed_and_raw():
    silo = silo_of(0, HAND, [0, 1, 3])
    plain = client_of(silo).node_weights()
    assert client_of(silo, beta=0.2).node_weights() == pytest.approx(0.2 * plain)
    bounded = client_of(silo, gamma_min=0.5, gamma_max=0.6).node_weights()
    assert ((bounded >= 0.5) & (bounded <= 0.6)).all()
    assert client_of(silo, gamma="fixed", beta=0.3).node_weights().tolist() == [0.3] * 8
    for settings in ({"lp_alpha": 0.5}, {"lp_steps": 3}, {"lp_self_loops": True}):
        assert not np.allclose(client_of(silo, **settings).soft_labels, client_of(silo).soft_labels)
    raw = client_of(silo, normalise_soft_labels=False).node_weights()
    assert raw[4] == pytest.approx(client_of(silo).soft_labels[4, 1])
    assert raw[7] == pytest.approx(plain[7])


def test_paths_are_let_go_when_predictions_begin():
    server, federation = federation_of(blocks())
    train(server, federation)
    for client in federation.clients:
        federation.client(client).predict(federation.client(client).data)
        assert not federation.client(client)._held


def test_fine_tuning_variants_differ_and_none_is_stage_one():
    found = {}
    for name, settings in {
        "distil": {}, "plain": {"fine_tune": "plain"}, "focal": {"fine_tune": "focal"}, "none": {"fine_tune": "none"},
        "fixed": {"gamma": "fixed", "beta": 0.5}, "summed": {"kl_mean": False}, "beta": {"beta": 0.1},
        "zero": {"beta": 0.0},
    }.items():  # fmt: skip
        server, federation = federation_of(blocks(1), links="edgeless", **settings)
        train(server, federation)
        found[name] = own_weights(federation)[0]
    first = next(iter(found["none"]))
    names = [name for name in found if name != "zero"]
    assert len({found[name][first].numpy().tobytes() for name in names}) == len(names)
    # Without distillation the whole graph's loss is the training nodes' alone, to rounding.
    for key, value in found["plain"].items():
        torch.testing.assert_close(found["zero"][key], value, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("mean", [True, False])
def test_stage_two_starts_from_stage_one_and_is_held_to_it(mean):
    """Ten Adam steps of autograd from stage 1's weights, with stage 1's own prediction as the teacher q of
    CE(labelled) + (1/n) Σ γ_i KL(q_i ‖ p_i)."""
    (silo,) = blocks(1)
    base = {"fine_tune": "none", "beta": 5.0, "kl_mean": mean, "expand_classes": 0}
    server, federation = federation_of([silo], **base)
    train(server, federation)
    client = federation.client(0)
    first, view = client.model, client.data.full
    with torch.no_grad():
        teacher = F.log_softmax(first(view), dim=1)
    assert teacher.exp().max() > 0.4  # far from uniform: the direction it pulls in matters
    weights = torch.from_numpy(client.node_weights()).float()
    rows, labels = torch.from_numpy(silo.train), torch.from_numpy(silo.labels[silo.train])
    adam = torch.optim.Adam(first.parameters(), lr=0.02)
    for _ in range(10):
        logits = first(view)
        gap = (teacher.exp() * (teacher - F.log_softmax(logits, dim=1))).sum(dim=1)
        loss = F.cross_entropy(logits[rows], labels) + (weights * gap).sum() / (len(gap) if mean else 1)
        adam.zero_grad()
        loss.backward()
        adam.step()
    tuned = {"fine_tune": "distil", "stage2_lr": 0.02, "stage2_epochs": 10, "stage2_check": 10}
    server, federation = federation_of([silo], **{**base, **tuned})
    train(server, federation)
    found = weights_of(federation.client(0).model)
    for name, value in weights_of(first).items():
        torch.testing.assert_close(found[name], value.detach(), atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_every_setting_of_the_surrogate_is_heard():
    silos = blocks()
    base = {"links": "learned", "nodes_per_class": 2, "expand_classes": 0, "expand_confidence": 0.5, "expand_degree": 1}

    def downloaded(**settings):
        server, federation = federation_of(silos, **{**base, **settings})
        federation.at("setup", 0)
        server.set_up(federation)
        return encode(SurrogateRequest(**server.download)).data.tobytes()

    variants = [
        {}, {"hops": 1}, {"expand": False}, {"ddof": "pooled"}, {"links": "edgeless"}, {"links": "direct"},
        {"link_values": "indicator"},
        {"links": "cosine"}, {"link_threshold": 0.5}, {"nodes_per_class": 3}, {"nodes_percent": 40.0},
        {"moment": "variance"},
        {"smoothness": "printed"}, {"feature_weight": 1.0}, {"smooth_weight": 0.0}, {"surrogate_steps": 60},
        {"cycle": 25}, {"link_steps": 0}, {"lr_features": 1e-2}, {"lr_links": 1e-2}, {"link_hidden": 16},
        {"link_norm": False}, {"min_count": 9}, {"lp_steps": 1},
    ]  # fmt: skip
    found = {}
    for settings in variants:
        found.setdefault(downloaded(**settings), []).append(settings)
    assert [group for group in found.values() if len(group) > 1] == []
    assert downloaded(link_threshold=1.0) == downloaded(links="edgeless")


def test_clients_may_have_different_models():
    specs = [ModelSpec(name, dict(settings)) for name, settings in models.pool("opfgl")]
    assert len(specs) == 10
    specs = [ModelSpec(spec.name, {**spec.settings, "hidden": 4}) for spec in specs]
    server, federation = federation_of(blocks(10), specs=specs, links="edgeless")
    before = own_weights(federation)
    train(server, federation)
    after = own_weights(federation)
    for client in federation.clients:
        assert any(not torch.equal(before[client][name], after[client][name]) for name in before[client])
    alone, one = federation_of(blocks(10), specs=specs, links="edgeless")
    train(alone, one)
    assert same(after, own_weights(one))


def test_dropout_is_off_unless_asked_for():
    def weights(dropout, rate):
        server, federation = federation_of(
            blocks(1), specs=[ModelSpec("gcn", {"hidden": 4, "dropout": rate})], dropout=dropout, links="edgeless"
        )
        train(server, federation)
        return own_weights(federation)

    assert same(weights(False, 0.5), weights(False, 0.0))
    assert not same(weights(True, 0.5), weights(False, 0.5))


def test_validation_labels_choose_epochs_and_are_in_no_message():
    silos = blocks()
    changed = []
    for silo in silos:
        labels = silo.graph.labels.copy()
        hidden = np.setdiff1d(np.arange(len(labels)), silo.train)
        labels[hidden] = (labels[hidden] + 1) % 3
        graph = replace(silo.graph, labels=labels)
        changed.append(replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),)))
    sent = []
    for group in (silos, changed):
        server, federation = federation_of(group)
        spy = conformance.Spy(federation)
        train(server, spy)
        sent.append([encode(message).data.tobytes() for message in spy.messages])
        assert spy.messages[-1].clients == 3
    assert sent[0] == sent[1]


def test_without_validation_nodes_training_nodes_stand_in():
    silo = blocks(1)[0]
    bare = replace(silo, evaluations=(replace(silo.seen, items={"val": silo.train[:0], "test": silo.train[:0]}),))
    standing = replace(silo, evaluations=(replace(silo.seen, items={"val": silo.train, "test": silo.train[:0]}),))
    found = []
    for one in (bare, standing):
        server, federation = federation_of([one])
        train(server, federation)
        found.append(own_weights(federation))
    assert same(*found)


def test_study_counts_the_joined_nodes():
    server, federation = federation_of([silo_of(0, HAND, [0, 1, 3])], expand_degree=2)
    train(server, federation)
    study = federation.client(0).study()
    assert (study["expanded"], study["expanded_correct"]) == (1, 1)
    assert study["stage1_epochs"] in range(10, 70, 10)
    assert study["stage2_epochs"] in range(10, 50, 10)
    assert study["gamma"].shape == (8,)
    assert study["gamma_mean"] == pytest.approx(float(study["gamma"].mean()))
    # Nodes 0 and 1, and 2, which joined; the one node of class 1 is too few for a variance.
    assert server.log["statistics_nodes"] == 3
    assert server.log["classes_without_statistics"] == 1
    assert server.log["surrogate_nodes"] == 1


def test_state_goes_out_and_comes_back():
    server, federation = federation_of(blocks(2))
    train(server, federation)
    other, again = federation_of(blocks(2))
    other.load_state(server.state())
    again.load_client_states(federation.client_states())
    assert same(own_weights(federation), own_weights(again))
    again.at("round", 1)
    other.round(again, 1)  # from the surrogate alone the same models come out
    assert same(own_weights(federation), own_weights(again))


# -- links ---------------------------------------------------------------------------------------------------------


def link_run(**settings):
    options = {f"method.{name}": value for name, value in {**SHORT, "link_epochs": 20, **settings}.items()}
    return run(
        load_config(
            None,
            overrides={
                "task": "link", "data.name": "citation-sbm", "data.generator": {"nodes": 200, "classes": 3},
                "partition.rule": "louvain", "partition.clients": 2, "method.name": "opfgl", "model.hidden": 8,
                **options,
            },
        )
    )  # fmt: skip


def test_link_prediction_follows_the_classifier():
    pretrained, scratch = link_run(), link_run(link_pretrain=False)
    assert 0.5 < pretrained.accuracy() <= 1
    assert pretrained.accuracy() != scratch.accuracy()


def test_of_the_links_epochs_the_one_with_the_best_validation_is_kept(monkeypatch):
    """Twelve epochs looked at every five, and at the last; the second look is the best."""
    graph = blocks(1)[0].graph
    ends = graph.edges[:, graph.edges[0] < graph.edges[1]]
    links = Links(ends[:, :9], ends[:, 9:12], ends[:, :2] + np.array([[0], [1]]), ends[:, 12:14], ends[:, 14:16])
    silo = replace(silo_of(0, graph, []), links=links, schema=Schema("link", 3, 3))
    looks = []

    def scripted(truth, scores):
        looks.append((truth.tolist(), opfgl_stages.copy_of(client.weights)))
        return Score([0.5, 0.9, 0.7][len(looks) - 1], len(truth))

    monkeypatch.setattr("graphsilo.evaluate.scores.roc_auc", scripted)
    client = client_of(silo, link_pretrain=False, link_epochs=12, link_check=5)
    client._personalise(None)
    assert [truth for truth, _ in looks] == [[1, 1, 1, 0, 0]] * 3
    assert client._facts["link_epochs"] == 10
    weights = [each for _, each in looks]
    assert all(torch.equal(client.weights[name], value) for name, value in weights[1].items())
    assert not any(torch.equal(weights[1]["layers.0.weight"], each["layers.0.weight"]) for each in weights[::2])
