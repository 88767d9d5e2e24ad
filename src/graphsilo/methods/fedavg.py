"""FedAvg — federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from Decentralized
Data". AISTATS 2017. Settings for graphs as in OpenFGL (Li et al., PVLDB 2025).

One shared model. Each round some clients start from it, train on their own graph for several epochs, and the server
replaces it by the weighted mean of their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field

from graphsilo.errors import ConfigError
from graphsilo.federation.averaging import AveragingServer
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.view import GraphTensors
from graphsilo.training.objective import Objective, objective
from graphsilo.types import ClientId, Task

# More draws than this cost more than a layer without sampling, which 0 asks for.
Neighbours: TypeAlias = Annotated[int, Field(ge=0, le=1000)]


class FedAvgConfig(LocalTrainingConfig):
    """Settings of FedAvg."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "train", "a client's weight in the mean: its training items, all its nodes (graphs), or 1",
        source="McMahan et al.; OpenFGL uses nodes",
    )  # fmt: skip
    server_lr: float = setting(1.0, "share of the mean change that the server applies", source="McMahan et al.", gt=0)
    fan_out: Neighbours | tuple[Neighbours, ...] = setting(
        0, "neighbours sampled per node in training: one number for every layer, or one per layer from the items "
        "outwards; 0 takes all",
        source="OpenFGL; Hamilton et al. 25, 10",
    )  # fmt: skip

    @property
    def fan_outs(self) -> tuple[int, ...]:
        """``fan_out`` as it was said, one number or several."""
        return (self.fan_out,) if isinstance(self.fan_out, int) else self.fan_out

    def sampled(self, model: str, depth: int, task: Task) -> tuple[int, ...]:
        """Neighbours to sample per layer, from the items outwards; () for all of them.

        Args:
            model: Its name.
            depth: Its layers that mix rows.
            task: The run's.

        Raises:
            ConfigError: The model does not mix rows layer by layer, or has other layers, or the items are no nodes.
        """
        asked = self.fan_out
        if not any(self.fan_outs) and (isinstance(asked, int) or len(asked) == depth):
            return ()
        said = asked if isinstance(asked, int) else list(asked)
        if task != "node" or not depth:
            raise ConfigError(
                f"method.fan_out={said} samples neighbours of training nodes, layer by layer: for the task node and a "
                f"model such as gcn, sage, gat, gin, gcnii or appnp. The task is {task}, the model {model}; use "
                f"another model, or fan_out=0."
            )
        counts = (asked,) * depth if isinstance(asked, int) else asked
        if len(counts) != depth:
            came = f"a list of {len(counts) or 'no'} number{'' if len(counts) == 1 else 's'} came"
            alone = f". One for all layers is said without brackets: fan_out={counts[0]}" if len(counts) == 1 else ""
            raise ConfigError(
                f"method.fan_out is one number for all layers, or a list with one for each: the model has {depth} "
                f"layers, {came}{alone}."
            )
        return counts

    def check_model(self, model: str, depth: int, task: Task) -> None:
        self.sampled(model, depth, task)


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

    def objective_on(self, data: GraphTensors) -> Objective:
        return objective(data, self.silo, self.fan_out)

    @property
    def fan_out(self) -> tuple[int, ...]:
        """Neighbours to sample per layer, from the items outwards; () for all of them."""
        return self.config.sampled(self.context.model.name, self.model.message_layers, self.silo.schema.task)

    @property
    def weight(self) -> float:
        """Weight in the server's mean; 0, hence left out, for a client with nothing to train on."""
        samples = self.trainer.objective.num_samples
        if samples == 0:
            return 0.0
        return float({"train": samples, "nodes": self.silo.num_items, "uniform": 1}[self.config.weight_by])


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
    name="fedavg",
    family="averages of models",
    title="FedAvg",
    citation='McMahan et al. "Communication-Efficient Learning of Deep Networks from Decentralized Data". AISTATS '
    "2017.",
    summary="One shared model, the weighted mean of the clients' models after local training.",
    config=FedAvgConfig,
    client=Client,
    server=Server,
    edge_weights=True,
)
