"""Settings of FedGCN."""

from __future__ import annotations

from typing import Literal

from graphsilo.federation.settings import setting
from graphsilo.methods.fedavg import FedAvgConfig


class FedGCNConfig(FedAvgConfig):
    """Settings of FedGCN."""

    hops: Literal[0, 1, 2] = setting(
        2, "whose sums of neighbours a silo gets: nobody's (FedAvg), its own nodes', or also those of nodes linked to "
        "them elsewhere", source="paper",
    )  # fmt: skip
    optimizer: Literal["adam", "sgd"] = setting("sgd", "local optimiser", source="authors' code")
    lr: float = setting(0.5, "learning rate", source="authors' code", gt=0)
    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "uniform", "a client's weight in the mean: its training items, all its nodes, or 1", source="authors' code"
    )

    @property
    def single_answers(self) -> str:
        return "which nodes every client has links to, and sums of features of single nodes"
