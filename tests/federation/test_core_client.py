"""Clients that share the core of their model."""

from __future__ import annotations

import torch

from graphsilo.federation import registry
from graphsilo.federation.client import BESIDE_COMMON
from graphsilo.federation.core_client import core_of
from graphsilo.testing import conformance


def test_a_common_core_predicts_with_the_layers_of_its_own_round():
    """With what was kept beside it the core answers as then, and the own model, which has moved on, as now."""
    method = registry.load("fedstar")
    server, federation, _ = conformance.assemble(method, {"rounds": 3})
    federation.at("setup", 0)
    server.set_up(federation)
    for number in (1, 2):
        federation.at("round", number)
        server.round(federation, number)
        if number == 1:
            client, core = federation.client(0), dict(server.weights)
            client.install_aggregate(core)
            then = client.predict(client.data, "aggregate")
            kept = {name: weight.detach().clone() for name, weight in client.final_models()[BESIDE_COMMON].items()}
    assert kept.keys() == client.weights.keys() - core_of(client.model, client.weights).keys()
    own = client.predict(client.data)
    client.install_aggregate(core)
    assert not torch.equal(client.predict(client.data, "aggregate"), then)
    client.load_final({**client.final_models(), BESIDE_COMMON: kept})
    client.install_aggregate(core)
    assert torch.equal(client.predict(client.data, "aggregate"), then)
    assert torch.equal(client.predict(client.data), own)
