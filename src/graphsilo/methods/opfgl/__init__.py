"""O-pFGL — one-shot personalised federated graph learning.

Yan, Li, Xie, Shen, Fang, Wu. "Personalized One-shot Federated Graph Learning for Heterogeneous Clients".
arXiv 2411.11304.

No weights travel. Clients upload additive class statistics of propagated features; a small surrogate graph is fitted to
their sum; each client trains its own model on it, then fine-tunes on its own graph with node-adaptive distillation. One
upload, one download.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method
from graphsilo.methods.opfgl.client import Client
from graphsilo.methods.opfgl.config import OpFGLConfig
from graphsilo.methods.opfgl.server import Server

METHOD = Method(
    name="opfgl",
    family="one round",
    quick={
        "links": "learned",
        "surrogate_steps": 100,
        "stage1_epochs": 60,
        "stage1_check": 10,
        "stage2_epochs": 40,
        "stage2_check": 10,
    },
    title="O-pFGL",
    citation='Yan et al. "Personalized One-shot Federated Graph Learning for Heterogeneous Clients". arXiv 2411.11304.',
    summary="Class statistics up, a surrogate graph down, once; every client then makes a model of its own.",
    config=OpFGLConfig,
    client=Client,
    server=Server,
    tasks=("node", "link"),
    heterogeneous=True,
    evaluates=("own",),
    model={"name": "gcn", "hidden": 64, "layers": 2},
)
