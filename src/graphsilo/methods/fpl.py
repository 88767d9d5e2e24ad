"""FPL — FedAvg with clusters of class prototypes, to which clients' embeddings are drawn.

Huang, Ye, Shi, Li, Du. "Rethinking Federated Learning with Domain Shift: A Prototype View". CVPR 2023.

FedAvg that also exchanges prototypes. The server clusters those of each class: clients are drawn to all clusters of a
class and away from those of others, and kept near the mean of the clusters, where a small one counts like a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal

import torch
from torch import Tensor

from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Empty, sends
from graphsilo.federation.prototypes import TrainReply as Prototypes
from graphsilo.federation.prototypes import check_encoder, gather_rows, of_shape, sum_classes
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.methods.fedavg import ConfigT
from graphsilo.training.losses import info_nce, prototype_mse
from graphsilo.training.objective import Step
from graphsilo.training.prototypes import class_means, finch, unit_rows
from graphsilo.types import ClientId


class FPLConfig(fedavg.FedAvgConfig):
    """Settings of FPL."""

    contrast: float = setting(1.0, "weight of the contrast of clusters", source="paper", ge=0)
    temperature: float = setting(
        0.02, "temperature of its cosines (τ)", source="paper", gt=0, when={"contrast": ABOVE_ZERO}
    )
    pull: float = setting(1.0, "weight of the distance to the mean of a class's clusters", source="paper", ge=0)
    reduction: Literal["sum", "mean"] = setting(
        "sum", "squared distances over an embedding's entries: sum or mean", source="paper; the authors' code mean",
        when={"pull": ABOVE_ZERO},
    )  # fmt: skip
    min_count: int = setting(1, "fewest training items of a class that a client describes", ge=1)

    @property
    def single_answers(self) -> str:
        return "every client's prototypes, to cluster"


class TrainRequest(fedavg.TrainRequest):
    """The shared model and, once there are any, the prototypes of clusters.

    Attributes:
        clusters: One row per cluster.
        classes: Of which class each is.
    """

    clusters: Tensor | None = sends("prototype", shape=("clusters", "width"), default=None)
    classes: Tensor | None = sends("control", dtype=torch.int64, shape=("clusters",), default=None)


class Client(fedavg.Client[FPLConfig]):
    """Adds a contrast of clusters and the distance to a class's mean cluster."""

    def __init__(self, context: ClientContext[FPLConfig]):
        super().__init__(context)
        check_encoder(self)

    @handler
    def train(self, request: TrainRequest) -> fedavg.TrainReply:  # type: ignore[override]
        """Download, train, upload."""
        return super().train(request)

    def fit(self, request: TrainRequest) -> None:  # type: ignore[override]
        config, here = self.config, self.data.device
        if request.clusters is None or request.classes is None or not (config.contrast or config.pull):
            self.run_epochs()
            return
        clusters, classes = request.clusters.to(here), request.classes.to(here)
        means, counts = class_means(clusters, classes, self.silo.schema.num_classes)
        unit, present = unit_rows(clusters), counts > 0

        def term(step: Step) -> Tensor:
            found = step.embeddings.new_zeros(len(step.labels))
            if config.contrast:
                cosines = unit_rows(step.embeddings) @ unit.t()
                positive = step.labels[:, None] == classes
                found = found + config.contrast * info_nce(cosines / config.temperature, positive)
            if config.pull:
                times = means.shape[1] if config.reduction == "sum" else 1
                found = found + config.pull * times * prototype_mse(step.embeddings, step.labels, means, present)
            return found.mean()

        self.run_epochs(term=term)

    @handler
    def describe(self, request: Empty) -> Prototypes:
        """The mean embeddings of this client's classes, after training."""
        return sum_classes(self, self.model.embed, self.config.min_count, uniform=True)


class Server(fedavg.Server[ConfigT], Generic[ConfigT]):
    """Keeps the shared model, of which it needs only sums, and clusters of prototypes, of which it sees every client's.

    Attributes:
        clusters: [m, p] prototypes of clusters, of this round alone.
        classes: [m] theirs.
    """

    client: type[Any] = Client
    kept = ("weights", "clusters", "classes")

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.shape = (self.schema.num_classes, self.build_model().embedding_dim)
        self.clusters = torch.zeros(0, self.shape[1], device=context.device)
        self.classes = torch.zeros(0, dtype=torch.int64, device=context.device)

    def request(self) -> TrainRequest:
        known = {"clusters": self.clusters, "classes": self.classes} if len(self.classes) else {}
        return TrainRequest(weights=self.weights, **known)

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> fedavg.TrainReply:
        model = super().collect(federation, clients)
        replies = federation.ask(self.client.describe, Empty(), to=self.answered, check=of_shape(self.shape))
        rows, labels, _ = gather_rows(replies.require(self.config.min_clients))
        self.clusters, self.classes = cluster_prototypes(rows.to(self.clusters), labels.to(self.clusters.device))
        self.log["clusters_per_class"] = len(self.classes) / max(1, len(labels.unique()))
        return model

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        classes, width = self.shape
        calls = self.rounds * self.asked
        # At most one cluster for two prototypes of a class, or one of a single one.
        most = classes * max(1, self.asked // 2)
        return up + calls * classes * (4 * width + 8), down + calls * most * (4 * width + 8)


def cluster_prototypes(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of every cluster [m, p] of each class's prototypes, and the classes [m].

    Args:
        rows: [n, p] clients' prototypes.
        labels: [n] their classes.
    """
    means, classes = [rows[:0]], [labels[:0]]
    for label in labels.unique():
        mine = rows[labels == label]
        groups = finch(mine)
        found, _ = class_means(mine, groups, int(groups.max()) + 1)
        means.append(found)
        classes.append(label.expand(len(found)))
    return torch.cat(means), torch.cat(classes)


METHOD = Method(
    about=__doc__,
    name="fpl",
    family="prototypes and distillation",
    config=FPLConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    edge_weights=True,
    space={"contrast": [0.1, 1.0], "pull": [0.1, 1.0]},
    reduces_to=("fedavg", {"contrast": 0.0, "pull": 0.0}),
)
