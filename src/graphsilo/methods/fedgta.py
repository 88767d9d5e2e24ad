"""FedGTA — each client's model is the mean over clients whose predictions, spread along edges, look like its own.

Li, Wu, Zhang, Zhu, Li, Wang. "FedGTA: Topology-aware Averaging for Federated Graph Learning". PVLDB 17(1), 2023.

A client counts in the mean by how sure its predictions are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import MessageError
from graphsilo.federation.interface import Federation, Replies, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.mixing import MixingServer
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.training.label_propagation import one_hot_rows, propagate_labels, without_loops
from graphsilo.types import ClientId


class FedGTAConfig(LocalTrainingConfig):
    """Settings of FedGTA."""

    steps: int = setting(5, "steps of label propagation", source="authors' code", ge=1)
    alpha: float = setting(0.5, "share of the neighbours in each of them (α)", source="authors' code", gt=0, le=1)
    heat: float = setting(20.0, "temperature of the predictions whose confidence counts", source="authors' code", gt=0)
    moments: Literal["raw", "central", "hybrid"] = setting(
        "hybrid", "which moments of the predictions are compared: of themselves, about their mean, or both",
        source="authors' code on Cora and CiteSeer; raw on PubMed",
    )  # fmt: skip
    order: int = setting(
        6, "highest moment (M)", source="authors' code on Cora; 20 on CiteSeer, 13 on PubMed; OpenFGL 10", ge=1, le=100
    )
    threshold: float = setting(
        0.5, "cosine above which two clients are alike (ε)",
        source="authors' code on Cora, OpenFGL; 0.6 on CiteSeer, 0.65 on PubMed", ge=-1, le=1,
    )  # fmt: skip

    @property
    def single_answers(self) -> str:
        return "every client's model and moments, to mix models by"


class TrainRequest(Message):
    """The client's own mixture."""

    weights: Tensors = sends("model")


class TrainReply(Message):
    """The model after local training, and what its predictions look like."""

    weights: Tensors = sends("model")
    moments: Tensor = sends("statistic", shape=("classes", "moments"), per_class=True)
    confidence: float = sends("statistic", per_class=False)

    def check(self) -> None:
        super().check()
        if self.confidence < 0:
            raise MessageError(f"a confidence is at least 0; {self.confidence:g} came.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        # Each term y log y + 1/e of a class is at most 1/e, but for what 1e-8 adds.
        largest = degrees * len(self.moments) / math.e * (1 + 1e-6)
        if self.confidence > largest:
            raise MessageError(
                f"degrees that sum to {degrees:g} and {len(self.moments)} classes give a confidence of "
                f"{largest:.4g} at most; {self.confidence:.4g} came."
            )


class Client(PastClient[FedGTAConfig], TrainingClient[FedGTAConfig]):
    """Trains its mixture, and says what its predictions look like on its graph."""

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Download, train, describe, upload."""
        self.download(request.weights)
        self.run_epochs()
        with torch.no_grad():
            predicted = torch.softmax(self.model(self.data.full), dim=1).double().cpu()
        moments, confidence = self.describe_predictions(predicted)
        if not self.trainer.objective.num_samples:  # its model is what it was given, and must not count again
            confidence = 0.0
        return TrainReply(weights=self.upload(), moments=moments.float(), confidence=confidence)

    def describe_predictions(self, predicted: Tensor) -> tuple[Tensor, float]:
        """Moments [C, M or 2 M] and confidence H of predictions [n, C] spread along the edges.

        Training nodes stand for their labels before and after; no other label is read.
        """
        config, graph, labels = self.config, self.silo.graph, self.silo.labels
        assert isinstance(graph, Graph)
        adjacency = graph.adjacency()
        train = self.silo.train[labels[self.silo.train] >= 0]
        known = torch.from_numpy(one_hot_rows(labels, train, predicted.shape[1])[train])
        predicted[train] = known
        spread = torch.from_numpy(
            propagate_labels(
                adjacency, predicted.numpy(), seed_rows=train, steps=config.steps, alpha=config.alpha, self_loops=True,
                rest="keep", clamp=False, add_back=True,
            )
        )  # fmt: skip
        rows, heated = torch.softmax(spread, 1), torch.softmax(spread / config.heat, 1)
        rows[train] = heated[train] = known
        # A loop at every node, as in propagation: a client without edges has a say, too.
        degrees = 1.0 + torch.from_numpy(without_loops(adjacency).sum(axis=1)).double().flatten()
        return moments_of(rows, config.moments, config.order), confidence_of(heated, degrees)


class Server(MixingServer[FedGTAConfig, TrainReply]):
    """Mixes, for every client, the models of those whose predictions look like its own."""

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> Replies[TrainReply]:
        requests = {client: TrainRequest(weights=self.models[client]) for client in clients}
        return federation.ask(Client.train, requests, check=self.check).require(self.config.min_clients)

    def check(self, client: ClientId, reply: TrainReply) -> None:
        """Refuse moments that are not of every class and order: they are held against each other."""
        none = torch.zeros(1, self.schema.num_classes)
        wanted = moments_of(none, self.config.moments, self.config.order).shape
        if reply.moments.shape != wanted:
            raise MessageError(
                f"client {client} must send moments of shape {tuple(wanted)}; {tuple(reply.moments.shape)} came."
            )

    def shares(self, replies: Replies[TrainReply]) -> Tensor:
        """H_j where cos(m_i, m_j) > ε, else 0; every client accepts itself."""
        moments = F.normalize(torch.stack([reply.moments.flatten() for _, reply in replies]).double(), dim=1)
        alike = moments @ moments.t()
        accepted = (alike > self.config.threshold).fill_diagonal_(True)
        self.log |= {"accepted": float(accepted.double().mean()), "similarity": float(alike.mean())}
        return accepted * torch.tensor([reply.confidence for _, reply in replies], dtype=torch.float64)


def moments_of(rows: Tensor, which: str, order: int) -> Tensor:
    """Moments 1 to M over the rows [n, C], class by class: [C, M], or [C, 2 M] for raw and central ones."""
    kinds = {"raw": [rows], "central": [rows - rows.mean(0)], "hybrid": [rows, rows - rows.mean(0)]}[which]
    return torch.stack([values.pow(power).mean(0) for values in kinds for power in range(1, order + 1)], dim=1)


def confidence_of(rows: Tensor, degrees: Tensor) -> float:
    """H = Σ_v d_v Σ_c (y_vc log(y_vc + 1e-8) + 1/e), with rows [n, C] y and degrees [n] d; never below 0."""
    terms = rows * (rows + 1e-8).log() + math.exp(-1.0)
    return max(0.0, float(degrees @ terms.sum(1)))


METHOD = Method(
    about=__doc__,
    name="fedgta",
    family="silos that are unlike",
    config=FedGTAConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    evaluates=("aggregate", "own"),
    edge_weights=True,
    model={"name": "gamlp"},
    trials={
        "threshold": Trial(start=0.57),
        "moments": Trial(beside={"threshold": 0.552}),
    },
)
