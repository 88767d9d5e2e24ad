"""GCFL: cuts and criteria worked out by hand, and clusters through the real machinery."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from graphsilo.errors import FederationError
from graphsilo.methods.fedavg import TrainReply
from graphsilo.methods.gcfl import min_cut
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from kit.silos import graphs_of

METHODS = ["gcfl", "gcfl_plus"]
READY = {"eps_1": 1e9, "eps_2": 0.0, "warm_up": 0}
"""Whoever can be split is."""
GIN = {"model": "gin_gcfl", "model_options": {"hidden": 4, "layers": 2}}


def planted(server, rows, sizes=None):
    """Clients with these updates."""
    server.updates = {client: torch.tensor(row) for client, row in enumerate(rows)}
    server.sizes = dict(enumerate(sizes or [1.0] * len(rows)))
    return list(server.updates)


def flipped(silo):
    """The same graph, all labels turned round."""
    return replace(silo, graph=replace(silo.graph, labels=1 - silo.graph.labels))


def test_the_cut_by_hand(kit):
    """As in the specification: two pairs of updates that point in opposite directions."""
    server, _ = kit.build("gcfl", [kit.tiny_silo(client) for client in range(4)], **READY)
    members = planted(server, [(1.0, 0.0), (1.0, 0.1), (-1.0, 0.0), (-1.0, 0.1)])
    alike = server.similarities(members)
    assert alike[0, 1] == pytest.approx(1 + 1 / np.sqrt(1.01))
    assert alike[1, 3] == pytest.approx(1 - 0.99 / 1.01)
    assert sum(alike[i, j] for i in (0, 1) for j in (2, 3)) == pytest.approx(0.0297276, abs=1e-6)
    assert server.parts(members) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("seed", range(8))
def test_cuts_are_the_cheapest_there_are(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 8))
    weights = draw.random((count, count)) * (draw.random((count, count)) < 0.8)
    weights += weights.T

    def cost(side):
        return float(weights[np.ix_(side, ~side)].sum())

    found = min_cut(weights)
    assert not found[0]
    assert found.any()
    sides = [np.isin(np.arange(count), part) for size in range(1, count) for part in combinations(range(count), size)]
    assert cost(found) == pytest.approx(min(map(cost, sides)))


def test_of_equal_cuts_the_order_decides():
    assert min_cut(np.full((4, 4), 2.0)).tolist() == [False, False, False, True]


def test_who_has_nothing_to_train_on_is_not_cut_off(kit):
    """An update of 0 has cosine 0 with all: client 3 would be the cheapest to cut off, and receive nothing any more."""
    server, _ = kit.build("gcfl", [kit.tiny_silo(client) for client in range(5)], **READY)
    members = planted(server, [(1.0, 0.0), (1.0, 0.1), (1.0, 0.2), (0.0, 0.0), (0.9, 1.0)], [1.0, 1.0, 1.0, 0.0, 1.0])
    assert server.parts(members) == [[0, 1, 2, 3], [4]]
    server.sizes[3] = 1.0
    assert server.parts(members) == [[0, 1, 2, 4], [3]]


def test_criteria_by_hand(kit):
    """(3, 4), (−3, 4) and (0, 1) with weights 1, 1 and 2: means (0, 2.5) and (0, 3), the longest 5."""
    silos = [kit.tiny_silo(client) for client in range(3)]
    for mean_by, norm in (("weight", 2.5), ("uniform", 3.0)):
        server, _ = kit.build("gcfl", silos, mean_by=mean_by)
        members = planted(server, [(3.0, 4.0), (-3.0, 4.0), (0.0, 1.0)], [1.0, 1.0, 2.0])
        assert server.mean_norm(members) == pytest.approx(norm)
        assert server.max_norm(members) == pytest.approx(5.0)
        for eps_1, eps_2, splits in ((norm + 0.1, 4.9, True), (norm - 0.1, 4.9, False), (norm + 0.1, 5.1, False)):
            server.config = server.config.model_copy(update={"eps_1": eps_1, "eps_2": eps_2})
            assert (len(server.parts(members)) == 2) is splits
            assert server.parts(members[:2]) == [members[:2]]  # two are never split


def test_who_was_never_asked_stays_with_the_first(kit):
    server, _ = kit.build("gcfl", [kit.tiny_silo(client) for client in range(5)], **READY)
    planted(server, [(1.0, 0.0), (1.0, 0.1), (-1.0, 0.0), (-1.0, 0.1)])
    assert server.parts([0, 1, 2, 3, 4]) == [[0, 1, 4], [2, 3]]


@pytest.mark.parametrize("settings", [{}, {"participation": 0.5}, {"server_lr": 0.5}, {"weight_by": "nodes"}], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_what_never_splits_and_shares_all_is_fedavg_bit_for_bit(kit, name, settings):
    silos = [kit.tiny_silo(client, train=range(2 + client)) for client in range(3)]
    plain, _ = pair = kit.build("fedavg", silos, dropout=0.5, **settings)
    play(*pair, rounds=4)
    server, _ = pair = kit.build(name, silos, dropout=0.5, eps_1=0.0, warm_up=0, **settings)
    play(*pair, rounds=4)
    assert server.clusters == [[0, 1, 2]]
    assert all(torch.equal(server.weights[0][key], value) for key, value in plain.weights.items())


def clustered(kit, name, clusters, starts, problems, sizes=None, **settings):
    """Clients that take one step of rate 0.1 down a/2 (x - c)², in these clusters, each of which begins somewhere."""
    silos = [kit.tiny_silo(client) for client in range(len(problems))]
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 1, **settings}
    server, federation = kit.build(name, silos, **settings)
    for client, (curvature, optimum) in enumerate(problems):
        samples = 1 if sizes is None else sizes[client]
        federation.client(client).trainer.objective = kit.Quadratic(curvature, optimum, samples)
    (model,) = server.weights
    server.clusters = [list(members) for members in clusters]
    server.weights = [{key: torch.full_like(value, start) for key, value in model.items()} for start in starts]
    return server, federation


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("rate", "expected"), [(1.0, [1.2, 2.4, 8 / 3, 3.6]), (0.5, [1.1, 2.2, 17 / 6, 3.8])])
def test_four_clusters_by_hand(kit, name, rate, expected):
    """From 1: 0.9 and 1.3, which counts 3 times; from 2: 2.0 and 2.8; from 3: 3.0, which counts twice, and 2.0; from 4
    3.6 alone."""
    problems = [(1.0, optimum) for optimum in (0.0, 2.0, 3.0, 4.0, 10.0, -7.0, 0.0)]
    clusters, sizes = [[0, 3], [1, 4], [2, 5], [6]], (1, 1, 2, 3, 1, 1, 1)
    server, federation = clustered(
        kit, name, clusters, [1.0, 2.0, 3.0, 4.0], problems, sizes, server_lr=rate, eps_1=0.0, warm_up=0
    )
    play(server, federation, rounds=1)
    own = [kit.value_of(weights_of(federation.client(client).model)) for client in range(7)]
    assert own == pytest.approx([0.9, 2.0, 3.0, 1.3, 2.8, 2.0, 3.6])
    assert server.clusters == clusters
    assert [kit.value_of(weights) for weights in server.weights] == pytest.approx(expected)
    given = server.aggregates()
    assert [kit.value_of(given[client]) for client in range(7)] == pytest.approx([*expected[:3], *expected])


@pytest.mark.parametrize("name", METHODS)
def test_one_of_three_clusters_splits_by_hand(kit, name):
    """Those of two do not. From 2, clients 2 and 4 have gradient -10 and 3 and 5 have 20: means 3 and 0, with the half
    of each that η_s = ½ leaves."""
    problems = [(1.0, 0.0), (1.0, 4.0), (1.0, 12.0), (2.0, -8.0), (1.0, 12.0), (2.0, -8.0), (1.0, 3.0), (1.0, -7.0)]
    more = {"window": 1} if name == "gcfl_plus" else {}
    server, federation = clustered(
        kit, name, [[0, 1], [2, 3, 4, 5], [6, 7]], [1.0, 2.0, 3.0], problems, server_lr=0.5, **READY, **more
    )
    play(server, federation, rounds=1)
    assert server.clusters == [[0, 1], [2, 4], [3, 5], [6, 7]]
    assert [kit.value_of(weights) for weights in server.weights] == pytest.approx([1.05, 2.5, 1.0, 2.75], abs=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_ends_stay_at_the_clients(kit, name):
    server, federation = pair = kit.build(name, [graphs_of(client) for client in range(3)], **GIN)
    started = [weights_of(federation.client(client).model) for client in range(3)]
    assert not torch.equal(started[0]["pre.weight"], started[1]["pre.weight"])
    play(*pair, rounds=2)
    assert set(server.weights[0]) == {key for key in started[0] if key.startswith("convolutions.")}
    for client in map(federation.client, federation.clients):
        before = {key: value.clone() for key, value in weights_of(client.model).items()}
        client.download(server.weights[0])
        after = weights_of(client.model)
        assert {key for key in before if torch.equal(before[key], after[key])} == set(before) - set(server.weights[0])
        assert all(torch.equal(after[key], value) for key, value in server.weights[0].items())


@pytest.mark.parametrize("name", METHODS)
def test_two_groups_that_disagree_are_told_apart(kit, name):
    """Opposite labels on the same graphs; by norms of gradients for GCFL+, whose groups have other rates of descent."""
    one = [kit.tiny_silo(0), kit.tiny_silo(0)]
    silos = [
        replace(silo, client=place) for place, silo in enumerate((one[0], flipped(one[0]), one[1], flipped(one[1])))
    ]
    more = {"window": 2} if name == "gcfl_plus" else {}
    server, federation = kit.build(name, silos, **READY, **more)
    play(server, federation, rounds=2)
    assert server.clusters == [[0, 2], [1, 3]]
    given = server.aggregates()
    assert given[0] is given[2]
    assert not torch.equal(given[0]["layers.0.weight"], given[1]["layers.0.weight"])
    assert server.log["clusters"] == 2


def test_no_cluster_splits_in_the_warm_up_and_none_of_two(kit):
    silos = [kit.tiny_silo(client) for client in range(6)]
    server, federation = kit.build("gcfl", silos, **{**READY, "warm_up": 2})
    counts = []
    for number in range(1, 8):
        kit.rounds(server, federation, start=number)
        counts.append(len(server.clusters))
        assert sorted(client for members in server.clusters for client in members) == list(range(6))
    assert counts[:3] == [1, 1, 2]
    assert counts == sorted(counts)
    assert max(map(len, server.clusters)) <= 2


def test_children_begin_with_their_parents_weights_and_their_own_mean(kit):
    """The mean over a child's members of what they trained, which all began with the parent's weights."""
    silos = [kit.tiny_silo(client) for client in range(4)]
    server, federation = kit.build("gcfl", silos, **READY)
    play(server, federation, rounds=1)
    assert len(server.clusters) == 2
    for members, weights in zip(server.clusters, server.weights, strict=True):
        own = [weights_of(federation.client(client).model)["layers.0.weight"] for client in members]
        torch.testing.assert_close(weights["layers.0.weight"], torch.stack(own).mean(0))


def test_a_cluster_with_nothing_to_train_on_keeps_its_weights(kit):
    silos = [kit.tiny_silo(client, train=()) for client in range(3)]
    server, federation = kit.build("gcfl", silos, **READY)
    before = {key: value.clone() for key, value in server.weights[0].items()}
    play(server, federation, rounds=2)
    assert all(torch.equal(server.weights[0][key], value) for key, value in before.items())


def test_a_weight_below_0_is_refused(kit, monkeypatch):
    server, federation = kit.build("gcfl", [kit.tiny_silo(client) for client in range(2)])
    monkeypatch.setattr(type(federation.client(1)), "weight", property(lambda self: -2.0 if self.id else 1.0))
    with pytest.raises(FederationError, match=r"client 1.*num_samples holds -2, and counts"):
        play(server, federation, rounds=1)
    assert TrainReply(weights={}, num_samples=0.0).num_samples == 0
