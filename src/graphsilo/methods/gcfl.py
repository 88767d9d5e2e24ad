"""GCFL — FedAvg of the graph layers within clusters of clients, which split where updates disagree.

Xie, Ma, Xiong, Yang. "Federated Graph Classification over Non-IID Graphs". NeurIPS 2021.

All clients begin in one cluster. Once the mean update of a cluster is small although that of some client is large, the
cluster is cut in two where the clients' updates are least alike. Clients share their graph layers and keep the linear
ones at both ends to themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo import models
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.accumulator import add_up
from graphsilo.federation.averaging import step_to
from graphsilo.federation.core_client import CoreClient, core_of
from graphsilo.federation.interface import Federation, Replies
from graphsilo.federation.message import Tensors
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.types import ClientId

ConfigT = TypeVar("ConfigT", bound="GCFLConfig")
SPLITTING = {"eps_1": ABOVE_ZERO}
"""Where clusters can split: with ε₁ = 0 none does."""


class GCFLConfig(fedavg.FedAvgConfig):
    """Settings of GCFL."""

    eps_1: float = setting(
        0.05, "a cluster may split if its mean update is shorter (ε₁)", ge=0,
        source="authors' code for one data set; 0.01 for several",
    )  # fmt: skip
    eps_2: float = setting(
        0.1, "and if some client's update is longer (ε₂)", source="authors' code", ge=0, when=SPLITTING
    )
    warm_up: int = setting(20, "rounds in which no cluster splits", source="authors' code", ge=0, when=SPLITTING)
    mean_by: Literal["weight", "uniform"] = setting(
        "weight", "what an update counts in that mean: as in the average of models, or 1",
        source="paper; the authors' code has uniform", when=SPLITTING,
    )  # fmt: skip

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if schema.task != "graph" or models.entry(model).network.core:
            return ""
        return (
            f"the model {model} has no layers at its ends that clients keep to themselves: they share everything, and "
            f"until clusters split this is FedAvg. Use the model gin_gcfl, or leave the model out."
        )

    @property
    def single_answers(self) -> str:
        return "every client's update, to divide clients by"


class Client(CoreClient[ConfigT], fedavg.Client[ConfigT], Generic[ConfigT]):
    """Trains its cluster's graph layers between its own ends."""


class Server(ServerBase[ConfigT], Generic[ConfigT]):
    """Keeps a model for each cluster.

    Attributes:
        clusters: The clients of each, ascending.
        weights: What those share.
        updates: By client, how its shared weights moved when it was last asked, [P].
        sizes: By client, what it then counted for.
    """

    kept: ClassVar[tuple[str, ...]] = ("clusters", "weights", "updates", "sizes")
    client: type[fedavg.Client[Any]] = Client

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.clusters: list[list[ClientId]] = [list(context.clients)]
        self.weights: list[Tensors] = [core_of(self.build_model(), self.first_weights())]
        self.updates: dict[ClientId, Tensor] = {}
        self.sizes: dict[ClientId, float] = {}

    def round(self, federation: Federation, number: int) -> None:
        started, asked = self.aggregates(), self.select(federation, number)
        requests = {client: fedavg.TrainRequest(weights=started[client]) for client in asked}
        replies = federation.ask(self.client.train, requests, check=_check).require(self.config.min_clients)
        for client, reply in replies:
            self.sizes[client] = reply.num_samples
            moved = [reply.weights[name].to(old) - old for name, old in started[client].items()]
            self.updates[client] = torch.cat([part.flatten() for part in moved])
        self.observe(replies)
        self.log |= {"mean_update": self.mean_norm(self.clusters[0]), "largest_update": self.max_norm(self.clusters[0])}
        if number > self.config.warm_up:
            parts = [self.parts(members) for members in self.clusters]
            self.weights = [w for w, split in zip(self.weights, parts, strict=True) for _ in split]
            self.clusters = [part for split in parts for part in split]
        self.log["clusters"] = len(self.clusters)
        pairs = zip(self.clusters, self.weights, strict=True)
        self.weights = [self.average(weights, members, replies) for members, weights in pairs]

    def average(self, weights: Tensors, members: list[ClientId], replies: Replies[fedavg.TrainReply]) -> Tensors:
        """A cluster's weights, moved to the mean of what its members answered."""
        answered = ((client, replies[client]) for client in members if client in replies.clients)
        total = add_up(fedavg.TrainReply, answered)
        if total is None or total.num_samples == 0:
            return weights
        return step_to(weights, total.weights, total.num_samples, self.config.server_lr)

    def observe(self, replies: Replies[fedavg.TrainReply]) -> None:
        """Keep what later similarities need of these answers."""

    def parts(self, members: list[ClientId]) -> list[list[ClientId]]:
        """The two clusters that this one splits into, or itself.

        Who was never asked, or has nothing to train on, stays with the first of the others: an update of 0 is like
        nobody's, and alone in a cluster such a client would receive nothing any more.
        """
        known = [client for client in members if self.sizes.get(client)]
        if len(known) < 3 or self.mean_norm(known) >= self.config.eps_1 or self.max_norm(known) <= self.config.eps_2:
            return [members]
        alike = self.similarities(known)
        if alike is None:
            return [members]
        apart = {client for client, there in zip(known, min_cut(alike), strict=True) if there}
        return [[c for c in members if c not in apart], [c for c in members if c in apart]]

    def mean_norm(self, members: Sequence[ClientId]) -> float:
        """δ_mean = ‖Σ n_k ΔW_k / Σ n_k‖, or of the plain mean."""
        known = [client for client in members if client in self.updates]
        share = torch.tensor([self.sizes[client] if self.config.mean_by == "weight" else 1.0 for client in known])
        if not float(share.sum()):
            return 0.0
        rows = torch.stack([self.updates[client] for client in known]).double()
        return float(((share.double() / share.double().sum()).to(rows.device) @ rows).norm())

    def max_norm(self, members: Sequence[ClientId]) -> float:
        """δ_max = max ‖ΔW_k‖."""
        return max((float(self.updates[client].norm()) for client in members if client in self.updates), default=0.0)

    def similarities(self, members: Sequence[ClientId]) -> NDArray[np.float64] | None:
        """[m, m] cos(ΔW_i, ΔW_j) + 1; None where nothing can be said yet."""
        rows = F.normalize(torch.stack([self.updates[client] for client in members]).double(), dim=1, eps=1e-12)
        found: NDArray[np.float64] = (rows @ rows.t()).cpu().numpy() + 1.0
        return found

    def aggregates(self) -> dict[ClientId, Tensors]:
        pairs = zip(self.clusters, self.weights, strict=True)
        return {client: weights for members, weights in pairs for client in members}

    def expected_bytes(self) -> tuple[int, int]:
        each = self.rounds * self.asked * sum(weight.nbytes for weight in self.weights[0].values())
        return each, each


def _check(client: ClientId, reply: fedavg.TrainReply) -> None:
    if not reply.num_samples >= 0:
        raise MessageError(
            f"client {client}: num_samples is a weight and must be at least 0; {reply.num_samples} came."
        )


def min_cut(weights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The cheapest way to cut a weighted graph in two: which nodes are on the side that has not the first one.

    Of ways that cost the same it is the one that is found first, which depends on the order of nodes alone.

    Args:
        weights: [n, n] symmetric, at least 0; the diagonal does not count. n is at least 2.

    Source: Stoer and Wagner, "A Simple Min-Cut Algorithm", Journal of the ACM 1997.
    """
    left = weights * (1.0 - np.eye(len(weights)))
    groups = np.eye(len(weights), dtype=bool)
    alive = np.ones(len(weights), dtype=bool)
    best, side = np.inf, groups[-1]
    while alive.sum() > 1:
        waiting, tied, last, before = alive.copy(), np.zeros(len(weights)), 0, 0
        while waiting.any():
            before, last = last, int(np.argmax(np.where(waiting, tied, -1.0)))
            waiting[last] = False
            cost = tied[last]
            tied = tied + left[last]
        if cost < best:
            best, side = cost, groups[last].copy()
        left[before] += left[last]
        left[:, before] += left[:, last]
        left[before, before] = 0.0
        groups[before] |= groups[last]
        alive[last] = False
    return np.asarray(~side if side[0] else side)


METHOD = Method(
    about=__doc__,
    name="gcfl",
    family="silos that are unlike",
    near=("CFL", "IFCA"),
    config=GCFLConfig,
    client=Client,
    server=Server,
    tasks=("graph", "node"),
    evaluates=("aggregate", "own"),
    edge_weights=True,
    model={"graph": {"name": "gin_gcfl"}},
    space=(
        {"optimizer": ["adam"], "lr": [0.001, 0.003, 0.01, 0.03], "eps_1": [0.05, 0.25], "eps_2": [0.1, 0.5]},
        {"optimizer": ["sgd"], "lr": [0.01, 0.05, 0.2], "eps_1": [0.05, 0.25], "eps_2": [0.1, 0.5]},
    ),
    trials={
        "eps_1": Trial([0.0], start=1e6),
        "eps_2": Trial(start=0.0),
        "warm_up": Trial(start=0),
        "mean_by": Trial(beside={"eps_1": 0.385}),
        "fan_out": Trial(reason="no neighbours to sample"),
    },
)
