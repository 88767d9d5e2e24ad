"""FedRidge with noise: what one node can move, what the sums are without it, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import ConfigError, DisclosureError, FederationError, MessageError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import noise
from graphsilo.federation.server import ServerContext
from graphsilo.methods.fedridge import private
from graphsilo.methods.fedridge import server as fedridge_server
from graphsilo.methods.fedridge.features import CONSTANT
from graphsilo.methods.fedridge.messages import CountRequest, ScoreRequest, StatisticsRequest
from graphsilo.runtime.secure import SecureSums
from kit.fedridge import METHOD, played, whole

PRIVATE = {"epsilon": 2.0, "own": False}
TINY = {
    "data.name": "citation-sbm",
    "data.generator": {"nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1},
    "partition.clients": 3,
    "method.name": "fedridge",
    "method.epsilon": 4.0,
}


@pytest.fixture
def quiet(monkeypatch):
    """No noise: what is left is what would be released."""
    monkeypatch.setattr(noise, "_normal", np.zeros)


def test_the_sums_are_of_own_rows_without_neighbours(kit, quiet):
    silos = [kit.tiny_silo(0, train=(0, 1, 2)), kit.tiny_silo(1, train=(0, 2, 3))]
    server, _ = played(kit, silos, rounds=False, **PRIVATE)
    square, cross = np.zeros((4, 4)), np.zeros((2, 4))
    for silo in silos:
        for node in silo.train:
            row = silo.graph.features[node].astype(float)
            row = np.append(row / np.linalg.norm(row), CONSTANT)
            square += np.outer(row, row)
            cross[silo.labels[node]] += row
    assert np.abs(whole(server.moments["mean/0"].double(), 4).numpy() - square).max() < 1e-5
    assert np.abs(server.products["mean/0"].double().numpy() - cross).max() < 1e-5
    assert server.releases == 2


def test_links_change_no_sum(kit, quiet):
    linked = kit.tiny_silo(0, nodes=8, train=(0, 1, 2, 3))
    edges = np.zeros((2, 0), dtype=linked.graph.edges.dtype)
    graph = replace(linked.graph, edges=edges)
    alone = replace(linked, graph=graph, evaluations=(replace(linked.seen, graph=graph),))
    found = [played(kit, [silo], rounds=False, **PRIVATE)[0] for silo in (linked, alone)]
    assert torch.equal(found[0].moments["mean/0"], found[1].moments["mean/0"])
    assert torch.equal(found[0].products["mean/0"], found[1].products["mean/0"])


def test_one_node_moves_the_released_numbers_by_no_more_than_the_bound(kit, quiet):
    whole_silo = kit.tiny_silo(0, nodes=12, train=range(8), seed=3)
    _, federation = played(kit, [whole_silo], rounds=False, **PRIVATE)
    request = private.ReleaseRequest(size=4)
    before = federation.client(0).noisy_statistics(request)
    off = torch.triu(torch.full((4, 4), math.sqrt(2.0)), 1) + torch.eye(4)
    twice = off[torch.triu_indices(4, 4)[0], torch.triu_indices(4, 4)[1]]
    moves = []
    for node in range(8):
        fewer = replace(whole_silo, train=np.delete(whole_silo.train, node))
        _, without = played(kit, [fewer], rounds=False, **PRIVATE)
        after = without.client(0).noisy_statistics(request)
        move = torch.cat([(before.moments - after.moments) * twice, (before.products - after.products).flatten()])
        moves.append(float(move.norm()))
    # A row of length² 1.01: √(1.01² + 1.01) = 1.4248.
    assert max(moves) == pytest.approx(1.42482, abs=1e-4)
    assert max(moves) <= private.SENSITIVITY + 1e-5


def test_noise_on_and_off_the_diagonal(kit):
    silo = kit.tiny_silo(0, nodes=12, train=(), seed=3)
    _, federation = played(kit, [silo], rounds=False, epsilon=1.0, own=False)
    request = private.ReleaseRequest(size=4)
    client = federation.client(0)
    again = client.noisy_statistics(request)
    assert torch.equal(
        again.moments, client.noisy_statistics(request).moments
    )  # the mean of many would have less noise
    kept = client.state()
    drawn = []
    for _ in range(400):
        client._release = None
        drawn.append(client.noisy_statistics(request))
    client.load_state(kept)
    assert torch.equal(again.products, client.noisy_statistics(request).products)
    sigma = private.SENSITIVITY / noise.mu_of(1.0, 1e-5)
    moments = torch.stack([each.moments for each in drawn])
    diagonal = [0, 4, 7, 9]
    others = [1, 2, 3, 5, 6, 8]
    assert float(moments[:, diagonal].std()) == pytest.approx(sigma, rel=0.12)
    assert float(moments[:, others].std()) == pytest.approx(sigma / math.sqrt(2), rel=0.1)
    assert float(torch.stack([each.products for each in drawn]).std()) == pytest.approx(sigma, rel=0.1)


def test_the_solution_by_hand():
    # p = 1, one client, Δ / μ = σ: (3 + 1 + σ / 2)⁻¹ 2; an eigenvalue below 0 counts as 0.
    sigma = noise.deviation(private.SENSITIVITY, 1.0)
    weights, penalty = private.solution(torch.tensor([3.0]), torch.tensor([[2.0]]), 1.0, 1)
    assert penalty == pytest.approx(1 + sigma / 2)
    assert float(weights) == pytest.approx(2 / (4 + sigma / 2))
    weights, penalty = private.solution(torch.tensor([-3.0]), torch.tensor([[2.0]]), 1.0, 4)
    assert penalty == pytest.approx(1 + sigma)
    assert float(weights) == pytest.approx(2 / (1 + sigma))


def test_predictions_use_the_links(kit, quiet):
    silo = kit.tiny_silo(0, nodes=8, train=(0, 1, 2, 3))
    _, near = played(kit, [silo], hops=2, **PRIVATE)
    _, none = played(kit, [silo], hops=0, **PRIVATE)
    assert torch.equal(near.client(0)._models["own"]["mean"], none.client(0)._models["own"]["mean"])
    data = near.client(0).data
    assert not torch.allclose(near.client(0).predict(data), none.client(0).predict(none.client(0).data))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method.features": "separate"}, "take mean or sgc"),
        ({"method.ridge": [1.0, 2.0]}, "method.epsilon is 4.0; it is used where that is none"),
        ({"method.min_count": 5}, "method.epsilon is 4.0"),
        ({"method.epsilon": 0}, "method.epsilon must be above 0"),
        ({"method.epsilon": "much"}, "method.epsilon"),
        ({"method.delta": 1.0}, "method.delta must be above 0 and below 1"),
    ],
)
def test_what_goes_with_no_noise_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        run(load_config({**TINY, **settings}).with_explicit(settings))


def test_what_has_no_noise_is_refused_whoever_asks(kit):
    """A coordinator may ask for any step of a method."""
    _, federation = played(kit, [kit.tiny_silo(0)], rounds=False, **PRIVATE)
    client = federation.client(0)
    asked = StatisticsRequest(
        kinds=["mean"], dim=3, class_weights=torch.ones(1, 2, dtype=torch.float64), size=1.0, blocks={}, constants={}
    )
    scored = ScoreRequest(candidates={"mean": torch.zeros(1, 4, 2)}, shifts=torch.zeros(1, 2).double(), dim=3)
    for step, request in ((client.count, CountRequest()), (client.statistics, asked), (client.score, scored)):
        with pytest.raises(DisclosureError, match=r"method\.epsilon"):
            step(request)


def test_an_answer_of_another_size_is_refused():
    request = private.ReleaseRequest(size=3)
    good = private.Release(moments=torch.zeros(6), products=torch.zeros(2, 3), clients=1, mu=1.0)
    good.check_answer(request)
    for bad in (
        replace(good, moments=torch.zeros(5)), replace(good, products=torch.zeros(2, 4)), replace(good, clients=9)
    ):  # fmt: skip
        with pytest.raises(MessageError, match="one client and 3 columns"):
            bad.check_answer(request)


# -- noise that silos share --------------------------------------------------------------------------------------------

SHARED = {**PRIVATE, "noise": "sum"}


def summed(kit, silos, **settings):
    """Server and federation after the first sum, which is a secure one."""
    server, federation = kit.build("fedridge", silos, **{**SHARED, **settings})
    federation.secure = SecureSums(0)
    server.set_up(federation)
    return server, federation


def test_shared_noise_leaves_the_same_sums(kit, quiet):
    silos = [kit.tiny_silo(client, train=(0, 1, 2)) for client in range(4)]
    alone, _ = played(kit, silos, rounds=False, **PRIVATE)
    together, _ = summed(kit, silos)
    for name in ("moments", "products"):
        one, other = (getattr(server, name)["mean/0"].double() for server in (alone, together))
        assert float((one - other).abs().max()) < 1e-5
    # Of four silos three are in every sum and one may look: two share the noise, and four add it.
    assert (alone.releases, together.releases) == (4, 2.0)


def test_each_silo_adds_its_share(kit):
    """1 / √3 of the deviation with three honest ones."""
    silo = kit.tiny_silo(0, nodes=12, train=(), seed=3)
    _, federation = played(kit, [silo], rounds=False, **PRIVATE)
    config = METHOD.config(epsilon=1.0, own=False, noise="sum")
    client = METHOD.client(replace(federation.client(0).context, config=config))
    request = private.SharedReleaseRequest(size=4, honest=3)
    first = client.shared_statistics(request)
    assert client.shared_statistics(replace(request, honest=2)) is first  # the mean of several would have less noise
    kept = client.state()
    drawn = []
    for _ in range(400):
        client._shared = None
        drawn.append(client.shared_statistics(request))
    client.load_state(kept)
    again = client.shared_statistics(request)
    assert torch.equal(again.moments, first.moments)
    assert (again.mu, again.honest, again.honest_silos()) == (noise.mu_of(1.0, 1e-5), 3, 3)
    sigma = private.SENSITIVITY / noise.mu_of(1.0, 1e-5) / math.sqrt(3)
    moments = torch.stack([each.numbers()[0] for each in drawn])
    assert float(moments[:, [0, 4, 7, 9]].std()) == pytest.approx(sigma, rel=0.12)
    assert float(moments[:, [1, 2, 3, 5, 6, 8]].std()) == pytest.approx(sigma / math.sqrt(2), rel=0.1)
    assert float(torch.stack([each.numbers()[1] for each in drawn]).std()) == pytest.approx(sigma, rel=0.1)


def test_a_share_of_noise_leaves_masked_or_not_at_all(kit):
    """A coordinator that asks for it by itself, or for the other kind of release, gets nothing."""
    server, federation = kit.build("fedridge", [kit.tiny_silo(client) for client in range(3)], **SHARED)
    with pytest.raises(FederationError, match="leaves in a secure sum or not at all"):
        server.set_up(federation)
    client = federation.client(0)
    with pytest.raises(DisclosureError, match=r"share noise \(method\.noise=sum\)"):
        client.noisy_statistics(private.ReleaseRequest(size=4))
    with pytest.raises(MessageError, match="2 to 4096 silos; 1 were asked for"):
        client.shared_statistics(private.SharedReleaseRequest(size=4, honest=1))
    _, other = played(kit, [kit.tiny_silo(0)], rounds=False, **PRIVATE)
    with pytest.raises(DisclosureError, match="a share of noise was asked for"):
        other.client(0).shared_statistics(private.SharedReleaseRequest(size=4, honest=2))


def test_a_coordinator_that_overstates_the_silos_opens_nothing(kit, monkeypatch):
    """It says that four honest silos share, and has four silos in all, of which it can be sure of two."""
    monkeypatch.setattr(fedridge_server, "honest", lambda parties: 4)
    with pytest.raises(
        FederationError, match="shared between 4 silos that do not collude, and a sum of 4 is sure of 2"
    ):
        summed(kit, [kit.tiny_silo(client) for client in range(4)])


def test_with_min_clients_the_noise_is_enough_for_the_smallest_sum(kit, quiet):
    # Of seven, eight and nine silos three, four and five are sure: three share, and nine add.
    server, _ = summed(kit, [kit.tiny_silo(client) for client in range(9)], min_clients=7)
    assert server.releases == 3.0


def test_shared_noise_needs_secure_sums_and_says_what_it_promises():
    settings = {**TINY, "partition.clients": 4, "method.noise": "sum"}
    with pytest.raises(ConfigError, match=r"adds only its share of the noise.*run\.secure_sums=true"):
        run(load_config(settings))
    tree = run(load_config({**settings, "run.secure_sums": True})).tree
    (said,) = [text for text in tree["warnings"] if text.startswith("Differential privacy of nodes")]
    assert "against whoever sees that sum, silos included, as long as fewer than a third" in said
    assert tree["seeds"][0]["setup"]["log"]["noise"] == pytest.approx(
        math.sqrt(2) * noise.deviation(private.SENSITIVITY, noise.mu_of(4.0, 1e-5))
    )


def test_a_run_says_what_its_epsilon_covers():
    tree = run(load_config({**TINY, "run.seeds": [0, 1]})).tree
    (said,) = [text for text in tree["warnings"] if text.startswith("Differential privacy of nodes")]
    both = noise.epsilon_of(math.sqrt(2) * noise.mu_of(4.0, 1e-5), 1e-5)
    assert f"2 seeds are 2 releases: together ε = {both:.3g}" in said
    assert tree["seeds"][0]["setup"]["log"]["noise"] == pytest.approx(
        math.sqrt(3) * noise.deviation(private.SENSITIVITY, noise.mu_of(4.0, 1e-5))
    )
    assert tree["seeds"][0]["modes"] != tree["seeds"][1]["modes"]


def test_graphs_are_refused_rather_than_sent_without_noise(kit):
    schema = Schema("graph", 3, 2)
    with pytest.raises(UnsupportedError, match="this task is about graphs"):
        METHOD.server(ServerContext(METHOD.config(epsilon=1.0), schema, {}, 0, (0,)))


def test_features_that_move_with_every_node_are_refused():
    with pytest.raises(ConfigError, match=r"Use data\.scale=none"):
        run(load_config({**TINY, "data.scale": "standard"}))


def test_settings_that_hold_with_noise():
    found = METHOD.config(epsilon=1.0, features="sgc").in_effect()
    assert (found.features, found.dim, found.label_features) == ("sgc", 256, "never")
    assert METHOD.config().in_effect() == METHOD.config()
