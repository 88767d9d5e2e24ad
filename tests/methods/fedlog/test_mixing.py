"""Class rates, synthetic nodes and generators: how FedLoG mixes them."""

from __future__ import annotations

import itertools

import pytest
import torch

from graphsilo.federation import noise
from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.messages import ClassGenerators, GeneratorRequest
from graphsilo.methods.fedlog.mixing import mix_generators, mix_nodes
from graphsilo.testing.small import play
from kit.fedlog import build, silo_of


def test_synthetic_nodes_are_the_rate_weighted_mean(kit):
    server, federation = build(kit, [silo_of(0, [0, 0, 0, 1]), silo_of(1, [0, 1])])
    play(server, federation, 1)
    first, second = (federation.client(client).prototypes[0] for client in (0, 1))
    # r_0 = (3/4, 1/4, 0), r_1 = (1/2, 1/2, 0); nobody has class 2, so both count alike there.
    share = torch.tensor([0.6, 1 / 3, 0.5]).repeat_interleave(2)[:, None]
    torch.testing.assert_close(server.synthetic, share * first + (1 - share) * second)


def test_class_generators_mix_by_rate_and_uniformly_where_nobody_has_a_class(kit):
    server, federation = build(kit, [silo_of(0, [0, 0, 0, 1]), silo_of(1, [0, 1])])
    own = {}
    for number in (0, 1):
        client = federation.client(number)
        found = client.fit_generator(GeneratorRequest(output="tanh"))
        own[number] = found.generators["0.weight"][0] / found.class_weights[0]
    play(server, federation, 0)
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
    assert federation.client(1).customise(torch.ones(6, 5)).rows.data.num_nodes == 12


def test_noisy_rates_are_drawn_once(kit):
    plain = torch.tensor([0.75, 0.25, 0.0], dtype=torch.float64)
    server, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], rate_noise=0.5)
    client = federation.client(0)
    first = client.rates()
    play(server, federation, 2)
    assert torch.equal(client.rates(), first)
    assert not torch.equal(first, plain)
    assert first[2] == 0.0  # noise grows with the rate
    _, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], rate_noise=0.0)
    torch.testing.assert_close(federation.client(0).rates(), plain)


def test_noise_on_counts_is_drawn_once_and_outlives_the_client(kit, monkeypatch):
    drawn = iter([torch.tensor([5, -1, 2]), torch.tensor([0, 0, 0])])
    monkeypatch.setattr(noise, "noisy_counts", lambda counts, **settings: next(drawn))
    settings = {"rate_epsilon": 1.0, "rate_noise": 0.5}
    _, federation = build(kit, [silo_of(0, [0, 0, 0, 1])], **settings)
    client = federation.client(0)
    # Of four nodes: 5 / 4, nothing below 0, and a class that is not there may seem to be.
    expected = torch.tensor([1.25, 0.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(client.rates(), expected)
    torch.testing.assert_close(client.rates(), expected)
    _, other = build(kit, [silo_of(0, [0, 0, 0, 1])], **settings)
    other.client(0).load_state(client.state())
    torch.testing.assert_close(other.client(0).rates(), expected)


def test_a_node_of_another_class_moves_counts_by_no_more_than_the_noise_is_for(kit, monkeypatch):
    seen = []
    monkeypatch.setattr(noise, "noisy_counts", lambda counts, moves, **_: seen.append((counts, moves)) or counts)

    def counted(labels):
        build(kit, [silo_of(0, labels)], rate_epsilon=1.0)[1].client(0).rates()
        return seen[-1]

    labels = [0, 0, 1, 2]
    (before, moves), changes = counted(labels), []
    for node, other in itertools.product(range(4), range(3)):
        after, _ = counted([*labels[:node], other, *labels[node + 1 :]])
        changes.append(int((after - before).abs().sum()))
    assert max(changes) == moves == 2


def test_what_rates_promise_is_said_of_them_alone():
    assert FedLoGConfig().promises(3) == ""
    text = FedLoGConfig(rate_epsilon=0.5).promises(3)
    assert "ε = 0.5, 1.5 over 3 seeds" in text
    assert "weights, generators and synthetic nodes are sent without noise" in text


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


def test_a_class_absent_from_this_round_keeps_its_nodes():
    old = torch.full((4, 2), 7.0)
    total, rates = torch.ones(4, 2, dtype=torch.float64), torch.tensor([0.5, 1e-12], dtype=torch.float64)
    assert mix_nodes(total, rates, old).tolist() == [[2.0, 2.0], [2.0, 2.0], [7.0, 7.0], [7.0, 7.0]]
    assert mix_nodes(total, torch.zeros(2, dtype=torch.float64), None) is None
