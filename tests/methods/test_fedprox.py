"""FedProx: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.methods.fedprox import FedProxConfig
from graphsilo.training.local import weights_of

TWO = [(1.0, 0.0), (3.0, 4.0)]


def moved(kit, mu, *, curvature=1.0, optimum=0.0, epochs=10, lr=0.1):
    """How far one client is from the start after its epochs."""
    server, federation = kit.quadratic("fedprox", [(curvature, optimum)], mu=mu, local_epochs=epochs, lr=lr)
    kit.rounds(server, federation)
    return abs(kit.value_of(weights_of(federation.client(0).model)) - 1.0)


def test_by_hand(kit):
    # 1 -> 0.9 -> 0.9 - 0.1 (0.9 + 0.5 (0.9 - 1)) = 0.815; 1 -> 1.9 -> 1.9 - 0.1 (3 (1.9 - 4) + 0.5 · 0.9) = 2.485
    server, federation = kit.quadratic("fedprox", TWO, mu=0.5)
    weights = kit.rounds(server, federation)
    locals_ = [kit.value_of(weights_of(federation.client(client).model)) for client in (0, 1)]
    assert locals_ == pytest.approx([0.815, 2.485], abs=1e-6)
    assert kit.value_of(weights) == pytest.approx(1.65, abs=1e-6)


@pytest.mark.parametrize("mu", [0.0, 0.5, 3.0])
def test_one_local_step_is_fedavg(kit, mu):
    prox = kit.rounds(*kit.quadratic("fedprox", TWO, mu=mu, local_epochs=1))
    plain = kit.rounds(*kit.quadratic("fedavg", TWO, local_epochs=1))
    assert all(torch.equal(prox[name], plain[name]) for name in plain)


@pytest.mark.parametrize("mu", [0.5, 2.0, 8.0, 10.0])
def test_displacement_is_bounded(kit, mu):
    # η μ <= 1. On (x - 0)²/2 from 1 the largest gradient met is 1, so |θ - w| <= 1 / μ.
    assert moved(kit, mu, epochs=50) <= 1.0 / mu + 1e-6


def test_displacement_shrinks_with_mu(kit):
    found = [moved(kit, mu) for mu in (0.0, 0.01, 0.1, 1.0, 3.0, 9.0)]
    assert all(np.diff(found) <= 0)
    assert moved(kit, 1000.0, lr=1e-3) < 1.1e-3


def test_the_penaltys_gradient(kit):
    """What is added to the gradients is the finite difference of μ/2 ‖θ − w‖²."""
    mu, step = 0.7, 1e-3
    server, federation = kit.quadratic("fedprox", [(0.0, 0.0)], mu=mu, local_epochs=1)
    client = federation.client(0)
    caught = []
    client.run_epochs = lambda **options: caught.append(options["adjust"])
    kit.rounds(server, federation)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in client.model.parameters():
            parameter.copy_(1.0 + torch.randn(parameter.shape, generator=generator))
    gradients = [torch.zeros_like(parameter) for parameter in client.model.parameters()]
    caught[0](gradients, None)

    def penalty(parameters):
        return 0.5 * mu * sum(float((parameter.double() - 1.0).square().sum()) for parameter in parameters)

    parameters = [parameter.detach().double().clone() for parameter in client.model.parameters()]
    for index, parameter in enumerate(parameters):
        flat = parameter.view(-1)
        for place in range(flat.numel()):
            flat[place] += step
            above = penalty(parameters)
            flat[place] -= 2 * step
            below = penalty(parameters)
            flat[place] += step
            assert gradients[index].view(-1)[place].item() == pytest.approx((above - below) / (2 * step), abs=1e-5)


def test_the_reference_is_this_rounds_download(kit):
    # The optimum is the start of round 2 only if the pull is towards the new download.
    server, federation = kit.quadratic("fedprox", [(1.0, 0.0)], mu=9.0, local_epochs=50)
    first = kit.value_of(kit.rounds(server, federation))
    kit.rounds(server, federation, start=2)
    # The fixed point of each round is w · μ / (1 + μ) = 0.9 w.
    assert first == pytest.approx(0.9, abs=1e-5)
    assert kit.value_of(server.weights) == pytest.approx(0.81, abs=1e-5)


def epochs_of(kit, stragglers, *, local_epochs=5, clients=10, rounds=12):
    server, federation = kit.quadratic(
        "fedprox", [(1.0, 0.0)] * clients, stragglers=stragglers, local_epochs=local_epochs
    )
    found = []
    for number in range(1, rounds + 1):
        federation.at("round", number)
        before = [federation.client(client).trainer.objective.steps for client in range(clients)]
        server.round(federation, number)
        after = [federation.client(client).trainer.objective.steps for client in range(clients)]
        found += [late - early for late, early in zip(after, before, strict=True)]
    return np.array(found)


def test_stragglers(kit):
    assert set(epochs_of(kit, 0.0)) == {5}
    assert set(epochs_of(kit, 1.0)) == {1, 2, 3, 4}
    half = epochs_of(kit, 0.5)
    assert 36 < (half < 5).sum() < 84  # 60 of 120 on average
    assert (half == epochs_of(kit, 0.5)).all()
    assert set(epochs_of(kit, 1.0, local_epochs=1)) == {1}


def test_stragglers_count_in_the_mean(kit):
    server, federation = kit.quadratic("fedprox", TWO, stragglers=1.0, mu=0.0)
    # Two epochs become one for everybody: 0.9 and 1.9.
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(1.4, abs=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_pull_is_the_gradient_of_a_penalty_in_the_loss(kit, optimizer):
    """Before the optimiser's step both are the same, moments and weight decay included (specification, 3a and 3b)."""
    mu, silo = 0.7, kit.tiny_silo(0)
    settings = {"optimizer": optimizer, "local_epochs": 4, "lr": 0.05, "weight_decay": 5e-4}
    server, federation = kit.build("fedprox", [silo], mu=mu, **settings)
    start = {name: value.clone() for name, value in server.weights.items()}
    pulled = kit.rounds(server, federation)
    plain, other = kit.build("fedavg", [silo], **settings)

    def penalty():
        squares = [(value - start[name]).square().sum() for name, value in client.model.named_parameters()]
        return 0.5 * mu * torch.stack(squares).sum()

    client = other.client(0)
    client.fit = lambda request: client.run_epochs(term=lambda step: penalty())
    penalised = kit.rounds(plain, other)
    free = kit.rounds(*kit.build("fedavg", [silo], **settings))
    for name in pulled:
        torch.testing.assert_close(pulled[name], penalised[name], atol=1e-5, rtol=1e-4)
    assert max(float((pulled[name] - free[name]).abs().max()) for name in pulled) > 1e-3


def test_settings():
    config = registry.load("fedprox").config
    assert (config().mu, config().stragglers) == (0.01, 0.0)
    assert (config(mu=0.0, stragglers=1.0).mu, config(stragglers=1.0).stragglers) == (0.0, 1.0)
    for wrong in ({"mu": -0.1}, {"stragglers": -0.1}, {"stragglers": 1.1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            config(**wrong)
    with pytest.raises(ValueError, match="frozen"):
        config().mu = 1.0


@pytest.mark.parametrize(
    ("settings", "task", "vain"),
    [
        ({"local_epochs": 1}, "node", True),
        ({"local_epochs": 1, "mu": 0.0}, "node", False),
        ({"local_epochs": 1, "batch_size": 8}, "node", False),
        ({"local_epochs": 1, "fan_out": (5, 5)}, "node", False),
        ({"local_epochs": 1}, "graph", False),
        ({}, "node", False),
    ],
)
def test_a_run_says_where_one_step_leaves_nothing_of_the_penalty(settings, task, vain):
    found = FedProxConfig(**settings).explain_no_effect(Schema(task, 3, 4), 100, 10, "gcn")
    assert ("FedProx is FedAvg with these settings" in found) is vain
