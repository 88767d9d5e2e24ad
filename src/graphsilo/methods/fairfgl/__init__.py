"""FairFGL — fused with past global models, corrected against the most dissimilar client, aggregated by clusters.

Wu, Pang, Li, Zhu, Su, Fan, Li, Wang, Zhou. "Towards Unbiased Federated Graph Learning: Label and Topology
Perspectives". arXiv 2025.

Each client mixes its model with the mean of the last global models, learns from that mean's predictions on unlabelled
nodes, draws heterophilous nodes of large classes to the class prototype, and takes out of its gradients what opposes
the most dissimilar client. It uploads the most changed entries only; the server clusters the updates and gives every
cluster the same say.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fairfgl.client import Client
from graphsilo.methods.fairfgl.config import FairFGLConfig
from graphsilo.methods.fairfgl.server import Server

METHOD = Method(
    about=__doc__,
    name="fairfgl",
    family="silos that are unlike",
    config=FairFGLConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "gcn", "hidden": [64]},
    space={"top_k": [0.2, 0.4, 0.6], "distillation": [0.1, 1.0], "alignment": [0.1, 1.0]},
    trials={
        "lr": Trial(start=0.3),
        "local_epochs": Trial(start=2),
        "history": Trial([0, 1]),
        "distillation_until": Trial([2]),
        "eta": Trial([0.8]),
    },
)
