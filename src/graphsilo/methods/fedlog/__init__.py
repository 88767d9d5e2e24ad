"""FedLoG — subgraph federated learning for local generalization.

Kim, Lee, Oh, Lee, Yun, Lee, Kim, Yang, Park. "Subgraph Federated Learning for Local Generalization". ICLR 2025 (and
FedKDD 2024).

Clients overfit their own classes and fail on rare and missing ones. Each condenses what it knows into learnable nodes
per class, in a branch for well connected nodes and one for the others. The server mixes the former, weighted by how
frequent a class is at a client, into synthetic nodes that every client trains on too.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method
from graphsilo.methods.fedlog.client import Client
from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.server import Server

METHOD = Method(
    name="fedlog",
    family="unseen classes",
    quick={"generator_epochs": 3, "networks": 2, "prototypes": 2, "embedding_dim": 8},
    title="FedLoG",
    citation='Kim et al. "Subgraph Federated Learning for Local Generalization". ICLR 2025.',
    summary="Clients condense classes into learnable nodes; mixed, they teach each client what it never saw.",
    config=FedLoGConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    evaluates=("own",),
    model={"name": "sage", "hidden": [128]},
)
