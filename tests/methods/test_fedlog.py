"""FedLoG: the invariants of its specification, through the real machinery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.methods import fedlog
from graphsilo.methods.fedlog import METHOD, FedLoGConfig
from graphsilo.methods.fedlog import step as fedlog_step
from graphsilo.methods.fedlog.messages import ClassGenerators, GeneratorRequest
from graphsilo.methods.fedlog.mixing import mix_generators, mix_nodes
from graphsilo.methods.fedlog.rows import Rows
from graphsilo.testing import conformance

SHORT = {"generator_epochs": 3, "networks": 2, "prototypes": 2, "embedding_dim": 8}


def silo_of(client, labels, *, train=None, classes=3, nodes=12, features=5):
    """A ring of nodes with these labels for the first ones; all others are unlabelled to training."""
    draw = np.random.default_rng(client)
    ring = np.stack([np.arange(nodes), np.roll(np.arange(nodes), 1)])
    all_labels = np.resize(np.array(labels), nodes).astype(np.int64)
    graph = Graph(
        features=(draw.random((nodes, features)) < 0.4).astype(np.float32),
        edges=np.concatenate([ring, ring[::-1]], axis=1).astype(np.int64),
        labels=all_labels,
        num_classes=classes,
    )
    chosen = np.arange(len(labels)) if train is None else np.array(train, dtype=np.int64)
    rest = np.setdiff1d(np.arange(nodes), chosen)
    items = {"train": chosen, "val": rest[::2], "test": rest[1::2]}
    return Silo(client, graph, chosen, (EvaluationSet("seen", graph, items),), Schema("node", features, classes))


def build(kit, silos, **settings):
    return kit.build("fedlog", silos, model="sage", **{**SHORT, **settings})


def rounds(server, federation, count=2):
    federation.at("setup", 0)
    server.set_up(federation)
    for number in range(1, count + 1):
        federation.at("round", number)
        server.round(federation, number)
    return server


def test_one_client_of_one_class_gets_its_own_head_nodes_back(kit):
    server, federation = build(kit, [silo_of(0, [1, 1, 1])])
    rounds(server, federation, 1)
    client = federation.client(0)
    assert client.rates().tolist() == [0.0, 1.0, 0.0]
    each = SHORT["prototypes"]
    assert torch.equal(server.synthetic[each : 2 * each], client.prototypes[0, each : 2 * each])
    # Rates of 0 for everybody weigh alike, hence here too.
    torch.testing.assert_close(server.synthetic, client.prototypes[0])


@pytest.mark.parametrize(("weight_by", "share"), [("nodes", 12 / 32), ("train", 4 / 6), ("uniform", 1 / 2)])
def test_models_are_averaged_by_what_a_client_counts(kit, weight_by, share):
    """12 nodes of which 4 train, and 20 of which 2 do."""
    silos = [silo_of(0, [0, 0, 0, 1]), silo_of(1, [0, 1], nodes=20)]
    server, federation = build(kit, silos, weight_by=weight_by)
    rounds(server, federation, 1)
    first, second = (federation.client(client).weights for client in (0, 1))
    for name, value in server.weights.items():
        torch.testing.assert_close(value, share * first[name] + (1 - share) * second[name], rtol=1e-5, atol=1e-7)


def test_learnable_nodes_are_drawn_without_a_look_at_the_graph(kit):
    silo = silo_of(0, [0, 1, 2], features=40)
    other = replace(silo, graph=silo.graph.with_features(1.0 - silo.graph.features))
    first, second = (build(kit, [one])[1].client(0).prototypes for one in (silo, other))
    assert torch.equal(first, second)
    assert float(first.abs().max()) <= (6 / (6 + 40)) ** 0.5  # Xavier-uniform


def test_no_message_carries_features_of_nodes(kit):
    """After two rounds no row that anybody sends or receives points where a node's features point.

    No class has two clients, so that no mixture hides anybody's nodes.
    """
    silos = [silo_of(0, [0, 1], features=60), silo_of(1, [2], features=60)]
    server, federation = build(kit, silos)
    spy = conformance.Spy(federation)
    conformance.play(server, spy)
    real = torch.cat([torch.from_numpy(silo.graph.features) for silo in silos])
    rows = [
        value.reshape(-1, 60)
        for message in spy.messages
        for spec in message.specs()
        for value in tensors(getattr(message, spec.name))
        if value.dim() >= 2 and value.shape[-1] == 60
    ]
    assert len(torch.cat(rows)) > 100
    alike = torch.nn.functional.normalize(torch.cat(rows).float()) @ torch.nn.functional.normalize(real).t()
    assert float(alike.abs().max()) < 0.9


def tensors(value):
    """Tensors of a field."""
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value.values()) if isinstance(value, Mapping) else []


def test_steps_on_synthetic_nodes_beside_the_batches_or_after_them(kit, monkeypatch):
    """Eight training nodes and six synthetic ones in batches of four: two steps, or two and two more."""
    seen = []

    def watched(self, batch, synthetic, draw, *, norm_weight=None):
        seen.append((len(batch), 0 if synthetic is None else len(synthetic.labels), norm_weight))
        return 0.0

    monkeypatch.setattr(fedlog.Client, "step", watched)
    for generalization in ("joint", "sequential"):
        settings = {"batch_size": 4, "generalization": generalization}
        server, federation = build(kit, [silo_of(0, [0, 1, 2, 0, 1, 2, 0, 1])], **settings)
        rounds(server, federation, 2)
    joint, sequential = seen[:4], seen[4:]
    assert joint == [(4, 0, None)] * 2 + [(4, 6, None)] * 2
    assert sequential == [(4, 0, None)] * 4 + [(0, 4, 0.0), (0, 2, 0.0)]


def test_synthetic_nodes_are_the_rate_weighted_mean(kit):
    server, federation = build(kit, [silo_of(0, [0, 0, 0, 1]), silo_of(1, [0, 1])])
    rounds(server, federation, 1)
    first, second = (federation.client(client).prototypes[0] for client in (0, 1))
    # r_0 = (3/4, 1/4, 0), r_1 = (1/2, 1/2, 0); nobody has class 2, so both count alike there.
    share = torch.tensor([0.6, 1 / 3, 0.5]).repeat_interleave(2)[:, None]
    torch.testing.assert_close(server.synthetic, share * first + (1 - share) * second)


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


def test_class_generators_mix_by_rate_and_uniformly_where_nobody_has_a_class(kit):
    server, federation = build(kit, [silo_of(0, [0, 0, 0, 1]), silo_of(1, [0, 1])])
    own = {}
    for number in (0, 1):
        client = federation.client(number)
        found = client.fit_generator(GeneratorRequest(output="tanh"))
        own[number] = found.generators["0.weight"][0] / found.class_weights[0]
    rounds(server, federation, 0)
    mixed = federation.client(0).generators["0.weight"]
    torch.testing.assert_close(mixed, federation.client(1).generators["0.weight"])
    for label, share in enumerate((0.6, 1 / 3, 0.5)):
        torch.testing.assert_close(mixed[label], share * own[0] + (1 - share) * own[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("knowledge", ["HT", "TH", "TT"])
def test_class_generators_do_not_depend_on_whose_nodes_are_mixed(kit, knowledge):
    sent = []
    for synthetic in ("HH", knowledge):
        _, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], synthetic=synthetic)
        sent.append(federation.client(0).fit_generator(GeneratorRequest(output="tanh")))
    assert sent[1].class_weights.tolist() == pytest.approx([0.75, 0.25, 1e-12])
    assert all(torch.equal(sent[0].generators[name], value) for name, value in sent[1].generators.items())


def test_a_client_that_was_away_when_generators_were_fitted_can_use_them(kit):
    _, federation = build(kit, [silo_of(0, [0, 1, 2]), silo_of(1, [0, 1, 2])])
    found = federation.client(0).fit_generator(GeneratorRequest(output="identity"))
    mixed = mix_generators(found.generators, found.class_weights)
    federation.client(1).take_generators(ClassGenerators(generators=mixed, output="identity"))
    assert federation.client(1).output == "identity"
    assert federation.client(1).customise(torch.ones(6, 5)).paired


def test_untrained_generators_are_drawn_again_and_not_kept_in_checkpoints(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])], class_generators=False)
    client = federation.client(0)
    assert client.state()["generators"] is None
    rounds(server, federation, 1)
    state, held = client.state(), client.generators
    assert state["generators"] == {}
    client.load_state({**state, "generators": None})
    assert client.generators is None
    client.load_state(state)
    assert all(torch.equal(client.generators[name], value) for name, value in held.items())


def test_prediction_with_all_pairs_takes_few_nodes_at_once(kit, monkeypatch):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])], interp=0)
    rounds(server, federation, 1)
    client, seen = federation.client(0), []
    whole = client.predict(client.data)
    forward = client.network.classifiers.forward

    def watched(parameters, targets, prototypes):
        seen.append(len(targets.own) * prototypes.shape[1])
        return forward(parameters, targets, prototypes)

    monkeypatch.setattr(client.network.classifiers, "forward", watched)
    monkeypatch.setattr(fedlog_step, "_POINTS", 31)  # 6 prototypes a branch
    torch.testing.assert_close(client.predict(client.data), whole, rtol=1e-5, atol=1e-6)
    assert seen == [30, 30, 12]


def test_features_beyond_one_ask_for_an_open_end(kit):
    near, far = silo_of(0, [0, 1, 2]), silo_of(1, [0, 1, 2])
    far = replace(far, graph=far.graph.with_features(3.0 * far.graph.features))
    for silos, wanted in (([near], "tanh"), ([near, far], "identity")):
        server, federation = build(kit, silos)
        rounds(server, federation, 0)
        assert federation.client(0).output == wanted


def test_difficulty_draws_nodes_to_their_mean(kit):
    _, federation = build(kit, [silo_of(0, [0, 1, 2])])
    client = federation.client(0)
    nodes = torch.arange(30.0).view(6, 5)
    assert torch.equal(client.customise(nodes).points, nodes)
    client.difficulty = torch.tensor([1.0, 0.0, 0.5])
    found = client.customise(nodes).points
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
    monkeypatch.setattr(client.network, "recognised", lambda *_: recognised.flatten())
    client.difficulty = torch.full((3,), 0.5)
    client.adapt(client.customise(client.prototypes[0]))
    assert client.difficulty.tolist() == pytest.approx([0.499, 0.501, 0.499])


def test_the_papers_difficulty_never_falls(kit):
    _, federation = build(kit, [silo_of(0, [0, 1, 2])], difficulty_decrease=0, difficulty_threshold=1.0)
    client = federation.client(0)
    client.difficulty = torch.tensor([0.0, 0.5, 0.9])
    client.adapt(client.customise(client.prototypes[0].clone()))
    assert client.difficulty.tolist() == pytest.approx([0.0, 0.5, 0.9])


@pytest.mark.parametrize("part", ["encoder.", "classifier.", "prototypes"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neighbour_generator": False},
        {"interaction": "inert", "mixing": "logarithms"},
        {"distance": "embedding"},
        {"layer_norm": False},
    ],
    ids=str,
)
def test_the_gradient_of_a_step_is_that_of_its_loss(kit, settings, part):
    server, federation = build(kit, [silo_of(0, [0, 1, 2, 0, 1])], norm_weight=0.3, prototypes=4, **settings)
    rounds(server, federation, 2)
    client, batch = federation.client(0), torch.tensor([0, 2, 3])
    for name, value in client.weights.items():
        if name.endswith("move.2.weight"):
            value *= 100.0  # else the classifiers hardly move anything
    synthetic = client.customise(server.synthetic)
    _, gradients, to_prototypes = client.gradients(batch, synthetic, None)
    if part == "prototypes":
        values, slopes = [client.prototypes], [to_prototypes]
    else:
        values = [value for name, value in client.weights.items() if name.startswith(part)]
        slopes = [slope.clone() for name, slope in zip(client.weights, gradients, strict=True) if name.startswith(part)]
    length = float(torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt())
    step, losses = 3e-3, []
    for sign in (1.0, -2.0):
        for value, slope in zip(values, slopes, strict=True):
            value.add_(slope, alpha=sign * step / length)
        losses.append(client.gradients(batch, synthetic, None)[0])
    assert length > 1e-3
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(length, rel=0.02)


def test_surroundings_give_the_gradients_of_the_whole_graph(kit):
    silo = silo_of(0, [0, 1, 2, 0, 1, 2], nodes=60)
    _, federation = build(kit, [silo], batch_size=2)
    client, batch = federation.client(0), torch.tensor([1, 4])
    assert not client.rows.whole
    found = client.gradients(batch, None, None)
    client.rows.whole = True
    wanted = client.gradients(batch, None, None)
    assert found[0] == pytest.approx(wanted[0], rel=1e-6)
    for mine, other in zip([*found[1], found[2]], [*wanted[1], wanted[2]], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    assert Rows(client.data, 0).whole


def test_noisy_rates_are_drawn_once(kit):
    plain = torch.tensor([0.75, 0.25, 0.0], dtype=torch.float64)
    server, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], rate_noise=0.5)
    client = federation.client(0)
    first = client.rates()
    rounds(server, federation, 2)
    assert torch.equal(client.rates(), first)
    assert not torch.equal(first, plain)
    assert first[2] == 0.0  # noise grows with the rate
    _, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], rate_noise=0.0)
    torch.testing.assert_close(federation.client(0).rates(), plain)


def test_permuted_rates_stay_among_head_and_tail_classes(kit):
    labels = [0] * 4 + [1] * 3 + [2] * 2 + [3]
    found = set()
    for seed in range(12):
        _, federation = build(kit, [silo_of(0, labels, classes=5)], rate_permutation=True, seed=seed)
        rates = federation.client(0).rates()
        assert sorted(rates[:3].tolist()) == pytest.approx([0.2, 0.3, 0.4])  # at least 1 / C
        assert sorted(rates[3:].tolist()) == pytest.approx([0.0, 0.1])
        found.add(tuple(rates.tolist()))
    assert len(found) > 2


def test_permuted_nodes_stay_in_their_class(kit):
    _, federation = build(kit, [silo_of(0, [1, 1])], permute=True, prototypes=8)
    client = federation.client(0)
    sent = client.reply().synthetic[8:16]
    own = client.prototypes[0, 8:16]
    assert not torch.equal(sent, own)
    assert torch.equal(sent.sort(0).values, own.sort(0).values)


def test_the_receiver_only_receives(kit):
    silos = [silo_of(0, [0, 0, 1]), silo_of(1, [1, 2, 2]), silo_of(2, [0, 2])]
    server, federation = build(kit, silos, receiver=1)
    rounds(server, federation, 3)
    assert federation.client(1).reply().class_weights.tolist() == [0.0] * 3
    assert federation.client(1).global_nodes is not None
    assert all(federation.client(client).global_nodes is None for client in (0, 2))
    with pytest.raises(ConfigError, match="client 7"):
        build(kit, silos, receiver=7)


def test_a_class_absent_from_this_round_keeps_its_nodes():
    old = torch.full((4, 2), 7.0)
    total, rates = torch.ones(4, 2, dtype=torch.float64), torch.tensor([0.5, 1e-12], dtype=torch.float64)
    assert mix_nodes(total, rates, old).tolist() == [[2.0, 2.0], [2.0, 2.0], [7.0, 7.0], [7.0, 7.0]]
    assert mix_nodes(total, torch.zeros(2, dtype=torch.float64), None) is None


def test_a_client_without_training_nodes_counts_nothing_and_learns_from_the_others(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2]), silo_of(1, [0, 1, 2], train=[])])
    rounds(server, federation, 1)
    alone, empty = (federation.client(client) for client in (0, 1))
    assert empty.weight == 0.0
    assert all(torch.equal(server.weights[name], value) for name, value in alone.weights.items())
    before = empty.prototypes.clone()
    federation.at("round", 2)
    server.round(federation, 2)
    assert not torch.equal(empty.prototypes, before)


def scores(**more):
    return conformance.numbers(run(conformance.small_config(METHOD, {**SHORT, "prototypes": 4, **more})).tree)


@pytest.fixture(scope="module")
def plain_scores():
    return scores()


@pytest.mark.parametrize(
    "settings",
    [
        {"local_generalization": False},
        {"neighbour_generator": False},
        {"batch_size": 4},
        {"degree_threshold": 0},
        {"compat": "release", "pretrain_epochs": 3},
        {"generator_output": "identity", "grad_weight": 0.0},
        {"generalization": "sequential"},
        {"layer_norm": False},
    ],
    ids=str,
)
def test_variants_run_and_change_the_numbers(plain_scores, settings):
    assert scores(**settings) != plain_scores


@pytest.mark.parametrize("settings", [{"interp": 0}, {"prototypes": 1}, {"batch_size": 0}, {"networks": 1}], ids=str)
def test_edges_of_settings_run(kit, settings):
    server, federation = build(kit, [silo_of(0, [0, 1, 2]), silo_of(1, [1, 1])], **settings)
    rounds(server, federation, 2)
    assert all(torch.isfinite(value).all() for value in server.weights.values())


@pytest.mark.parametrize("adaptive", [True, False])
def test_without_the_adaptive_factor_nothing_becomes_harder(kit, adaptive):
    settings = {"adaptive_factor": adaptive, "difficulty_threshold": 0.0, "difficulty_step": 0.25}
    server, federation = build(kit, [silo_of(0, [0, 1, 2])], **settings)
    rounds(server, federation, 3)
    assert bool((federation.client(0).difficulty > 0).any()) is adaptive


def test_release_sets_defaults_that_a_person_may_change():
    found = FedLoGConfig(compat="release", pretrain_epochs=0)
    assert (found.interaction, found.weight_by, found.matching, found.permute) == ("inert", "uniform", "last", True)
    assert (found.reset_optimizer, found.class_generators, found.pretrain_epochs) == (True, False, 0)
    assert FedLoGConfig(**found.model_dump()) == found
    plain = FedLoGConfig()
    assert (plain.interaction, plain.weight_by, plain.matching, plain.class_generators) == (
        "full", "nodes", "mean", True,
    )  # fmt: skip


def test_pretraining_goes_on_in_round_1_and_reads_no_test_label(kit):
    def trained(silo, **settings):
        server, federation = build(kit, [silo], **settings)
        rounds(server, federation, 1)
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


def test_messages_are_as_large_as_the_formulas_say(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])])
    rounds(server, federation, 0)
    reply = federation.client(0).reply()
    client, width, features = federation.client(0), SHORT["embedding_dim"], 5
    encoder = 2 * features * 4 + 4 + 2 * 4 * width + width
    layer = (2 * width + 1) * width + 3 * width * width + 4 * width + width
    assert sum(value.numel() for value in client.weights.values()) == encoder + 2 * (2 * width + 2 * layer)
    assert reply.synthetic.shape == (SHORT["prototypes"] * 3, features)
    assert server.aggregate().keys() == reply.weights.keys()


def test_study_tells_of_real_and_learned_features(kit):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])])
    rounds(server, federation, 2)
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


def test_other_backbones_and_too_many_networks_are_refused(kit):
    with pytest.raises(UnsupportedError, match="sage"):
        kit.build("fedlog", [silo_of(0, [0, 1])], model="gat", **SHORT)[1].client(0)
    with pytest.raises(UnsupportedError, match=r"Leave model\.unit_rows at false"):
        kit.build("fedlog", [silo_of(0, [0, 1])], model="sage", model_options={"unit_rows": True}, **SHORT)[1].client(0)
    with pytest.raises(ConfigError, match="nets_per_epoch"):
        FedLoGConfig(networks=2, nets_per_epoch=3)
    with pytest.raises(ConfigError, match=r"inert is the layer norm .* and nothing else"):
        FedLoGConfig(interaction="inert", layer_norm=False)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_conforms(check):
    check(METHOD, SHORT)


@pytest.mark.parametrize("check", [conformance.check_resume, conformance.check_poor_clients])
def test_release_conforms(check):
    check(METHOD, {**SHORT, "compat": "release", "pretrain_epochs": 3})


def test_needs_only_sums():
    assert conformance.needs_only_sums(METHOD, SHORT)
    assert registry.load("FedLoG") is METHOD


@pytest.mark.slow
def test_workers_give_the_same_numbers():
    conformance.check_workers(METHOD, SHORT)
