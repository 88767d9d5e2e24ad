"""FedPG — clients with models of their own exchange class prototypes per hop, which the server generalises and mixes
for each.

Wu, Li, Zhu, Li, Wang, Zhou. "Federated Prototype Graph Learning". arXiv 2024/2025.

Only class prototypes travel, one per class and hop, so that clients may run different networks: they share nothing but
the width of their embeddings. The server learns universal prototypes with a contrastive loss and mixes in, for each
client, the prototypes of similar clients.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fedpg.client import Client
from graphsilo.methods.fedpg.config import FedPGConfig
from graphsilo.methods.fedpg.server import Server

METHOD = Method(
    about=__doc__,
    name="fedpg",
    family="prototypes and distillation",
    quick={"server_epochs": 5},
    config=FedPGConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    model={"node": {"name": "gamlp"}, "graph": {"name": "gin"}},
    space={"mu": [0.1, 0.3, 1.0], "alpha": [0.3, 0.5, 0.8]},
    trials={
        "server_epochs": Trial(start=4),
        "confidence": Trial(start=0.3),
        "lr": Trial(start=0.05),
        "similarity": Trial([-1.0]),
        "hops": Trial([0, 1]),
        "max_neighbours": Trial(beside={"hops": 3, "neighbourhood": "within", "centred": False}),
        "norm": Trial(["first", 5.0]),
        "discrepancy": Trial(beside={"margin": 2.0}),
        "noise_scale": Trial(beside={"noise": 0.25}),
    },
)
