"""FedSage — one shared GraphSAGE classifier, the plain mean of the clients' after local training.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021.

Training is optionally over sampled neighbourhoods. FedSage+ is the same on graphs with generated neighbours.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.methods.fedavg import Server


class FedSageConfig(fedavg.FedAvgConfig):
    """Settings of FedSage."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "uniform", "a client's weight in the mean: 1, its training items, or all its nodes",
        source="Zhang et al. and their release",
    )  # fmt: skip


ConfigT = TypeVar("ConfigT", bound=FedSageConfig)


class Client(fedavg.Client[ConfigT], Generic[ConfigT]):
    """Trains the shared classifier; a client with nothing to train on is left out of the mean."""


METHOD = Method(
    about=__doc__,
    name="fedsage",
    family="missing neighbours",
    config=FedSageConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "sage", "hidden": 64},
    edge_weights=True,
    elsewhere="FedAvg in which every client counts alike",
)
