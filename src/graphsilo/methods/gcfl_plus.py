"""GCFL+ — GCFL whose clusters split by how the clients' gradient norms changed over several rounds.

Xie, Ma, Xiong, Yang. "Federated Graph Classification over Non-IID Graphs". NeurIPS 2021.

One round's update is a noisy view of a client. The server keeps the last gradient norms of each, compares these
sequences by dynamic time warping, and cuts a cluster where they are least alike. All else is GCFL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.interface import Replies, handler
from graphsilo.federation.message import sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg, gcfl
from graphsilo.types import ClientId


class GCFLPlusConfig(gcfl.GCFLConfig):
    """Settings of GCFL+."""

    window: int = setting(5, "norms of a client that are compared (d)", ge=1,
        source="authors' code for one data set; 10 for several", when=gcfl.SPLITTING,
    )  # fmt: skip
    norm_of: Literal["gradient", "update"] = setting(
        "gradient",
        "whose norm: the last step's gradient, or the round's update",
        source="paper; update is its variant dWs",
        when=gcfl.SPLITTING,
    )
    standardize: bool = setting(
        False, "divide a client's norms by their standard deviation, to compare trends alone", source="authors' code",
        when=gcfl.SPLITTING,
    )  # fmt: skip


class TrainReply(fedavg.TrainReply):
    """The model after local training, and one norm."""

    norm: float = sends("gradient")

    def check(self) -> None:
        super().check()
        if self.norm < 0:
            raise MessageError(f"a norm is at least 0; {self.norm:g} came.")


class Client(gcfl.Client[GCFLPlusConfig]):
    """Says how long its last gradient, or its update, was."""

    @handler
    def train(self, request: fedavg.TrainRequest) -> TrainReply:
        """Download, train, upload."""
        self.download(request.weights)
        names, last = [name for name, _ in self.model.named_parameters()], torch.zeros(())
        places = [place for place, name in enumerate(names) if name in request.weights]

        def note(gradients: list[Tensor], _: object) -> None:
            nonlocal last
            last = norm([gradients[place] for place in places])

        by_gradient = self.config.norm_of == "gradient"
        self.run_epochs(adjust=note if by_gradient else None)
        if not by_gradient:
            last = norm(
                [self.weights[name].detach() - old.to(self.data.device) for name, old in request.weights.items()]
            )
        return TrainReply(weights=self.upload(), num_samples=self.weight, norm=float(last))


class Server(gcfl.Server[GCFLPlusConfig]):
    """Keeps the last norms of every client.

    Attributes:
        norms: By client, since the last split, oldest first.
    """

    kept = (*gcfl.Server.kept, "norms")
    client: type[fedavg.Client[Any]] = Client

    def __init__(self, context: ServerContext[GCFLPlusConfig]):
        super().__init__(context)
        self.norms: dict[ClientId, list[float]] = {}

    def observe(self, replies: Replies[Any]) -> None:
        for client, reply in replies:
            self.norms[client] = [*self.norms.get(client, []), reply.norm][-self.config.window :]

    def similarities(self, members: Sequence[ClientId]) -> NDArray[np.float64] | None:
        """[m, m] the largest distance of two sequences, less theirs; None before all are long enough, or if all are
        equal. Where they are used the cluster splits, and all sequences start again.
        """
        if any(len(self.norms.get(client, [])) < self.config.window for client in self.context.clients):
            return None
        rows = np.array([self.norms[client] for client in members])
        if self.config.standardize:
            deviation = rows.std(axis=1, keepdims=True)
            rows = rows / np.where(deviation > 0, deviation, 1.0)
        distances = np.array([[warped_distance(one, other) for other in rows] for one in rows])
        if distances.max() < 1e-12:
            return None
        self.norms = {}
        return np.asarray(distances.max() - distances)


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """The length of several tensors as one vector."""
    found: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(tensors))))
    return found


def warped_distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """√ of the least sum of squared differences over ways to walk both sequences from their starts to their ends, where
    each step goes on in one of them or in both.

    Source: Sakoe and Chiba, "Dynamic Programming Algorithm Optimization for Spoken Word Recognition", 1978.
    """
    costs = np.full((len(one) + 1, len(other) + 1), np.inf)
    costs[0, 0] = 0.0
    for i, value in enumerate(one):
        for j, there in enumerate(other):
            costs[i + 1, j + 1] = (value - there) ** 2 + min(costs[i, j], costs[i, j + 1], costs[i + 1, j])
    return float(np.sqrt(costs[-1, -1]))


METHOD = Method(
    about=__doc__,
    name="gcfl_plus",
    family="silos that are unlike",
    config=GCFLPlusConfig,
    client=Client,
    server=Server,
    aliases=("gcfl+",),
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
        "warm_up": Trial([2], start=0),
        "window": Trial(start=2),
        "mean_by": Trial(beside={"eps_1": 0.385, "window": 1}),
        "fan_out": Trial(reason="no neighbours to sample"),
    },
)
