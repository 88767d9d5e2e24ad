"""FedAvg — one shared model, the weighted mean of the clients' models after local training.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from Decentralized
Data". AISTATS 2017. Settings for graphs as in OpenFGL (Li et al., PVLDB 2025).

Each round some clients start from it, train on their own graph for several epochs, and the server replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from graphsilo.federation.averaging import AveragingServer
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.federation.training_client import SampledTrainingClient, SampledTrainingConfig, client_weight
from graphsilo.types import ClientId


class FedAvgConfig(SampledTrainingConfig):
    """Settings of FedAvg."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "train", "a client's weight in the mean: its training items, all its nodes (graphs), or 1",
        source="McMahan et al.; OpenFGL uses nodes",
    )  # fmt: skip
    server_lr: float = setting(1.0, "share of the mean change that the server applies", source="McMahan et al.", gt=0)


class TrainRequest(Message):
    """The shared model."""

    weights: Tensors = sends("model")


class TrainReply(Message):
    """The model after local training; in a sum it counts ``num_samples`` times."""

    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


ConfigT = TypeVar("ConfigT", bound=FedAvgConfig)


class Client(SampledTrainingClient[ConfigT], Generic[ConfigT]):
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

    @property
    def weight(self) -> float:
        """Weight in the server's mean."""
        return client_weight(self.config.weight_by, self.trainer.objective.num_samples, self.silo.num_items)


class Server(AveragingServer[ConfigT], Generic[ConfigT]):
    """Keeps the shared model; needs only sums."""

    client: type[Client[Any]] = Client[Any]

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        request = TrainRequest(weights=self.weights)
        return federation.sum(self.client.train, request, to=clients).require(self.config.min_clients)

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
