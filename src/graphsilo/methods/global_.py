"""Centralised — trains on all silos' data pooled in one place; what a federation could reach without privacy.

The upper reference of every comparison.

With ``cross_edges`` the pooled graph has every edge; without, only those inside clients, which shows what the lost
edges cost. It is FedAvg with a single client that holds everything, hence the same schedule and the same numbers as
FedAvg when there is one client.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg


class GlobalConfig(fedavg.FedAvgConfig):
    """Settings of centralised training."""

    cross_edges: bool = setting(True, "keep the edges between clients in the pooled graph")


METHOD = Method(
    about=__doc__,
    name="global",
    family="references",
    config=GlobalConfig,
    client=fedavg.Client,
    server=fedavg.Server,
    evaluates=("own",),
    pooled=True,
    edge_weights=True,
)
