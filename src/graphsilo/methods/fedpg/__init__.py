"""FedPG — federated prototype graph learning.

Wu, Li, Zhu, Li, Wang, Zhou. "Federated Prototype Graph Learning". arXiv 2024/2025.

Only class prototypes travel, one per class and hop, so that clients may run different networks: they share nothing but
the width of their embeddings. The server learns universal prototypes with a contrastive loss and mixes in, for each
client, the prototypes of similar clients.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method
from graphsilo.methods.fedpg.client import Client
from graphsilo.methods.fedpg.config import FedPGConfig
from graphsilo.methods.fedpg.server import Server

METHOD = Method(
    name="fedpg",
    family="prototypes",
    quick={"server_epochs": 5},
    title="FedPG",
    citation='Wu et al. "Federated Prototype Graph Learning". arXiv, 2024.',
    summary="Clients with models of their own exchange class prototypes per hop, which the server generalises and "
    "mixes for each.",
    config=FedPGConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    model={"node": {"name": "gamlp"}, "graph": {"name": "gin"}},
)
