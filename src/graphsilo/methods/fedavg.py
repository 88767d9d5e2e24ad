"""FedAvg — federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from Decentralized
Data". AISTATS 2017. Settings for graphs as in OpenFGL (Li et al., PVLDB 2025).

One shared model. Each round some clients start from it, train on their own graph for several epochs, and the server
replaces it by the weighted mean of their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from graphsilo.errors import FederationError
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, differing, sends, shapes_of
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.training.local import weights_of


class FedAvgConfig(LocalTrainingConfig):
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


class Client(TrainingClient[ConfigT], Generic[ConfigT]):
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
        """Weight in the server's mean; 0, hence left out, for a client with nothing to train on."""
        samples = self.trainer.objective.num_samples
        if samples == 0:
            return 0.0
        return float({"train": samples, "nodes": self.silo.num_items, "uniform": 1}[self.config.weight_by])


class Server(ServerBase[ConfigT], Generic[ConfigT]):
    """Keeps the shared model; needs only sums."""

    client: type[Client] = Client

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.weights: dict[str, Tensor] = weights_of(self.build_model())

    def expected_bytes(self) -> tuple[int, int]:
        each = self.rounds * self.asked * sum(weight.nbytes for weight in self.weights.values())
        return each, each

    def round(self, federation: Federation, number: int) -> None:
        total = federation.sum(
            self.client.train, TrainRequest(weights=self.weights), to=self.select(federation, number)
        )
        reply = total.require(self.config.min_clients)
        if reply.num_samples > 0:  # otherwise nobody had anything to train on, and the model stays
            self.weights = step_to(self.weights, reply.weights, reply.num_samples, self.config.server_lr)

    def aggregate(self) -> Tensors | None:
        return self.weights

    def state(self) -> dict[str, Any]:
        return {"weights": dict(self.weights)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.weights = dict(state["weights"])


def step_to(old: Mapping[str, Tensor], total: Mapping[str, Tensor], weight: float, rate: float) -> dict[str, Tensor]:
    """w + η_s (Σ p_k θ_k − w), with Σ p_k θ_k the total divided by its weight, in the old tensors' precision.

    Raises:
        FederationError: The total holds other tensors than the old ones.
    """
    if shapes_of(total) != shapes_of(old):
        raise FederationError(
            f"the clients' sum holds {differing(shapes_of(total), shapes_of(old))}, the server's model "
            f"{differing(shapes_of(old), shapes_of(total))}. Send the model in a field that the request has, too, and "
            f"a client that answers with another one is named."
        )
    new = {}
    for name, value in total.items():
        mean = torch.div(value, weight)
        if rate != 1.0:
            mean = old[name].double().lerp_(mean, rate)
        new[name] = mean.to(old[name].dtype)
    return new


METHOD = Method(
    name="fedavg",
    family="averaging",
    title="FedAvg",
    citation='McMahan et al. "Communication-Efficient Learning of Deep Networks from Decentralized Data". AISTATS '
    "2017.",
    summary="One shared model, the weighted mean of the clients' models after local training.",
    config=FedAvgConfig,
    client=Client,
    server=Server,
    edge_weights=True,
)
