"""FedGCN — FedAvg of a GCN whose first propagation spans all silos: sums of neighbours, exchanged once.

Yao, Jin, Ravi, Joe-Wong. "FedGCN: Convergence-Communication Tradeoffs in Federated Training of Graph Convolutional
Networks". NeurIPS 2023.

FedAvg of a GCN whose first propagation is that of the whole graph: before round 1 the silos add up, over the links
between them, what the neighbours of each node contribute.
"""

from __future__ import annotations

import torch

from graphsilo.errors import UnsupportedError
from graphsilo.federation.borders import values_beyond
from graphsilo.federation.interface import Federation
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.methods import fedavg
from graphsilo.methods.fedgcn.client import Client
from graphsilo.methods.fedgcn.config import FedGCNConfig
from graphsilo.methods.fedgcn.messages import Degrees, Empty, Totals

CONVOLUTIONS = ("gcn", "sgc_stacked")
"""Backbones whose every layer is Â H W."""


class Server(fedavg.Server[FedGCNConfig]):
    """Adds up neighbours once, then averages models."""

    def __init__(self, context: ServerContext[FedGCNConfig]):
        super().__init__(context)
        if context.config.hops and context.common.name not in CONVOLUTIONS:
            raise UnsupportedError(
                f"FedGCN gives a graph convolution the sums that its first layer would make; "
                f"{context.common.name} makes no such sums. Use --model gcn, or --set method.hops=0, which is FedAvg."
            )

    def set_up(self, federation: Federation) -> None:
        if not self.config.hops:
            return
        minimum = self.config.min_clients
        borders = dict(federation.ask(Client.border, Empty()).require(minimum))
        while True:
            degrees = values_beyond(borders, {client: border.degrees for client, border in borders.items()})
            requests = {client: Degrees(degrees=found) for client, found in degrees.items()}
            totals = federation.sum_rows(Client.sums, requests, width=self.schema.num_features).require(minimum)
            if len(totals.clients) == len(requests):
                break
            # Links to nodes whose silo did not add its share would count with a part of their sums: once more without.
            borders = {client: borders[client] for client in totals.clients}
        wanted = {client: border.own for client, border in borders.items()}
        if self.config.hops == 2:
            wanted = {client: torch.cat([own, borders[client].beyond]) for client, own in wanted.items()}
        federation.ask(Client.install, {client: Totals(rows=totals.of(ids)) for client, ids in wanted.items()}).require(
            minimum
        )


METHOD = Method(
    about=__doc__,
    name="fedgcn",
    family="missing neighbours",
    config=FedGCNConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    evaluates=("aggregate", "own"),
    model={"name": "gcn", "hidden": [16]},
    cut_links=True,
    trials={
        "fan_out": Trial([1], {"hops": 0}),
    },
    reduces_to=("fedavg", {"hops": 0, "optimizer": "adam", "lr": 0.01, "weight_by": "train"}),
)
