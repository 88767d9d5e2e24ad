"""Focal loss: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo.methods import fedavg
from graphsilo.testing.small import play
from graphsilo.training.losses import focal


def weights_after(kit, name, silos, rounds=3, **settings):
    server, federation = kit.build(name, silos, **settings)
    play(server, federation, rounds)
    return server.weights


@pytest.mark.parametrize("settings", [{"class_weights": "inverse"}, {"class_weights": "effective"}], ids=str)
def test_equal_classes_weigh_1(kit, settings):
    """Two items of either class: with γ = 0 it is FedAvg by another path."""
    silos = [kit.tiny_silo(client, train=(0, 1, 2, 3)) for client in range(2)]
    plain, same = weights_after(kit, "fedavg", silos), weights_after(kit, "focal", silos, gamma=0.0, **settings)
    for name, value in plain.items():
        torch.testing.assert_close(same[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        ({"gamma": 1.5}, lambda z, y: focal(z, y, gamma=1.5)),
        # three items, two of class 0: mean(2, 1) / n = 3/4 and 3/2
        (
            {"gamma": 0.0, "class_weights": "inverse"},
            lambda z, y: torch.tensor([0.75, 1.5])[y] * F.cross_entropy(z, y, reduction="none"),
        ),
        (
            {"gamma": 0.0, "loss": "sigmoid_focal"},
            lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, 2).float(), reduction="none").sum(1),
        ),
    ],
    ids=["gamma", "class weights", "sigmoid"],
)
def test_a_steps_gradient_is_that_of_the_loss(kit, settings, loss):
    """One step of SGD with rate 1 moves the weights by the gradient of the mean, dropout aside."""
    silo = kit.tiny_silo(0, train=(0, 1, 2))
    settings = {"optimizer": "sgd", "lr": 1.0, "weight_decay": 0.0, "local_epochs": 1, **settings}
    server, federation = kit.build("focal", [silo], **settings)
    client = federation.client(0)
    parameters = list(client.model.parameters())
    labels = torch.from_numpy(silo.labels[silo.train])
    value = loss(client.model(client.data.full)[torch.from_numpy(silo.train)], labels).mean()
    expected = [p.detach() - g for p, g in zip(parameters, torch.autograd.grad(value, parameters), strict=True)]
    play(server, federation, 1)
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, atol=1e-6, rtol=1e-5)


def test_it_sends_what_fedavg_sends(kit):
    server, federation = kit.build("focal", [kit.tiny_silo(0)])
    assert server.expected_bytes() == kit.build("fedavg", [kit.tiny_silo(0)])[0].expected_bytes()
    assert type(federation.client(0)).train is fedavg.Client.train
