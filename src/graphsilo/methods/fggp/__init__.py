"""FGGP — FedAvg that classifies by clusters of prototypes, and trains on a second view with links drawn again.

Wan, Huang, Ye. "Federated Graph Learning under Domain Shift with Generalizable Prototypes". AAAI 2024.

FedAvg for clients from different domains. The server clusters the clients' prototypes of each class, so that a domain
is not averaged away, and items are classified by the prototypes most like them. Each client also trains on a second
view of its graph, with links between nodes that are far apart and look alike, and keeps the prototypes of both views
together.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fggp.client import Client
from graphsilo.methods.fggp.config import FGGPConfig
from graphsilo.methods.fggp.server import Server

METHOD = Method(
    about=__doc__,
    name="fggp",
    family="prototypes and distillation",
    config=FGGPConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    evaluates=("aggregate", "own"),
    space={"augment": [0.1, 1.0], "predict": ["prototype", "head"]},
    trials={
        "fan_out": Trial(reason="every step computes all nodes"),
        "refresh": Trial([1]),
        "predict": Trial(reason="how items are classified"),
        "memory": Trial(reason="how items are classified"),
        "voters": Trial(reason="how items are classified"),
        "vote_temperature": Trial(reason="how items are classified"),
    },
    reduces_to=("fedavg", {"augment": 0.0, "predict": "head", "weight_by": "train"}),
)
