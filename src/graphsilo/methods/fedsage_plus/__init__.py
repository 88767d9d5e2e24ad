"""FedSage+ — FedSage on graphs mended with neighbours from generators that clients train with each other's gradients.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021.

Every client learns, by hiding some of its own nodes, how many neighbours a node lacks and what their features are. The
others help: they send the gradient of the distance between what a client's generator makes and their own features,
never the features. The generated neighbours are added to the client's graph once; then FedSage runs on mended graphs.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fedsage_plus.client import Client
from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig, GeneratorConfig
from graphsilo.methods.fedsage_plus.server import Server

__all__ = ["METHOD", "Client", "FedSagePlusConfig", "GeneratorConfig", "Server"]

METHOD = Method(
    about=__doc__,
    name="fedsage_plus",
    family="missing neighbours",
    aliases=("fedsage+",),
    quick={
        "local_generator_epochs": 2,
        "generator_epochs": 2,
        "generator_hidden": (16, 32),
        "encoder_widths": (8, 16),
    },
    makes_graphs=True,
    near=("FedNI",),
    config=FedSagePlusConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "sage", "hidden": 64},
    trials={
        "local_epochs": Trial(start=1),
        "lambda_f": Trial(start=0.5),
        "count_bias": Trial(start=1.7),
        "generator_hidden": Trial([(8,)]),
        "encoder_widths": Trial([(4, 8)]),
        "helpers": Trial([1]),
    },
)
