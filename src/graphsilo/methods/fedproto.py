"""FedProto — clients with models of their own share the mean embedding of each class, and stay near everybody's.

Tan et al. "FedProto: Federated Prototype Learning across Heterogeneous Clients". AAAI 2022.

No weights travel, and models may differ as long as embeddings have one width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphsilo.federation.prototypes import PrototypeClient, PrototypeConfig, PrototypeServer
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.training.objective import Step


class FedProtoConfig(PrototypeConfig):
    """Settings of FedProto."""

    strength: float = setting(1.0, "weight λ of the pull towards the prototypes", source="the authors' script", ge=0)
    reduction: Literal["sample_mean", "class_sum"] = setting(
        "sample_mean", "squared distances to prototypes: their mean over items, or the sum of classes' means",
        source="the authors' code; OpenFGL sums classes", when={"strength": ABOVE_ZERO},
    )  # fmt: skip


class Client(PrototypeClient[FedProtoConfig]):
    """Adds λ times the squared distance between embeddings and the prototypes of their classes."""

    def term(self, step: Step) -> Tensor:
        if self.config.reduction == "sample_mean":
            return super().term(step)
        return self.config.strength * (self.distances(step) / torch.bincount(step.labels)[step.labels]).sum()


class Server(PrototypeServer[FedProtoConfig]):
    """Means of the clients' prototypes; needs only sums."""

    client = Client


METHOD = Method(
    about=__doc__,
    name="fedproto",
    family="prototypes and distillation",
    config=FedProtoConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    edge_weights=True,
    space={"strength": [0.1, 0.3, 1.0, 3.0]},
    trials={
        "predict": Trial(reason="how a client classifies"),
    },
    reduces_to=("local", {"strength": 0.0, "initial": "common"}),
)
