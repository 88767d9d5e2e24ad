"""FedPG through the real clients, server, codec and ledger: its specification's invariants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import ConfigError, FederationError
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.codec import encode
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.server import ServerContext
from graphsilo.methods.fedpg import Client
from graphsilo.methods.fedpg.client import depth_of
from graphsilo.methods.fedpg.messages import HelloReply
from graphsilo.methods.fedpg.prototypes import centre
from graphsilo.methods.fedpg.server import mean_cosine
from graphsilo.models import build as build_model
from graphsilo.models import pool
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing.conformance import assemble, check_method, hide_labels
from graphsilo.training.local import weights_of

SHORT = {"server_epochs": 5, "mu": 0.5, "centred": False, "confidence": 0.0}


def run(server, federation, count=3):
    federation.at("setup", 0)
    server.set_up(federation)
    for number in range(1, count + 1):
        federation.at("round", number)
        server.round(federation, number)
    return server


def silo_of(client: int, nodes: int = 24, classes: int = 3, seed: int = 0, only: tuple[int, ...] | None = None) -> Silo:
    """A sparse random graph whose features tell the class; a third of the nodes train."""
    draw = np.random.default_rng(1000 * seed + client)
    labels = draw.integers(0, classes, nodes) if only is None else draw.choice(only, nodes)
    features = np.eye(classes + 2)[labels] + 0.5 * draw.standard_normal((nodes, classes + 2))
    ends = draw.integers(0, nodes, (2, 3 * nodes))
    ends = ends[:, (ends[0] != ends[1])]
    edges = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    graph = Graph(features.astype(np.float32), edges.astype(np.int64), labels.astype(np.int64), classes)
    order = draw.permutation(nodes)
    items = {"train": np.sort(order[: nodes // 3]), "val": np.sort(order[nodes // 3 : nodes // 2])}
    items["test"] = np.setdiff1d(np.arange(nodes), np.concatenate(list(items.values())))
    schema = Schema("node", classes + 2, classes)
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), schema)


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


def federation_of(silos, models, **settings):
    """As the kit's ``build``, with a model of each client's own."""
    method = registry.load("fedpg")
    config = method.config(**{**SHORT, **settings})
    federation = InProcess(
        [silo.client for silo in silos],
        lambda client: method.client(ClientContext(client, silos[client], config, ModelSpec(*models[client]), 0)),
        Ledger(),
    )
    return method.server(
        ServerContext(
            config, silos[0].schema, {k: ModelSpec(*model) for k, model in enumerate(models)}, 0, federation.clients
        )
    ), federation


def weights_in(federation):
    return [weights_of(federation.client(client).model) for client in federation.clients]


def same_weights(left, right) -> bool:
    return all(
        torch.equal(value, other[name])
        for mine, other in zip(weights_in(left), weights_in(right), strict=True)
        for name, value in mine.items()
    )


# -- equalities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"batch_size": 3}, {"reset_optimizer": True}], ids=str)
def test_without_a_pull_it_is_local_training_bit_for_bit(kit, settings):
    silos = [silo_of(client) for client in range(3)]
    server, federation = kit.build("fedpg", silos, dropout=0.5, **{**SHORT, "mu": 0.0}, **settings)
    run(server, federation)
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
    run(server, federation)
    for place, silo in enumerate(silos):
        client = federation.client(silo.client)
        with torch.no_grad():
            embeddings = client.model.embed(client.data.full)
        labels = silo.labels[silo.train]
        for c in range(3):
            mean = embeddings[silo.train[labels == c]].mean(0)
            torch.testing.assert_close(server.prototypes[place, c, 0], mean, atol=1e-6, rtol=1e-5)
        assert server.counts[place].tolist() == np.bincount(labels, minlength=3).tolist()


def test_mixing_everybody_without_the_generator_is_fedprotos_mean(kit):
    """Σ n_kc P_kc / Σ n_kc over those who have the class."""
    silos = [silo_of(0), silo_of(1, only=(0, 2)), silo_of(2)]
    server, federation = kit.build("fedpg", silos, annotation="labelled", hops=0, alpha=0.0, similarity=-1.0, **SHORT)
    run(server, federation, 1)
    weights = server.counts.float().unsqueeze(-1)
    mean = (weights * server.prototypes[:, :, 0]).sum(0) / weights.sum(0)
    for place in range(3):
        held = server.present[place, :, 0]
        torch.testing.assert_close(server.targets[place, held, 0], mean[held])


def test_a_step_has_the_gradient_of_the_whole_loss(kit):
    """One epoch of plain descent against autograd of cross-entropy + μ Σ ‖P − Ṗ‖, written out."""
    silo = silo_of(0)
    settings = {**SHORT, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 1, "reduction": "norm_sum"}
    server, federation = kit.build("fedpg", [silo], **settings)
    run(server, federation, 1)
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


def test_the_servers_first_two_rounds_written_out(kit):
    """Uploads to targets: the generator's loss pair by pair under plain descent, then eq. 5 client by client."""
    settings = {**SHORT, "server_epochs": 10, "server_lr": 0.5, "server_optimizer": "sgd", "hop_share": 0.0, "hops": 1}
    server, federation = kit.build(
        "fedpg", [silo_of(client) for client in range(4)], similarity=0.6, alpha=0.3, **settings
    )
    run(server, federation, 0)
    leaves = [part.clone().requires_grad_() for part in server.universal.parameters]
    steps = torch.optim.SGD(leaves, lr=0.5)
    for number in (1, 2):
        federation.at("round", number)
        server.round(federation, number)
        uploads, held, counts = server.prototypes, server.present, server.counts
        centres = torch.stack([uploads[:, c][held[:, c]].mean(0) for c in range(3)])
        cosines = torch.nn.functional.cosine_similarity(centres[:, None], centres[None], dim=-1)
        margin = min(0.5, float((1 - cosines)[~torch.eye(3, dtype=torch.bool)].max()))
        for step in range(11):
            vectors, first, first_bias, second, second_bias = leaves
            universal = ((vectors @ first + first_bias).relu() @ second + second_bias).view(3, 2, -1)
            if step == 10:
                break
            terms = []
            for c in range(3):
                for hop in range(2):  # all classes are there, at both hops
                    near = torch.nn.functional.cosine_similarity(universal[c, hop], uploads[:, :, hop], dim=-1)
                    mine = (near[:, c] - margin)[held[:, c, hop]].exp().sum()
                    rest = [near[:, other][held[:, other, hop]].exp().sum() for other in range(3) if other != c]
                    terms.append(-(mine / (mine + sum(rest))).log())
            steps.zero_grad()
            loss = torch.stack(terms).mean()
            loss.backward()
            steps.step()
            if step in (0, 9):
                name = "generator_loss" if step else "generator_loss_before"
                assert server.log[name] == pytest.approx(loss.item(), rel=1e-4)
        assert server.log["margin"] == pytest.approx(margin, rel=1e-5)
        assert server.log["uploaded_norm"] == pytest.approx(float(uploads[held].norm(dim=1).mean()))
        assert server.log["generated_norm"] == pytest.approx(float(universal.detach().norm(dim=2).mean()), rel=1e-4)
        units = torch.nn.functional.normalize(uploads, dim=-1)
        for name, each in (
            ("uploaded_cosine", torch.stack([units[:, c][held[:, c]].mean(0) for c in range(3)])),
            ("generated_cosine", torch.nn.functional.normalize(universal.detach(), dim=-1).mean(1)),
        ):
            apart = [torch.cosine_similarity(each[a], each[b], dim=0) for a, b in ((0, 1), (0, 2), (1, 2))]
            assert server.log[name] == pytest.approx(float(sum(apart)) / 3, abs=1e-4)
        mixed = groups = 0
        for i in range(4):
            shared = [held[i] & held[j] for j in range(4)]
            near = [
                torch.cosine_similarity(uploads[i][both].flatten(), uploads[j][both].flatten(), dim=0)
                for j, both in enumerate(shared)
            ]
            groups += sum(j == i or float(near[j]) >= 0.6 for j in range(4))
            for c, hop in held[i].nonzero().tolist():
                who = [j for j in range(4) if (j == i or near[j] >= 0.6) and held[j, c, hop]]
                mixed += len(who) > 1
                mean = sum(counts[j, c] * uploads[j, c, hop] for j in who) / sum(counts[j, c] for j in who)
                wanted = 0.3 * universal[c, hop].detach() + 0.7 * mean
                torch.testing.assert_close(server.targets[i, c, hop], wanted, atol=1e-4, rtol=1e-4)
        assert mixed
        assert server.log["similar_clients"] == groups / 4


@pytest.mark.parametrize("setting", [{}, {"neighbour_weights": "scorer"}, {"annotation": "labelled"}], ids=str)
def test_the_pull_pulls(kit, setting):
    """With a strong μ prototypes come nearer to what was received than without."""

    def gap(mu):
        silos = [silo_of(client) for client in range(3)]
        settings = {"centred": True, "alpha": 1.0, "norm": 3.0, "reduction": "squared_mean", "generator": "code"}
        settings.update(lr=0.05, weight_decay=0.0)
        wide = {"model_options": {"hidden": 16}}
        server, federation = kit.build("fedpg", silos, **wide, **{**settings, **setting}, mu=mu)
        run(server, federation, 15)
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
    run(server, federation, 4)
    hidden = [hide_labels(silo) for silo in silos]
    assert any(not np.array_equal(left.labels, right.labels) for left, right in zip(silos, hidden, strict=True))
    other_server, other = kit.build("fedpg", hidden, **model, **{**SHORT, **settings})
    run(other_server, other, 4)
    assert torch.equal(server.prototypes, other_server.prototypes)
    assert torch.equal(server.counts, other_server.counts)
    assert torch.equal(server.targets, other_server.targets)
    assert same_weights(federation, other)


def test_unlabelled_nodes_count_with_their_predicted_class(kit):
    silo = silo_of(0)
    server, federation = kit.build("fedpg", [silo], **SHORT)
    run(server, federation, 1)
    client = federation.client(0)
    predicted = client.predict(client.data).argmax(1).numpy()
    expected = predicted.copy()
    expected[silo.train] = silo.labels[silo.train]
    assert np.array_equal(client._membership.labels, expected)
    assert server.counts[0].tolist() == np.bincount(expected, minlength=3).tolist()


def test_a_fixed_code_needs_no_other_client(kit):
    """α = 1 with the code: what a client learns does not depend on who else takes part."""
    settings = {**SHORT, "generator": "code", "alpha": 1.0, "norm": 4.0}
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **settings)
    run(server, federation)
    alone_server, alone = kit.build("fedpg", [silo_of(0)], **settings)
    run(alone_server, alone)
    mine, his = weights_of(federation.client(0).model), weights_of(alone.client(0).model)
    assert all(torch.equal(value, his[name]) for name, value in mine.items())
    lengths = server.targets[0][server.present[0]].norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 4.0))


# -- poor clients --------------------------------------------------------------------------------------------------


def test_an_absent_class_receives_nothing(kit):
    silos = [silo_of(0), silo_of(1, only=(1,)), silo_of(2)]
    settings = {**SHORT, "annotation": "labelled"}
    server, federation = kit.build("fedpg", silos, **settings)
    run(server, federation, 4)
    assert server.counts[1, [0, 2]].tolist() == [0, 0]
    assert not server.present[1, [0, 2]].any()
    assert (server.targets[1, [0, 2]] == 0).all()
    assert torch.isfinite(server.targets).all()
    assert all(torch.isfinite(value).all() for weights in weights_in(federation) for value in weights.values())


def test_a_class_that_nobody_has(kit):
    silos = [silo_of(client, only=(0, 2)) for client in range(2)]
    server, federation = kit.build("fedpg", silos, annotation="labelled", **SHORT)
    run(server, federation)
    assert not server.present[:, 1].any()
    assert torch.isfinite(server.targets).all()


def test_a_client_without_training_nodes_uploads_nothing_and_keeps_its_weights(kit):
    silos = [silo_of(0), replace(silo_of(1), train=np.empty(0, dtype=np.int64)), silo_of(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    before = {name: value.clone() for name, value in weights_of(federation.client(1).model).items()}
    run(server, federation)
    assert not server.present[1].any()
    assert server.counts[1].sum() == 0
    after = weights_of(federation.client(1).model)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_nobody_with_training_nodes(kit):
    silos = [replace(silo_of(client), train=np.empty(0, dtype=np.int64)) for client in range(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    run(server, federation)
    assert server.targets is None


def test_isolated_nodes_have_prototypes_at_hop_zero_alone(kit):
    silo = silo_of(0)
    bare = silo.graph.with_edges(np.zeros((2, 0), dtype=np.int64))
    silo = replace(silo, graph=bare, evaluations=(replace(silo.seen, graph=bare),))
    server, federation = kit.build("fedpg", [silo], **SHORT)
    run(server, federation)
    assert server.present[0, :, 0].any()
    assert not server.present[0, :, 1:].any()


def test_partial_participation_keeps_earlier_prototypes(kit):
    silos = [silo_of(client) for client in range(4)]
    server, federation = kit.build("fedpg", silos, participation=0.5, **SHORT)
    federation.at("setup", 0)
    server.set_up(federation)
    heard: set[int] = set()
    for number in range(1, 5):
        before = server.prototypes.clone()
        federation.at("round", number)
        server.round(federation, number)
        chosen = server.select(federation, number)
        heard |= set(chosen)
        changed = (server.prototypes != before).flatten(1).any(1)
        assert {place for place in range(4) if changed[place]} == set(chosen)
        assert {place for place in range(4) if server.present[place].any()} == heard


# -- ablations and settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"hop_share": 0.0}, {"margin": 0.0}, {"margin_sign": "paper"}, {"alpha": 1.0}, {"alpha": 0.0, "similarity": 2},
        {"discrepancy": "cosine"}, {"temperature": 0.1}, {"norm": "first"}, {"restart": True}, {"initial": "own"},
        {"server_optimizer": "sgd"}, {"noise": 0.2}, {"neighbourhood": "within"}, {"max_neighbours": 1},
        {"reduction": "squared_mean"}, {"reduction": "norm_sum"}, {"hops": 1},
    ],
    ids=str,
)  # fmt: skip
def test_every_switch_runs_and_stays_finite(kit, settings):
    silos = [silo_of(client) for client in range(3)]
    server, federation = kit.build("fedpg", silos, **{**SHORT, **settings})
    run(server, federation)
    assert torch.isfinite(server.targets).all()
    assert all(torch.isfinite(value).all() for weights in weights_in(federation) for value in weights.values())


def test_noise_and_centring_change_what_is_sent_but_not_the_model_at_first(kit):
    sent = []
    for settings in ({}, {"noise": 0.25}, {"centred": True}):
        server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **{**SHORT, **settings})
        run(server, federation, 1)
        sent.append((server.prototypes, weights_in(federation)))
    (plain, weights), (noisy, _), (centred, after) = sent
    assert all(torch.equal(value, after[0][name]) for name, value in weights[0].items())
    for place in (0, 1):
        assert (noisy[place] != plain[place]).flatten(0, 1).any(0).sum() == 1  # a quarter of four dimensions
    torch.testing.assert_close(centred[0, :, 0].sum(0), torch.zeros(4), atol=1e-5, rtol=0)


def test_similar_clients_by_threshold(kit):
    silos = [silo_of(client) for client in range(3)]
    for threshold, size in ((2.0, 1.0), (-1.0, 3.0)):
        server, federation = kit.build("fedpg", silos, similarity=threshold, **SHORT)
        run(server, federation, 2)
        assert server.log["similar_clients"] == size


# -- different models ----------------------------------------------------------------------------------------------


def test_the_pool_of_five_models(kit):
    models = [(name, {**options, "hidden": 8}) for name, options in pool("fedpg")]
    silos = [silo_of(client) for client in range(5)]
    server, federation = federation_of(silos, models)
    before = [{name: value.clone() for name, value in weights.items()} for weights in weights_in(federation)]
    run(server, federation)
    assert (server.hops, server.width) == (2, 8)
    assert server.present.flatten(1).any(1).all()
    for old, new in zip(before, weights_in(federation), strict=True):
        assert any(not torch.equal(value, new[name]) for name, value in old.items())


def test_different_widths_are_refused_by_name(kit):
    silos = [silo_of(client) for client in range(3)]
    server, federation = federation_of(silos, [("gcn", {"hidden": 8}), ("gcn", {"hidden": 8}), ("gin", {"hidden": 5})])
    federation.at("setup", 0)
    with pytest.raises(ConfigError, match=r"client 0 has 8, client 2 has 5.*hidden: 8"):
        server.set_up(federation)


@pytest.mark.parametrize(("width", "depth"), [(10**9, 3), (0, 3), (-1, 3), (8, -1)])
def test_client_that_lies_of_its_model_fails_whoever_it_is(width, depth):
    class Lying(InProcess):
        def deliver(self, handler, *rest):
            for client, answer in super().deliver(handler, *rest):
                lie = client == 0 and handler == "hello"
                yield client, encode(HelloReply(width=width, depth=depth)) if lie else answer

    server, federation, _ = assemble(registry.load("fedpg"), {**SHORT, "min_clients": 3}, runtime=Lying)
    federation.at("setup", 0)
    server.set_up(federation)
    assert (server.width, [failure.client for failure in federation.failures]) == (8, [0])
    assert str(width if depth == 3 else depth) in federation.failures[0].reason


@pytest.mark.parametrize("name", ["sgc", "ssgc", "gcn", "mlp", "gin"])
def test_models_without_a_hidden_layer_are_refused(name):
    """Their embeddings are features: means of these would be sent, and nothing could be pulled."""
    silos = [silo_of(client) for client in range(2)]
    with pytest.raises(ConfigError, match=rf"client 0: .*{name} .*no hidden layer.*model.layers to 2"):
        federation_of(silos, [(name, {"layers": 1})] * 2)
    server, federation = federation_of(silos, [(name, {"layers": 2, "hidden": 4})] * 2)
    run(server, federation, 2)
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


def test_uploads_of_another_shape_are_refused(kit):
    silos = [silo_of(client) for client in range(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    run(server, federation, 1)
    server._start(1, 4)
    federation.client(0)._upload = lambda hops: Client._upload(federation.client(0), 3)
    federation.at("round", 2)
    with pytest.raises(Exception, match="client 0 must send prototypes of shape"):
        server.round(federation, 2)


# -- graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"batch_size": 4}, {"neighbour_weights": "scorer", "batch_size": 4}], ids=str)
def test_graph_classification(kit, settings):
    silos = [graphs_of(client) for client in range(3)]
    server, federation = kit.build("fedpg", silos, model="gin", model_options={"hidden": 16}, **SHORT, **settings)
    run(server, federation, 4)
    assert server.hops == 2
    assert server.present[:, :, 0].all()
    # A lower threshold reaches at least as far.
    one, two = (len(v) for v, _ in federation.client(0)._membership.pairs)
    assert two >= one > 0
    state = federation.client(0).state()
    assert [tuple(pairs.shape) for pairs in state["pairs"]] == [(2, one), (2, two)]
    assert all(torch.isfinite(value).all() for weights in weights_in(federation) for value in weights.values())


def test_a_restored_client_of_graphs_goes_on_as_before(kit):
    def build():
        settings = {**SHORT, "neighbour_weights": "scorer", "model_options": {"hidden": 16}}
        return kit.build("fedpg", [graphs_of(0), graphs_of(1)], model="gin", **settings)

    server, federation = build()
    run(server, federation, 2)
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


# -- bytes and wire ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hidden", "hops"), [(64, 2), (16, 1), (10, 3)])
def test_bytes_of_a_round_by_formula(kit, hidden, hops):
    """Up 4 (C (L + 1) p + C), down 4 C (L + 1) p and a truth value per row; each tensor is padded to 64 bytes."""
    silos = [silo_of(client, classes=5) for client in range(3)]
    server, federation = kit.build("fedpg", silos, model_options={"hidden": hidden}, hops=hops, **SHORT)
    run(server, federation, 2)
    rows = 5 * (hops + 1)
    payload = {"up": 4 * (rows * hidden + 5), "down": 4 * rows * hidden + rows}
    sizes = {"up": (4 * rows * hidden, 20), "down": (4 * rows * hidden, rows)}
    noted = {"up": 0, "down": 0}
    for phase, number, _, way, _, _, field, _, size, _ in federation.ledger.rows():
        if phase == "round" and number == 2 and field != "(header)":
            noted[way] += size
    for way in ("up", "down"):
        padding = sum(-size % 64 for size in sizes[way])
        assert noted[way] <= 3 * (payload[way] + padding)
        assert noted[way] >= 3 * payload[way]
    # With p = 64, C = 5 and L = 2 under 4 KB each way, headers included.
    if (hidden, hops) == (64, 2):
        total = federation.ledger.total("round", 2)
        assert payload["up"] == 3860
        assert max(total.values()) / 3 < 4300


def test_what_is_sent_is_named(kit):
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **SHORT)
    run(server, federation, 2)
    assert set(federation.ledger.by_kind("up")) == {"prototype", "counts", "control"}
    assert set(federation.ledger.by_kind("down")) == {"prototype", "control"}
    request = server._requests([0])[0]
    assert encode(request).num_bytes < 4 * 9 * 4 + 500


def test_the_first_round_carries_nothing(kit):
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **SHORT)
    federation.at("setup", 0)
    server.set_up(federation)
    assert server._requests([0])[0].prototypes is None


def test_links_are_not_supported():
    assert registry.load("fedpg").tasks == ("node", "graph")
    assert registry.load("fedpg").heterogeneous


def test_study_stays_at_the_client(kit):
    server, federation = kit.build("fedpg", [silo_of(0)], **SHORT)
    client = federation.client(0)
    assert client.study() == {}
    run(server, federation)
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


def test_the_mean_cosine_is_of_different_rows():
    rows = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0], [-1.0, 0.0]])
    # Of six pairs three are at right angles, one is alike and two are opposite.
    assert mean_cosine(rows) == pytest.approx((1 - 2) / 6)
    assert mean_cosine(rows[:2]) == 0.0
    assert mean_cosine(rows[[0, 2]]) == pytest.approx(1.0)
    assert mean_cosine(rows[:1]) == mean_cosine(rows[:0]) == 0.0


def test_too_few_answers_end_the_round(kit):
    silos = [silo_of(client) for client in range(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    run(server, federation, 1)
    federation.client(1).run_epochs = federation.client(1)._train_towards = lambda *args: 1 / 0
    federation.at("round", 2)
    with pytest.raises(FederationError, match="client 1 failed in 'train'"):
        server.round(federation, 2)
    server.config = server.config.model_copy(update={"min_clients": 1})
    server.round(federation, 2)
    assert server.present[1].any()


# -- the conformance suite -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"neighbour_weights": "scorer", "centred": True, "noise": 0.1}, {"batch_size": 8}], ids=str
)
def test_conforms(settings):
    check_method(registry.load("fedpg"), settings={**SHORT, **settings}, workers=True)
