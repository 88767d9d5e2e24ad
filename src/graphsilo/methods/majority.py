"""Majority class — every silo answers with the most frequent class of its training items; nothing is learned or shared.

The constant answer that every comparison should beat.

The row below all others: it looks at no feature and no edge. Where it is as good as a method, the score measures
nothing but the cut's skew.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerBase
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.models.view import GraphTensors


class MajorityConfig(OneRoundConfig):
    """Settings of the constant answer."""


class CountRequest(Message):
    """Count the classes."""


class CountReply(Message):
    """Done; the counts stay."""

    clients: int = sends("counts", known=True)


class Client(ClientBase[MajorityConfig]):
    """Knows how often each class occurs among its training items; nothing before it has counted them."""

    kept = ("counts",)

    def __init__(self, context: ClientContext[MajorityConfig]):
        super().__init__(context)
        self.counts = torch.zeros(self.silo.schema.num_classes)

    @handler
    def count(self, request: CountRequest) -> CountReply:
        """Count the classes of the training items."""
        self.counts = torch.from_numpy(self.silo.class_counts().astype(np.float32))
        return CountReply(clients=1)

    no_export = "it says the same of all, the shares of classes in training"

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        # Without a training item all classes are alike, and the first is the answer; so it is among equals.
        shares = self.counts / self.counts.sum() if self.counts.any() else torch.full_like(self.counts, 1.0)
        return shares.clamp_min(1e-12).log().expand(data.full.num_items, -1).to(data.device)

    def final_models(self) -> dict[str, Tensors]:
        return {"own": {"counts": self.counts}}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self.counts = models["own"]["counts"]


class Server(ServerBase[MajorityConfig]):
    """Only says when to count."""

    def round(self, federation: Federation, number: int) -> None:
        # There is no other round: with ``participation``, too, every silo finds its answer.
        federation.sum(Client.count, CountRequest()).require(self.config.min_clients)


METHOD = Method(
    about=__doc__,
    name="majority",
    family="references",
    config=MajorityConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    alone=True,
    seedless=True,
    backbone=False,
    edge_weights=True,
    trials={
        "participation": Trial(reason="nothing is learned"),
    },
)
