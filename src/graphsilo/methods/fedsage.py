"""FedSage — federated GraphSAGE.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021.

One shared GraphSAGE classifier, the plain mean of the clients' after local training on their subgraphs, optionally over
sampled neighbourhoods. FedSage+ is the same on graphs with generated neighbours.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from graphsilo.errors import ConfigError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.methods.fedavg import Server
from graphsilo.models.base import LayeredModel
from graphsilo.models.sage import SAGE
from graphsilo.models.view import GraphTensors
from graphsilo.settings import Count
from graphsilo.training.neighbour_sampling import SampledItems
from graphsilo.training.objective import Objective, objective


class FedSageConfig(fedavg.FedAvgConfig):
    """Settings of FedSage."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "uniform", "a client's weight in the mean: 1, its training items, or all its nodes",
        source="Zhang et al. and their release",
    )  # fmt: skip
    fan_out: Count | tuple[Count, ...] = setting(
        0, "neighbours sampled per node in training: one number for every layer, or one per layer from the items "
        "outwards; 0 takes all",
        source="OpenFGL; Zhang et al. 5, 5",
    )  # fmt: skip


ConfigT = TypeVar("ConfigT", bound=FedSageConfig)


class Client(fedavg.Client[ConfigT], Generic[ConfigT]):
    """Trains the shared classifier; a client with nothing to train on is left out of the mean."""

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        self.trainer.objective = self.objective_on(self.data)

    def objective_on(self, data: GraphTensors) -> Objective:
        """The local loss on a graph whose first rows are the silo's nodes.

        Raises:
            ConfigError: Neighbours are to be sampled for a model that is not GraphSAGE, or for another depth.
        """
        fan_out = self.config.fan_out
        depth = self.model.depth if isinstance(self.model, LayeredModel) else 1
        counts = (fan_out,) * depth if isinstance(fan_out, int) else fan_out
        if not any(counts):
            return objective(data, self.silo)
        if not isinstance(self.model, SAGE):
            raise ConfigError(
                f"method.fan_out={fan_out} samples neighbours for GraphSAGE; the model is "
                f"{type(self.model).__name__.lower()}. Use --model sage, or fan_out=0."
            )
        if len(counts) != depth:
            raise ConfigError(
                f"method.fan_out needs a number per layer: the model has {depth} layers, {len(counts)} numbers came."
            )
        return SampledItems(data, self.silo, counts)


METHOD = Method(
    name="fedsage",
    family="averaging",
    title="FedSage",
    citation='Zhang et al. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021.',
    summary="One shared GraphSAGE classifier, the plain mean of the clients' after local training.",
    config=FedSageConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "sage", "hidden": 64},
    edge_weights=True,
    elsewhere="FedAvg in which every client counts alike",
)
