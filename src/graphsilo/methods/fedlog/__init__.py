"""FedLoG — clients condense classes into learnable nodes; mixed, they teach each client what it never saw.

Kim, Lee, Oh, Lee, Yun, Lee, Kim, Yang, Park. "Subgraph Federated Learning for Local Generalization". ICLR 2025 (and
FedKDD 2024).

Clients overfit their own classes and fail on rare and missing ones. Each condenses what it knows into learnable nodes
per class, in a branch for well connected nodes and one for the others. The server mixes the former, weighted by how
frequent a class is at a client, into synthetic nodes that every client trains on too.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fedlog.client import Client
from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.server import Server

METHOD = Method(
    about=__doc__,
    name="fedlog",
    family="rare and missing classes",
    quick={"generator_epochs": 3, "networks": 2, "prototypes": 2, "embedding_dim": 8},
    config=FedLoGConfig,
    client=Client,
    server=Server,
    makes_graphs=True,
    tasks=("node",),
    evaluates=("own",),
    model={"name": "sage", "hidden": [128]},
    space=({"lr": [0.0003, 0.001, 0.003], "prototype_lr": [0.001, 0.01], "norm_weight": [0.01, 0.1, 1.0]},),
    trials={
        "compat": Trial(beside={"pretrain_epochs": 3}),
        "networks": Trial(start=3),
        "prototypes": Trial(start=4),
        "batch_size": Trial(start=8),
        "interp": Trial(start=4),
        "difficulty_decrease": Trial(beside={"difficulty_step": 0.9, "difficulty_threshold": 0.1}),
        "generator_output": Trial(["identity"]),
        "pretrain_patience": Trial([1], {"pretrain_epochs": 15, "lr": 0.01}),
        "rate_epsilon": Trial([0.5]),
        "rate_permutation": Trial(beside={"rate_noise": 0.1}),
        "receiver": Trial([0]),
    },
)
