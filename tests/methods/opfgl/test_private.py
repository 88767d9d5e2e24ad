"""O-pFGL with noise: what one node can move, what is released without it, and what the surrogate is fit to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.errors import ConfigError, DisclosureError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import noise
from graphsilo.federation.release import Noisy, Release, ReleaseRequest
from graphsilo.methods.opfgl import private
from graphsilo.methods.opfgl.messages import StatisticsRequest
from kit.opfgl import SHORT, blocks, federation_of

PRIVATE = {"epsilon": 2.0}


@pytest.fixture
def quiet(monkeypatch):
    """No noise: what is left is what would be released."""
    monkeypatch.setattr(noise, "_normal", np.zeros)


def numbers(answer):
    return answer.numbers * noise.grid(private.SENSITIVITY, answer.numbers.numel())


def test_class_totals_by_hand():
    features = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0], [9.0, 9.0]], dtype=np.float32)
    found = private.class_totals(features, np.array([0, 1, 2]), np.array([0, 0, 1, 0]), 2)
    # Rows of length 1: (.6, .8), (0, 0) and (0, 1); the last node is not among the training nodes.
    assert found[:2].tolist() == [2.0, 1.0]
    torch.testing.assert_close(found[2:6].view(2, 2), torch.tensor([[0.6, 0.8], [0.0, 1.0]]).double())
    torch.testing.assert_close(found[6:].view(2, 2), torch.tensor([[0.36, 0.64], [0.0, 1.0]]).double())


def test_one_node_moves_what_is_released_by_no_more_than_the_bound(quiet):
    silo = blocks()[0]
    request = ReleaseRequest(size=private.size(3, 3), honest=1)
    _, federation = federation_of([silo], **PRIVATE)
    before = numbers(federation.client(0).noisy_statistics(request))
    moves = []
    for node in range(len(silo.train)):
        fewer = replace(silo, train=np.delete(silo.train, node))
        _, without = federation_of([fewer], **PRIVATE)
        moves.append(float((before - numbers(without.client(0).noisy_statistics(request))).norm()))
    # 1 + |x|² + Σ x⁴ is 3 where a row has a single entry.
    assert 1.0 < max(moves) <= math.sqrt(3.0) + 1e-4
    alone = private.class_totals(np.eye(2, dtype=np.float32)[:1], np.array([0]), np.array([0]), 1)
    assert float(alone.norm()) == pytest.approx(math.sqrt(3.0))


def test_links_change_nothing_that_is_released(quiet):
    silo = blocks()[0]
    graph = replace(silo.graph, edges=np.zeros((2, 0), dtype=silo.graph.edges.dtype))
    alone = replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),))
    request = ReleaseRequest(size=private.size(3, 3), honest=1)
    one, other = (federation_of([held], **PRIVATE)[1].client(0).noisy_statistics(request) for held in (silo, alone))
    assert torch.equal(one.numbers, other.numbers)


def test_the_statistics_of_what_came_by_hand():
    # σ = 1: the class of 2 may be noise and has none. 10 nodes, Σ x = 5 and 0, Σ x² = 4 and 2.
    came = torch.tensor([10.2, 2.0, 5.0, 0.0, 9.0, 9.0, 4.0, 2.0, 9.0, 9.0]).double()
    found = private.statistics_of(Noisy(came, 1.0, 1.0), classes=2, features=2, levels=2)
    assert found.counts.tolist() == [10.0, 0.0]
    torch.testing.assert_close(found.mean[0], torch.tensor([0.5, 0.0, 0.5, 0.0]).double())
    # 4 / 10 - 0.25 + (1 / 10)² and 2 / 10 + (1 / 10)².
    torch.testing.assert_close(found.variance[0], torch.tensor([0.16, 0.21, 0.16, 0.21]).double())
    assert not found.mean[1].any()
    assert not found.variance[1].any()


def test_the_usual_length_leaves_rows_of_zeros_out():
    features = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    assert private.usual_length(features) == 3.0
    assert private.usual_length(np.zeros((2, 3), dtype=np.float32)) == 1.0


def test_features_of_the_surrogate_get_the_length_of_own_rows(quiet):
    """Twice as long features of all silos lead to the same surrogate, and to one of twice its features at a client."""
    taken = []
    for factor in (1.0, 2.0):
        silos = []
        for silo in blocks():
            graph = replace(silo.graph, features=silo.graph.features * np.float32(factor))
            silos.append(replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),)))
        server, federation = federation_of(silos, epsilon=1e6)
        federation.at("setup", 0)
        server.set_up(federation)
        client = federation.client(0)
        client._train_on_surrogate = lambda classifier, surrogate: taken.append(surrogate.features)
        federation.at("round", 1)
        server.round(federation, 1)
    torch.testing.assert_close(taken[1], 2.0 * taken[0])


def test_without_noise_nothing_is_sent_whoever_asks():
    _, federation = federation_of(blocks(), **PRIVATE)
    with pytest.raises(DisclosureError, match="has no noise"):
        federation.client(0).statistics(StatisticsRequest())
    _, plain = federation_of(blocks())
    with pytest.raises(DisclosureError, match="settings have none"):
        plain.client(0).noisy_statistics(ReleaseRequest(size=1, honest=1))


def test_a_release_is_made_once_and_outlives_the_client():
    request = ReleaseRequest(size=private.size(3, 3), honest=1)
    _, federation = federation_of(blocks(), **PRIVATE)
    client = federation.client(0)
    first = client.noisy_statistics(request)
    assert isinstance(first, Release)
    assert torch.equal(first.numbers, client.noisy_statistics(request).numbers)
    _, other = federation_of(blocks(), **PRIVATE)
    other.client(0).load_state(client.state())
    assert torch.equal(first.numbers, other.client(0).noisy_statistics(request).numbers)


TINY = {
    "data.name": "citation-sbm",
    "data.generator": {"nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1},
    "partition.clients": 4,
    "method.name": "opfgl",
    "method.epsilon": 4.0,
    **{f"method.{name}": value for name, value in SHORT.items() if name != "links"},
}


def test_a_run_says_what_it_promises_and_silos_can_share_the_noise():
    alone = run(load_config(TINY)).tree
    together = run(load_config({**TINY, "method.noise": "sum", "run.secure_sums": True})).tree
    for tree, releases in ((alone, 4), (together, 2)):
        (said,) = [text for text in tree["warnings"] if text.startswith("Differential privacy of nodes")]
        assert "ε = 4" in said
        sigma = math.sqrt(releases) * noise.deviation(private.SENSITIVITY, noise.mu_of(4.0, 1e-5))
        assert tree["seeds"][0]["setup"]["log"]["noise"] == pytest.approx(sigma)


def test_what_the_sums_without_noise_have_is_refused():
    for name, value in (("method.expand", False), ("method.min_count", 5)):
        with pytest.raises(ConfigError, match=r"method\.epsilon is 4\.0"):
            run(load_config({**TINY, name: value}).with_explicit({name: value}))
