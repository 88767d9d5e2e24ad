"""DP-FedAvg: how far a silo can move the model, what noise is added, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphsilo.errors import ConfigError, DisclosureError, FederationError
from graphsilo.experiments.runner import run
from graphsilo.federation import noise, registry
from graphsilo.federation.policy import DisclosurePolicy
from graphsilo.methods.dp_fedavg import NoisyRequest
from graphsilo.methods.fedavg import TrainRequest
from graphsilo.runtime.secure import SecureSums
from graphsilo.testing import conformance
from graphsilo.training.local import weights_of
from kit.messages import check_sent

METHOD = registry.load("dp_fedavg")
TWO = [(1.0, 0.0), (3.0, 4.0)]
FOUR = [*TWO, (1.0, 0.0), (3.0, 4.0)]
ROOT = math.sqrt(26)
"""The model has 26 weights, which all move alike: a change of x in each is x √26 long."""
NOISY = {"epsilon": 8.0, "max_noise": 1e9}


@pytest.fixture
def quiet(monkeypatch):
    """No noise: what is left is what would be sent."""
    monkeypatch.setattr(noise, "_normal", np.zeros)


def one_round(server, federation):
    """The weights after it, in one vector."""
    federation.at("round", 1)
    server.round(federation, 1)
    return torch.cat([value.flatten() for value in server.weights.values()]).numpy()


def secured(kit, clients, **settings):
    server, federation = kit.quadratic("dp_fedavg", clients, **{**NOISY, **settings})
    federation.secure = SecureSums(0)
    return server, federation


def test_a_change_is_shortened_to_the_clip(kit):
    # From 1: two steps of 0.1 lead to 0.81 and to 2.53, changes of -0.19 and 1.53.
    free = one_round(*kit.quadratic("dp_fedavg", TWO, clip=10.0 * ROOT))
    assert free == pytest.approx(1 + (-0.19 + 1.53) / 2, abs=1e-6)
    half = one_round(*kit.quadratic("dp_fedavg", TWO, clip=0.5 * ROOT))
    assert half == pytest.approx(1 + (-0.19 + 0.5) / 2, abs=1e-6)
    tight = one_round(*kit.quadratic("dp_fedavg", TWO, clip=0.1 * ROOT))
    assert tight == pytest.approx(1.0, abs=1e-6)


def test_the_clip_is_of_all_weights_together(kit):
    server, federation = kit.build("dp_fedavg", [kit.tiny_silo(0)], clip=0.01)
    client = federation.client(0)
    before = {name: value.clone() for name, value in server.weights.items()}
    after = client.train(TrainRequest(weights=server.weights)).weights
    moved = torch.cat([(after[name] - before[name]).double().flatten() for name in before])
    assert len(before) > 1
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize("settings", [{}, {"participation": 0.5}, {"server_lr": 0.5}], ids=str)
def test_with_a_long_clip_and_no_noise_it_is_fedavg_in_every_round(settings):
    def scores(name, **more):
        tree = run(conformance.small_config(registry.load(name), {**settings, **more})).tree["seeds"][0]
        return [[row["validation"], row["test"], row["modes"]] for row in tree["rounds"]]

    assert scores("dp_fedavg", clip=1e9) == scores("fedavg", weight_by="uniform")
    assert scores("dp_fedavg", clip=0.01) != scores("fedavg", weight_by="uniform")


def test_noise_and_sums_aside_the_noisy_round_is_the_same(kit, quiet):
    plain = one_round(*kit.quadratic("dp_fedavg", FOUR, clip=0.5))
    noisy = one_round(*secured(kit, FOUR, clip=0.5))
    alone = one_round(*kit.quadratic("dp_fedavg", FOUR, clip=0.5, noise="silo", **NOISY))
    assert noisy == pytest.approx(plain, abs=1e-6)
    assert alone == pytest.approx(plain, abs=1e-6)


def test_the_noise_of_a_round(kit):
    """Of four silos two share: the sum has twice the variance that one release of clip / μ needs. Within seven standard
    errors, as the noise is new every time."""
    sigma = math.sqrt(2) * noise.deviation(0.5, noise.mu_of(8.0, 1e-5) / math.sqrt(4))
    found = []
    for _ in range(20):
        server, federation = secured(kit, [(0.0, 0.0)] * 4, clip=0.5, rounds=4)
        found.append(one_round(server, federation) - 1.0)
    assert np.std(found) == pytest.approx(sigma / 4, rel=7 / math.sqrt(2 * 26 * 20))
    assert abs(np.mean(found)) < 7 * sigma / 4 / math.sqrt(26 * 20)
    assert server.log["noise"] == pytest.approx(sigma * ROOT / 4)


def test_what_all_rounds_tell_is_the_epsilon_that_was_asked_for():
    config = METHOD.config(epsilon=2.0, rounds=9)
    assert config.mu == pytest.approx(noise.mu_of(2.0, 1e-5) / 3)
    assert noise.epsilon_of(noise.compose([config.mu] * 9), 1e-5) == pytest.approx(2.0)
    text = config.promises(1)
    assert "Differential privacy of silos" in text
    assert "ε = 2 and" in text
    other = noise.epsilon_of(2 * noise.mu_of(2.0, 1e-5), 1e-5)  # a change and its opposite are 2 S apart
    assert f"a single node included, it is ε = {other:.3g}" in text


def test_more_answers_than_promised_do_not_leave(kit):
    _, federation = kit.quadratic("dp_fedavg", FOUR, noise="silo", rounds=2, **NOISY)
    client = federation.client(0)
    request = NoisyRequest(weights=weights_of(client.model), honest=1)
    found = []
    for number in (1, 1, 2):
        client.round = number
        found.append(client.train_noisily(request).numbers)
    assert torch.equal(found[0], found[1])  # the same round, asked for again
    assert not torch.equal(found[1], found[2])
    client.round = 3
    with pytest.raises(DisclosureError, match="promise that 2 answers with noise leave"):
        client.train_noisily(request)
    with pytest.raises(DisclosureError, match="has no noise"):
        client.train(TrainRequest(weights=request.weights))


def test_a_share_of_noise_does_not_leave_in_plain(kit):
    server, federation = kit.quadratic("dp_fedavg", FOUR, **NOISY)
    with pytest.raises(FederationError, match="leaves in a secure sum or not at all"):
        one_round(server, federation)


def test_a_run_that_would_drown_is_refused_with_the_ratio(kit):
    # Four silos of which two share, one round: σ = √2 / μ on each of 26 weights, and a mean of four.
    ratio = ROOT * math.sqrt(2) * noise.deviation(1.0, noise.mu_of(8.0, 1e-5)) / 4
    server, _ = kit.quadratic("dp_fedavg", FOUR, epsilon=8.0, rounds=1, max_noise=2.0)
    assert server.noise_ratio() == pytest.approx(ratio)
    with pytest.raises(
        ConfigError, match=r"times as long as the largest change.*rounds=100, 4 silos in each, 26 weights"
    ):
        kit.quadratic("dp_fedavg", FOUR, epsilon=8.0, rounds=100, max_noise=10 * ratio - 1e-6)
    kit.quadratic("dp_fedavg", FOUR, epsilon=8.0, rounds=100, max_noise=10 * ratio + 1e-6)


def test_a_client_without_training_items_adds_noise_and_nothing_else(kit, quiet):
    silos = [kit.tiny_silo(client, train=() if client else (0, 1, 2)) for client in range(2)]
    server, federation = kit.build("dp_fedavg", silos, noise="silo", **NOISY)
    federation.at("round", 1)
    client = federation.client(1)
    client.round = 1
    answer = client.train_noisily(NoisyRequest(weights=server.weights, honest=1))
    assert not answer.numbers.any()
    assert answer.clients == 1


def test_a_model_that_is_not_finite_afterwards_is_sent_as_no_change(kit, quiet):
    """Its length cannot be bounded, and no noise hides numbers that are none, whatever a coordinator sends."""
    server, federation = kit.build("dp_fedavg", [kit.tiny_silo(0)], noise="silo", **NOISY)
    client = federation.client(0)
    client.round = 1
    huge = {name: torch.full_like(tensor, 1e30) for name, tensor in server.weights.items()}
    assert not client.train_noisily(NoisyRequest(weights=huge, honest=1)).numbers.any()
    assert not all(bool(tensor.isfinite().all()) for tensor in weights_of(client.model).values())


def test_the_silos_owner_counts_what_one_node_may_turn_round():
    """Whether the silo takes part moves the sum by the clip, other data of it by twice as much."""
    config = METHOD.config(epsilon=8.0, noise="silo", max_noise=1e9, rounds=4)
    assert config.account == 2 * config.mu
    with pytest.raises(DisclosureError, match=r"this run has ε = 19\.1"):
        DisclosurePolicy.of({"max_epsilon": 8}).check_method(METHOD, config, [9, 9])
    DisclosurePolicy.of({"max_epsilon": 19.2}).check_method(METHOD, config, [9, 9])


def test_a_silos_log_says_what_its_owner_counts(kit):
    _, federation = kit.quadratic("dp_fedavg", FOUR, noise="silo", rounds=2, **NOISY)
    client = federation.client(0)
    client.round = 1
    answer = client.train_noisily(NoisyRequest(weights=weights_of(client.model), honest=1))
    assert answer.mu == client.config.account


def test_what_leaves_a_silo():
    check_sent(
        "dp_fedavg",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        train_noisily numbers: gradient int64
        train_noisily clients: counts
        train_noisily mu: control
        train_noisily honest: control
        """,
    )
