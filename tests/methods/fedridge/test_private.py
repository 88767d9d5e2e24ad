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
from graphsilo.federation import noise, release
from graphsilo.federation.registry import load
from graphsilo.federation.release import Release, ReleaseRequest
from graphsilo.federation.server import ServerContext
from graphsilo.methods.fedridge import private
from graphsilo.methods.fedridge.features import CONSTANT
from graphsilo.methods.fedridge.messages import CountRequest, ScoreRequest, StatisticsRequest
from graphsilo.runtime.secure import SecureSums
from kit.fedridge import METHOD, played, whole

PRIVATE = {"epsilon": 2.0, "own": False}
REQUEST = ReleaseRequest(size=private.size(4, 2), honest=1)
"""For four columns and two classes."""


def numbers(answer):
    """What a client released, in the units of the sums."""
    return answer.numbers * noise.grid(private.SENSITIVITY, answer.numbers.numel())


def deviation(epsilon, releases=1):
    return math.sqrt(releases) * noise.deviation(private.SENSITIVITY, noise.mu_of(epsilon, 1e-5))


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
            row = row / np.linalg.norm(row)
            row -= 0.9 * row.mean()
            row = np.append(row / np.linalg.norm(row), CONSTANT)
            square += np.outer(row, row)
            cross[silo.labels[node]] += row
    assert np.abs(whole(server.moments["mean+noise/0"].double(), 4).numpy() - square).max() < 1e-5
    assert np.abs(server.products["mean+noise/0"].double().numpy() - cross).max() < 1e-5
    assert server.sigma == pytest.approx(deviation(2.0, 2))


def test_links_change_no_sum(kit, quiet):
    linked = kit.tiny_silo(0, nodes=8, train=(0, 1, 2, 3))
    edges = np.zeros((2, 0), dtype=linked.graph.edges.dtype)
    graph = replace(linked.graph, edges=edges)
    alone = replace(linked, graph=graph, evaluations=(replace(linked.seen, graph=graph),))
    found = [played(kit, [silo], rounds=False, **PRIVATE)[0] for silo in (linked, alone)]
    assert torch.equal(found[0].moments["mean+noise/0"], found[1].moments["mean+noise/0"])
    assert torch.equal(found[0].products["mean+noise/0"], found[1].products["mean+noise/0"])


def test_one_node_moves_the_released_numbers_by_no_more_than_the_bound(kit, quiet):
    whole_silo = kit.tiny_silo(0, nodes=12, train=range(8), seed=3)
    _, federation = played(kit, [whole_silo], rounds=False, **PRIVATE)
    before = numbers(federation.client(0).noisy_statistics(REQUEST))
    moves = []
    for node in range(8):
        fewer = replace(whole_silo, train=np.delete(whole_silo.train, node))
        _, without = played(kit, [fewer], rounds=False, **PRIVATE)
        moves.append(float((before - numbers(without.client(0).noisy_statistics(REQUEST))).norm()))
    # A row of length² 1.01: √(0.65² · 1.01² + 1.01) = 1.2004.
    assert max(moves) == pytest.approx(1.20041, abs=1e-4)
    assert max(moves) <= private.SENSITIVITY + 1e-5


def drawn(client, request, count=400):
    """Many releases of the same numbers, in parts: [count, p (p + 1) / 2] and [count, C, p]."""
    found = []
    for _ in range(count):
        client.released.load_state({})
        found.append(private.parts(numbers(client.noisy_statistics(request)), 2, 4))
    return [torch.stack(each) for each in zip(*found, strict=True)]


def test_noise_on_and_off_the_diagonal(kit):
    silo = kit.tiny_silo(0, nodes=12, train=(), seed=3)
    _, federation = played(kit, [silo], rounds=False, epsilon=1.0, own=False)
    client = federation.client(0)
    first = client.noisy_statistics(REQUEST)
    assert torch.equal(first.numbers, client.noisy_statistics(REQUEST).numbers)  # the mean of many has less noise
    kept = client.state()
    moments, products = drawn(client, REQUEST)
    client.load_state(kept)
    assert torch.equal(first.numbers, client.noisy_statistics(REQUEST).numbers)
    sigma = deviation(1.0)
    assert float(moments[:, [0, 4, 7, 9]].std()) == pytest.approx(sigma / 0.65, rel=0.12)
    assert float(moments[:, [1, 2, 3, 5, 6, 8]].std()) == pytest.approx(sigma / 0.65 / math.sqrt(2), rel=0.1)
    assert float(products.std()) == pytest.approx(sigma, rel=0.1)


def test_the_solution_by_hand():
    # p = 1: (3 + 1 + σ / 0.65 / 4)⁻¹ 2; an eigenvalue below 0 counts as 0.
    weights, penalty = private.solution(torch.tensor([3.0]), torch.tensor([[2.0]]), 1.04)
    assert penalty == pytest.approx(1.4)
    assert float(weights) == pytest.approx(2 / 4.4)
    weights, penalty = private.solution(torch.tensor([-3.0]), torch.tensor([[2.0]]), 2.08)
    assert penalty == pytest.approx(1.8)
    assert float(weights) == pytest.approx(2 / 1.8)


def test_predictions_use_the_links(kit, quiet):
    silo = kit.tiny_silo(0, nodes=8, train=(0, 1, 2, 3))
    _, near = played(kit, [silo], hops=2, **PRIVATE)
    _, none = played(kit, [silo], hops=0, **PRIVATE)
    assert torch.equal(near.client(0)._models["own"]["mean+noise"], none.client(0)._models["own"]["mean+noise"])
    data = near.client(0).data
    assert not torch.allclose(near.client(0).predict(data), none.client(0).predict(none.client(0).data))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method.balance": [0.5, 1.0]}, "method.epsilon is 4.0; it is used where that is none"),
        ({"method.min_count": 5}, "method.epsilon is 4.0"),
        ({"method.epsilon": 0}, "method.epsilon must be at least 1e-06"),
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
    scored = ScoreRequest(candidates={"mean": torch.zeros(1, 4, 2)}, shifts=torch.zeros(1, 2).double(), dim=3, size=1.0)
    for step, request in ((client.count, CountRequest()), (client.statistics, asked), (client.score, scored)):
        with pytest.raises(DisclosureError, match=r"method\.epsilon"):
            step(request)


def test_an_answer_of_another_size_is_refused():
    good = Release(numbers=torch.zeros(18, dtype=torch.int64), clients=1, mu=1.0, honest=1)
    good.check_answer(REQUEST)
    for bad in (replace(good, numbers=good.numbers[1:]), replace(good, clients=9)):
        with pytest.raises(MessageError, match="18 of one client were asked for"):
            bad.check_answer(REQUEST)


def test_no_second_release_leaves_whatever_it_is_called(kit):
    _, federation = played(kit, [kit.tiny_silo(0)], rounds=False, **PRIVATE)
    released = federation.client(0).released
    with pytest.raises(DisclosureError, match="promise that 1 answers with noise leave"):
        released.answer(Release, 1, lambda: torch.zeros(18), number=2)


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
        one, other = (getattr(server, name)["mean+noise/0"].double() for server in (alone, together))
        assert float((one - other).abs().max()) < 1e-5
    # Of four silos three are in every sum and one may look: two share the noise, and four add it.
    assert alone.sigma == pytest.approx(deviation(2.0, 4))
    assert together.sigma == pytest.approx(deviation(2.0, 2))


def test_each_silo_adds_its_share(kit):
    """1 / √3 of the deviation with three honest ones."""
    silo = kit.tiny_silo(0, nodes=12, train=(), seed=3)
    _, federation = played(kit, [silo], rounds=False, **PRIVATE)
    config = METHOD.config(epsilon=1.0, own=False, noise="sum")
    client = METHOD.client(replace(federation.client(0).context, config=config))
    request = replace(REQUEST, honest=3)
    first = client.noisy_statistics(request)
    again = client.noisy_statistics(replace(REQUEST, honest=2))
    assert torch.equal(again.numbers, first.numbers)  # the mean of several would have less noise
    assert (again.mu, again.honest, again.honest_silos()) == (noise.mu_of(1.0, 1e-5), 3, 3)
    kept = client.state()
    moments, products = drawn(client, request)
    client.load_state(kept)
    assert torch.equal(client.noisy_statistics(request).numbers, first.numbers)
    sigma = deviation(1.0) / math.sqrt(3)
    assert float(moments[:, [0, 4, 7, 9]].std()) == pytest.approx(sigma / 0.65, rel=0.12)
    assert float(moments[:, [1, 2, 3, 5, 6, 8]].std()) == pytest.approx(sigma / 0.65 / math.sqrt(2), rel=0.1)
    assert float(products.std()) == pytest.approx(sigma, rel=0.1)


def test_a_share_of_noise_leaves_masked_or_not_at_all(kit):
    """A coordinator that asks for it by itself, or for the other kind of release, gets nothing."""
    server, federation = kit.build("fedridge", [kit.tiny_silo(client) for client in range(3)], **SHARED)
    with pytest.raises(FederationError, match="leaves in a secure sum or not at all"):
        server.set_up(federation)
    client = federation.client(0)
    with pytest.raises(DisclosureError, match=r"all of the noise was asked for.*method\.noise=sum"):
        client.noisy_statistics(REQUEST)
    with pytest.raises(MessageError, match="2 to 4096 silos; 5000 were asked for"):
        client.noisy_statistics(replace(REQUEST, honest=5000))
    _, other = played(kit, [kit.tiny_silo(0)], rounds=False, **PRIVATE)
    with pytest.raises(DisclosureError, match=r"a share of noise was asked for.*method\.noise=silo"):
        other.client(0).noisy_statistics(replace(REQUEST, honest=2))


def test_a_coordinator_that_overstates_the_silos_opens_nothing(kit, monkeypatch):
    """It says that four honest silos share, and has four silos in all, of which it can be sure of two."""
    monkeypatch.setattr(release, "count_honest", lambda parties: 4)
    with pytest.raises(
        FederationError, match="shared between 4 silos that do not collude, and a sum of 4 is sure of 2"
    ):
        summed(kit, [kit.tiny_silo(client) for client in range(4)])


def test_with_min_clients_the_noise_is_enough_for_the_smallest_sum(kit, quiet):
    # Of seven, eight and nine silos three, four and five are sure: three share, and nine add.
    server, _ = summed(kit, [kit.tiny_silo(client) for client in range(9)], min_clients=7)
    assert server.sigma == pytest.approx(deviation(2.0, 3))


def test_shared_noise_needs_secure_sums_and_says_what_it_promises():
    settings = {**TINY, "partition.clients": 4, "method.noise": "sum"}
    with pytest.raises(ConfigError, match=r"adds only its share of the noise.*run\.secure_sums=true"):
        run(load_config(settings))
    tree = run(load_config({**settings, "run.secure_sums": True})).tree
    (said,) = [text for text in tree["warnings"] if text.startswith("Differential privacy of nodes")]
    assert "against whoever sees that sum, silos included, as long as fewer than a third" in said
    assert tree["seeds"][0]["setup"]["log"]["noise"] == pytest.approx(deviation(4.0, 2))


def test_a_run_says_what_its_epsilon_covers(known_noise):
    tree = run(load_config({**TINY, "run.seeds": [0, 1]})).tree
    (said,) = [text for text in tree["warnings"] if text.startswith("Differential privacy of nodes")]
    both = noise.epsilon_of(math.sqrt(2) * noise.mu_of(4.0, 1e-5), 1e-5)
    assert f"2 seeds are 2 releases: together ε = {both:.3g}" in said
    assert tree["seeds"][0]["setup"]["log"]["noise"] == pytest.approx(deviation(4.0, 3))
    assert tree["seeds"][0]["modes"] != tree["seeds"][1]["modes"]


def test_a_large_epsilon_or_delta_and_resuming_are_spoken_of():
    assert "ε = 50 is large" in METHOD.config(epsilon=50.0).promises(1)
    usual, large = (METHOD.config(epsilon=4.0, delta=delta).promises(1) for delta in (1e-5, 0.5))
    assert "δ = 0.5 is large" in large
    assert "is large" not in usual
    assert "sent again with new noise" in usual


def test_a_run_that_noise_drowns_is_told_so():
    """Four columns and two classes are 18 numbers. Three silos with noise of their own: √3 times σ, of which one row's
    part is 1; 50 rows are 50 at most."""
    config, schema = METHOD.config(epsilon=1.0, private_dim=3), Schema("node", 3, 2)
    assert config.numbers(schema) == private.size(4, 2) == 18
    ratio = math.sqrt(3) * (1 + noise.ROUNDING) / noise.mu_of(1.0, 1e-5) * math.sqrt(18) / 50
    assert config.noise_ratio(18, 50, 3) == pytest.approx(ratio)
    assert config.explain_no_effect(schema, 50, 3, "projected") == ""  # 0.55
    assert "is 1.37 times as large as the sums under it can be: 20 training items" in config.explain_no_effect(
        schema, 20, 3, "projected"
    )
    assert METHOD.config(private_dim=3).explain_no_effect(schema, 1, 3, "projected") == ""
    warned = run(load_config({**TINY, "method.epsilon": 1e-6})).tree["warnings"]
    (text,) = [text for text in warned if "times as large as the sums" in text]
    assert text.endswith("a smaller method.private_dim or a larger method.epsilon.")


def test_noise_too_large_for_numbers_is_refused_when_settings_are_read():
    METHOD.config(epsilon=1e-6, delta=1e-6)
    METHOD.config(epsilon=1.0, delta=1e-300)
    with pytest.raises(ConfigError, match=r"epsilon=1e-06 with method\.delta=1e-31 asks for noise of 9\.97e\+06 times"):
        METHOD.config(epsilon=1e-6, delta=1e-31)
    with pytest.raises(ConfigError, match="and 100 releases asks for"):
        load("dp_fedavg").config(epsilon=1e-6, delta=1e-6)


def test_graphs_are_refused_rather_than_sent_without_noise(kit):
    schema = Schema("graph", 3, 2)
    with pytest.raises(UnsupportedError, match="this task is about graphs"):
        METHOD.server(ServerContext(METHOD.config(epsilon=1.0), schema, {}, 0, (0,)))


def test_features_that_move_with_every_node_are_refused():
    with pytest.raises(ConfigError, match=r"Use data\.scale=none"):
        run(load_config({**TINY, "data.scale": "standard"}))


@pytest.mark.parametrize(("features", "named"), [
    ("auto", "mean+noise"), ("separate", "mean+noise"), ("sgc", "sgc+noise"),
])  # fmt: skip
def test_which_features_leave_with_noise(features, named):
    config = METHOD.config(epsilon=1.0, features=features, dim=7, private_dim=5)
    assert config.released == named
    recipe = config.recipe(named, 0, 7, Schema("node", 9, 2))
    assert (recipe.dim, recipe.random, recipe.centred) == (5, 0, True)
    assert config.numbers(Schema("node", 9, 2)) == private.size(6, 2)


def test_a_class_of_few_nodes_is_in_the_sums_whatever_the_settings_say(kit, quiet):
    """One node more would bring in all rows of a class that reaches the least count."""
    silo = kit.tiny_silo(0, train=(0, 1, 2))
    found = [played(kit, [silo], rounds=False, **PRIVATE, min_count=least)[0].products for least in (1, 3)]
    assert torch.equal(found[0]["mean+noise/0"], found[1]["mean+noise/0"])


def scores(client, model, data):
    """What a model's parts say of all nodes, added up."""
    return sum(client._features(data, name).times(weights) for name, weights in model.items())


def test_what_stays_at_the_silo_uses_all_features_there_are(kit, quiet):
    """Ridges of what the common model lacks: (K + μ I)⁻¹ (Y − φ W), on features that never left."""
    silo = kit.tiny_silo(0, nodes=12, train=range(6), seed=3)
    settings = {"epsilon": 2.0, "features": "separate", "label_features": "never", "own_ridge": (2.0,)}
    _, federation = played(kit, [silo], **settings)
    client = federation.client(0)
    base, train = client._models["common"]["mean+noise"], torch.tensor(range(6))
    rows = torch.cat([part for _, part in client._features(client.data, "separate").blocks(silo.train)])
    known = client._features(client.data, "mean+noise").times(base, silo.train).double()
    target = torch.eye(2, dtype=torch.float64)[torch.from_numpy(silo.labels[silo.train])]
    wanted = rows.t() @ torch.linalg.solve(rows @ rows.t() + 2 * torch.eye(len(train)), target - known)
    changes, alone = client._fit_own(
        client._features(client.data, "separate"), torch.ones(2, dtype=torch.float64), lambda _: known
    )
    assert torch.allclose(changes[0], wanted, atol=1e-8)
    assert len(alone) == 7
    own = client._models["own"]
    said = torch.log_softmax(client._sharpness["own"][next(iter(own))] * scores(client, own, client.data), dim=1)
    assert torch.allclose(client.predict(client.data), said, atol=1e-6)
    saved, before = client.final_models(), client.predict(client.data)
    client.load_final(saved)
    assert torch.equal(client.predict(client.data), before)


def test_elsewhere_the_own_model_has_no_label_features(kit):
    silo = kit.tiny_silo(0, nodes=12, train=range(6), seed=3)
    client = played(kit, [silo], **PRIVATE)[1].client(0)
    other = client.tensors(replace(silo.graph, labels=silo.graph.labels.copy()))
    for own, here, elsewhere in (
        (["mean+labels", "mean", "mean+noise"], ["mean+labels", "mean+noise"], ["mean", "mean+noise"]),
        (["separate+labels", "mean"], ["separate+labels"], ["mean"]),
        (["mean+noise"], ["mean+noise"], ["mean+noise"]),
    ):
        assert client._fitting(dict.fromkeys(own), client.data) == here
        assert client._fitting(dict.fromkeys(own), other) == elsewhere


@pytest.mark.slow
def test_no_row_is_longer_than_the_bound_however_wide():
    # float32 loses small squares beside a large one, so that rows are scaled to more than the length 1.
    class Rows:
        width = 6001

        def blocks(self, items, dtype):
            row = np.append(np.full(6000, 2e-4), CONSTANT)
            row[0] = 1.0
            yield items, torch.from_numpy(row[None])

    found = private.weighted_sums(Rows(), np.array([0]), np.array([0]), 1)
    assert found.norm() <= private.SENSITIVITY * (1 + 1e-12)
