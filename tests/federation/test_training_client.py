"""What a client that trains one model takes from the server, and gives it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import MessageError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.settings import LocalTrainingConfig
from graphsilo.federation.training_client import TrainingClient


class Partial(TrainingClient[LocalTrainingConfig]):
    """Shares the bias of its only layer."""

    @property
    def shared(self):
        return [name for name in self.weights if "bias" in name]


def client_of(kind=TrainingClient, **settings):
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Graph(np.eye(3, dtype=np.float32), edges, np.array([0, 1, 0]), 2)
    seen = EvaluationSet("seen", graph, {"val": np.array([1]), "test": np.array([2])})
    silo = Silo(0, graph, np.array([0, 1]), (seen,), Schema("node", 3, 2))
    return kind(ClientContext(0, silo, LocalTrainingConfig(**settings), ModelSpec("sgc", {}), 0))


def ones(client, names):
    return {name: torch.ones_like(client.weights[name]) for name in names}


@pytest.mark.parametrize("reset", [False, True])
def test_a_download_keeps_the_moments_unless_told_otherwise(reset):
    """Two clients with other moments walk on alike from the same weights only where these are forgotten."""
    first, second = (client_of(reset_optimizer=reset) for _ in range(2))
    second.run_epochs()
    for client in (first, second):
        client.download(ones(client, client.weights))
        assert all(bool((weight == 1).all()) for weight in client.weights.values())
        client.run_epochs()
    same = all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert same is reset


def test_only_what_is_shared_is_taken_and_sent():
    client = client_of(Partial)
    (shared,) = client.shared
    kept = {name: weight.detach().clone() for name, weight in client.weights.items() if name != shared}
    client.download({shared: torch.full_like(client.weights[shared], 3.0)})
    assert set(client.upload()) == {shared}
    assert client.upload()[shared].tolist() == [3.0, 3.0]
    assert all(torch.equal(client.weights[name], weight) for name, weight in kept.items())
    with pytest.raises(MessageError, match=r"missing|unknown"):
        client.download(ones(client, client.weights))


def test_a_shared_part_stands_for_the_aggregate_beside_the_clients_own():
    client = client_of(Partial)
    (shared,) = client.shared
    # Log-probabilities after a bias of (0, 20) say class 1 on every node, whatever the client's own weights are.
    client.install_aggregate({shared: torch.tensor([0.0, 20.0])})
    assert client.predict(client.data, "aggregate").argmax(1).tolist() == [1, 1, 1]
    before = client.predict(client.data)
    client.install_aggregate({shared: client.weights[shared].detach().clone()})
    assert torch.equal(client.predict(client.data, "aggregate"), before)
    with pytest.raises(MessageError, match=r"unknown|missing"):
        client.install_aggregate(ones(client, client.weights))


def test_the_common_architecture_is_the_servers_and_else_the_clients_own():
    client = client_of()
    assert client.context.common == ModelSpec("sgc", {})
    context = ClientContext(
        1, client.silo, client.config, ModelSpec("sgc", {}), 0, "cpu", ModelSpec("mlp", {"hidden": 5}, "bfloat16")
    )
    model = TrainingClient(context).build_model(context.common)
    assert sum(weight.numel() for weight in model.parameters()) == 3 * 5 + 5 + 5 * 2 + 2
    assert model.precision == "bfloat16"
