"""FedAvg — one shared model, the weighted mean of the clients' models after local training.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from Decentralized
Data". AISTATS 2017. Settings for graphs as in OpenFGL (Li et al., PVLDB 2025).

Each round some clients start from it, train on their own graph for several epochs, and the server replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from graphsilo.federation.averaging import AveragingServer
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.federation.training_client import AveragedTrainingClient, AveragedTrainingConfig
from graphsilo.types import ClientId


class FedAvgConfig(AveragedTrainingConfig):
    """Settings of FedAvg."""

    server_lr: float = setting(1.0, "share of the mean change that the server applies", source="McMahan et al.", gt=0)


class TrainRequest(Message):
    """The shared model."""

    weights: Tensors = sends("model")


class TrainReply(Message):
    """The model after local training; in a sum it counts ``num_samples`` times."""

    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


ConfigT = TypeVar("ConfigT", bound=FedAvgConfig)


class Client(AveragedTrainingClient[ConfigT], Generic[ConfigT]):
    """Trains the shared model on its own graph."""

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Download, train, upload."""
        self.download(request.weights)
        self.fit(request)
        return TrainReply(weights=self.upload(), num_samples=self.weight)

    def fit(self, request: TrainRequest) -> None:
        """The local epochs; variants change what a step does."""
        self.run_epochs()


class Server(AveragingServer[ConfigT], Generic[ConfigT]):
    """Keeps the shared model; needs only sums.

    Attributes:
        client: Whose ``train`` is asked for.
        answered: Who is in the last sum.
    """

    client: type[Client[Any]] = Client[Any]
    answered: tuple[ClientId, ...] = ()

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        total = federation.sum(self.client.train, self.request(), to=clients)
        self.answered = total.clients
        return total.require(self.config.min_clients)

    def request(self) -> TrainRequest:
        """What clients train with."""
        return TrainRequest(weights=self.weights)

    @property
    def rate(self) -> float:
        return self.config.server_lr


METHOD = Method(
    about=__doc__,
    name="fedavg",
    family="averages of models",
    near=("FedSGD", "FedNova", "FedAdam", "FedYogi"),
    config=FedAvgConfig,
    client=Client,
    server=Server,
    edge_weights=True,
)
