"""What a client of FedPG computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import ConfigError, MessageError
from graphsilo.methods.fedpg.client import depth_of
from graphsilo.methods.fedpg.prototypes import centre
from graphsilo.models import build as build_model
from graphsilo.testing.conformance import hide_labels
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from kit.fedpg import SHORT, federation_of, silo_of, weights_in


def graphs_of(client: int, count: int = 30) -> Silo:
    """Paths and rings of three to six nodes: two classes of graphs."""
    draw = np.random.default_rng(client)
    sizes, labels = draw.integers(3, 7, count), draw.integers(0, 2, count)
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    columns = []
    for start, size, ring in zip(pointer[:-1], sizes, labels, strict=True):
        nodes = start + np.arange(size)
        columns.append(np.stack([nodes[:-1], nodes[1:]]))
        if ring:
            columns.append(np.array([[nodes[-1]], [nodes[0]]]))
    edges = np.concatenate(columns, axis=1)
    n = int(pointer[-1])
    union = Graph(np.ones((n, 2), np.float32), np.concatenate([edges, edges[::-1]], axis=1), np.full(n, -1), 2)
    whole = GraphCollection(union, pointer, labels.astype(np.int64), 2)
    items = {"train": np.arange(0, count, 2), "val": np.arange(1, count, 4), "test": np.arange(3, count, 4)}
    return Silo(client, whole, items["train"], (EvaluationSet("seen", whole, items),), Schema("graph", 2, 2))


def same_weights(left, right) -> bool:
    return all(
        torch.equal(value, other[name])
        for mine, other in zip(weights_in(left), weights_in(right), strict=True)
        for name, value in mine.items()
    )


@pytest.mark.parametrize("hops", [-1, 4, 10**9])
def test_hops_that_no_run_asks_for_take_no_memory(kit, hops):
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **SHORT)
    server.set_up(federation)
    with pytest.raises(MessageError, match=rf"prototypes of {hops} hops were asked for; .* ask for 0 to 3\."):
        federation.client(0).train(replace(server._requests([0])[0], hops=hops))


# -- equalities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"batch_size": 3}, {"reset_optimizer": True}], ids=str)
def test_without_a_pull_it_is_local_training_bit_for_bit(kit, settings):
    silos = [silo_of(client) for client in range(3)]
    server, federation = kit.build("fedpg", silos, dropout=0.5, **{**SHORT, "mu": 0.0}, **settings)
    play(server, federation, 3)
    plain = {name: value for name, value in settings.items() if name != "reset_optimizer"}
    for client in range(3):
        alone = kit.build("local", silos, dropout=0.5, **plain)[1].client(client)
        for number in (1, 2, 3):
            alone.round = number
            if "reset_optimizer" in settings:
                alone.trainer.optimizer.reset()
            alone.run_epochs()
        mine = weights_of(federation.client(client).model)
        assert all(torch.equal(value, mine[name]) for name, value in weights_of(alone.model).items())


def test_prototypes_at_hop_zero_are_fedprotos(kit):
    """Class means of the labelled nodes' embeddings after training, without dropout, and their counts."""
    silos = [silo_of(client) for client in range(3)]
    server, federation = kit.build("fedpg", silos, dropout=0.5, annotation="labelled", hops=0, **SHORT)
    play(server, federation, 3)
    for place, silo in enumerate(silos):
        client = federation.client(silo.client)
        with torch.no_grad():
            embeddings = client.model.embed(client.data.full)
        labels = silo.labels[silo.train]
        for c in range(3):
            mean = embeddings[silo.train[labels == c]].mean(0)
            torch.testing.assert_close(server.prototypes[place, c, 0], mean, atol=1e-6, rtol=1e-5)
        assert server.counts[place].tolist() == np.bincount(labels, minlength=3).tolist()


def test_a_step_has_the_gradient_of_the_whole_loss(kit):
    """One epoch of plain descent against autograd of cross-entropy + μ Σ ‖P − Ṗ‖, written out."""
    silo = silo_of(0)
    settings = {**SHORT, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 1, "reduction": "norm_sum"}
    server, federation = kit.build("fedpg", [silo], **settings)
    play(server, federation, 1)
    client = federation.client(0)
    membership, targets = client._membership, server.targets[0]
    data = client.data
    logits = client.model(data.full)
    labels = torch.from_numpy(silo.labels[silo.train])
    loss = torch.nn.functional.cross_entropy(logits[torch.from_numpy(silo.train)], labels)
    reached = membership.prototypes(client.model.embed(data.full))
    loss = loss + 0.5 * (reached - targets)[membership.mask].norm(dim=-1).sum()
    gradients = torch.autograd.grad(loss, list(client.model.parameters()))
    expected = [
        parameter.detach() - 0.1 * gradient
        for parameter, gradient in zip(client.model.parameters(), gradients, strict=True)
    ]
    federation.at("round", 2)
    server.round(federation, 2)
    for parameter, value in zip(client.model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("setting", [{}, {"neighbour_weights": "scorer"}, {"annotation": "labelled"}], ids=str)
def test_the_pull_pulls(kit, setting):
    """With a strong μ prototypes come nearer to what was received than without."""

    def gap(mu):
        silos = [silo_of(client) for client in range(3)]
        settings = {"centred": True, "alpha": 1.0, "norm": 3.0, "reduction": "squared_mean", "generator": "code"}
        settings.update(lr=0.05, weight_decay=0.0)
        wide = {"model_options": {"hidden": 16}}
        server, federation = kit.build("fedpg", silos, **wide, **{**settings, **setting}, mu=mu)
        play(server, federation, 15)
        gaps = centre(server.prototypes - server.targets, server.present)
        return float(gaps[server.present].norm(dim=-1).mean())

    assert gap(30.0) < 0.75 * gap(0.001)


# -- what must change nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"neighbour_weights": "scorer"}, {"centred": True, "confidence": 0.5}], ids=str
)
@pytest.mark.parametrize("make", [silo_of, graphs_of])
def test_labels_of_validation_and_test_change_no_prototype_and_no_weight(kit, make, settings):
    """The trap: prototypes of nodes annotated with their true class would carry test labels into the loss."""
    silos = [make(client) for client in range(3)]
    model = {"model": "gin", "model_options": {"hidden": 16}} if make is graphs_of else {"dropout": 0.5}
    server, federation = kit.build("fedpg", silos, **model, **{**SHORT, **settings})
    play(server, federation, 4)
    hidden = [hide_labels(silo) for silo in silos]
    assert any(not np.array_equal(left.labels, right.labels) for left, right in zip(silos, hidden, strict=True))
    other_server, other = kit.build("fedpg", hidden, **model, **{**SHORT, **settings})
    play(other_server, other, 4)
    assert torch.equal(server.prototypes, other_server.prototypes)
    assert torch.equal(server.counts, other_server.counts)
    assert torch.equal(server.targets, other_server.targets)
    assert same_weights(federation, other)


def test_a_client_without_training_nodes_uploads_nothing_and_keeps_its_weights(kit):
    silos = [silo_of(0), replace(silo_of(1), train=np.empty(0, dtype=np.int64)), silo_of(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    before = {name: value.clone() for name, value in weights_of(federation.client(1).model).items()}
    play(server, federation, 3)
    assert not server.present[1].any()
    assert server.counts[1].sum() == 0
    after = weights_of(federation.client(1).model)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_different_widths_are_refused_by_name(kit):
    silos = [silo_of(client) for client in range(3)]
    server, federation = federation_of(silos, [("gcn", {"hidden": 8}), ("gcn", {"hidden": 8}), ("gin", {"hidden": 5})])
    federation.at("setup", 0)
    with pytest.raises(ConfigError, match=r"client 0 has 8, client 2 has 5.*hidden: 8"):
        server.set_up(federation)


@pytest.mark.parametrize("name", ["sgc", "ssgc", "gcn", "mlp", "gin"])
def test_models_without_a_hidden_layer_are_refused(name):
    """Their embeddings are features: means of these would be sent, and nothing could be pulled."""
    silos = [silo_of(client) for client in range(2)]
    with pytest.raises(ConfigError, match=rf"client 0: .*{name} .*no hidden layer.*model.layers to 2"):
        federation_of(silos, [(name, {"layers": 1})] * 2)
    server, federation = federation_of(silos, [(name, {"layers": 2, "hidden": 4})] * 2)
    play(server, federation, 2)
    assert server.width == 4


def test_the_shallowest_model_sets_the_hops(kit):
    silos = [silo_of(client) for client in range(2)]
    deep = ("gcn", {"hidden": 8, "layers": 5})
    for models, settings, hops in (
        ([deep, ("sgc", {"hops": 1, "layers": 2, "hidden": 8})], {}, 1),
        ([deep, deep], {}, 3),
        ([deep, deep], {"hops": 4}, 4),
    ):
        server, federation = federation_of(silos, models, **settings)
        federation.at("setup", 0)
        server.set_up(federation)
        assert server.hops == hops


@pytest.mark.parametrize(
    ("name", "depth"),
    [("gcn", 2), ("gin", 2), ("sage", 2), ("gat", 2), ("sgc", 2), ("gcnii", 64), ("gamlp", 3), ("mlp", 2)],
)
def test_depth_of_models(name, depth):
    assert depth_of(build_model(name, num_features=4, num_classes=3, seed=0)) == depth


# -- graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"batch_size": 4}, {"neighbour_weights": "scorer", "batch_size": 4}], ids=str)
def test_graph_classification(kit, settings):
    silos = [graphs_of(client) for client in range(3)]
    server, federation = kit.build("fedpg", silos, model="gin", model_options={"hidden": 16}, **SHORT, **settings)
    play(server, federation, 4)
    assert server.hops == 2
    assert server.present[:, :, 0].all()
    # A lower threshold reaches at least as far.
    one, two = (len(v) for v, _ in federation.client(0)._membership.pairs)
    assert two >= one > 0
    state = federation.client(0).state()
    assert [tuple(pairs.shape) for pairs in state["annotated"]["pairs"]] == [(2, one), (2, two)]
    assert all(torch.isfinite(value).all() for weights in weights_in(federation) for value in weights.values())


def test_a_restored_client_of_graphs_goes_on_as_before(kit):
    def build():
        settings = {**SHORT, "neighbour_weights": "scorer", "model_options": {"hidden": 16}}
        return kit.build("fedpg", [graphs_of(0), graphs_of(1)], model="gin", **settings)

    server, federation = build()
    play(server, federation, 2)
    other_server, other = build()
    other.at("setup", 0)
    other_server.load_state(server.state())
    for client in (0, 1):
        other.client(client).load_state(federation.client(client).state())
    for one, fed in ((server, federation), (other_server, other)):
        fed.at("round", 3)
        one.round(fed, 3)
    assert same_weights(federation, other)
    assert torch.equal(server.targets, other_server.targets)


def test_study_stays_at_the_client(kit):
    server, federation = kit.build("fedpg", [silo_of(0)], **SHORT)
    client = federation.client(0)
    assert client.study() == {}
    play(server, federation, 3)
    facts = client.study()
    assert facts["annotated"] == 24  # the confidence asked for is 0
    guessed = np.setdiff1d(np.arange(24), client.silo.train)
    right = client._membership.labels[guessed] == client.silo.graph.labels[guessed]
    assert facts["predicted_classes_right"] == right.mean()
    assert facts["embedding_norm"] == pytest.approx(client.embed(client.data).norm(dim=1).mean().item())
    first, last = facts["prototypes"][:, 0], facts["prototypes"][:, -1]
    both = first.any(1) & last.any(1)
    cosines = torch.cosine_similarity(first, last, dim=1)[both]
    assert facts["cosine_of_first_and_last_hop"] == pytest.approx(float(cosines.mean()), abs=1e-6)
