"""What a network is made of again, elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.settings import LocalTrainingConfig
from graphsilo.federation.training_client import TrainingClient


class Partial(TrainingClient[LocalTrainingConfig]):
    """Shares the bias of its only layer."""

    @property
    def shared(self):
        return [name for name in self.weights if "bias" in name]


class Doubtful(TrainingClient[LocalTrainingConfig]):
    """Decides by more than its network."""

    def predict(self, data, view="own"):
        return super().predict(data, view) / 2


def _client_of(kind):
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Graph(np.eye(3, dtype=np.float32), edges, np.array([0, 1, 0]), 2)
    seen = EvaluationSet("seen", graph, {"val": np.array([1]), "test": np.array([2])})
    silo = Silo(0, graph, np.array([0, 1]), (seen,), Schema("node", 3, 2))
    return kind(ClientContext(0, silo, LocalTrainingConfig(), ModelSpec("sgc", {}), 0))


def test_a_view_has_the_aggregates_weights_and_else_the_clients_own():
    client = _client_of(Partial)
    (shared,) = client.shared
    client.install_aggregate({shared: torch.tensor([0.0, 20.0])})
    (own,), (common,) = (client.portable(view) for view in ("own", "aggregate"))
    ((weight, bias),) = common["layers"]
    assert bias.tolist() == common["weights"][shared].tolist() == [0.0, 20.0]
    assert own["layers"][0][1].tolist() == [0.0, 0.0]
    assert np.array_equal(weight, own["layers"][0][0])
    assert weight.shape == (3, 2)


def test_who_decides_by_more_than_a_network_is_refused():
    with pytest.raises(UnsupportedError, match="it scores otherwise than by ridges"):
        _client_of(Doubtful).portable()
