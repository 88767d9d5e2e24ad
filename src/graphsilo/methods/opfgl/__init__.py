"""O-pFGL — class statistics up, a surrogate graph down, once; every client then makes a model of its own.

Yan, Li, Xie, Shen, Fang, Wu. "Personalized One-shot Federated Graph Learning for Heterogeneous Clients".
arXiv 2411.11304.

No weights travel. Clients upload additive class statistics of propagated features; a small surrogate graph is fitted to
their sum; each client trains its own model on it, then fine-tunes on its own graph with node-adaptive distillation. One
upload, one download.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.opfgl.client import Client
from graphsilo.methods.opfgl.config import OpFGLConfig
from graphsilo.methods.opfgl.server import Server

METHOD = Method(
    about=__doc__,
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
    makes_graphs=True,
    config=OpFGLConfig,
    client=Client,
    server=Server,
    tasks=("node", "link"),
    heterogeneous=True,
    evaluates=("own",),
    model={"name": "gcn", "hidden": 64, "layers": 2},
    space=(
        {
            "stage2_lr": [0.00005, 0.0005, 0.005],
            "hops": [1, 2],
            "nodes_per_class": [1, 3],
            "expand_classes": [0, 1, 3],
        },
    ),
    trials={
        "surrogate_steps": Trial(start=60),
        "stage1_epochs": Trial(start=30),
        "stage2_epochs": Trial(start=20),
        "stage1_lr": Trial(start=1e-2),
        "stage2_lr": Trial(start=1e-2),
        "link_epochs": Trial(start=20),
        "link_check": Trial([2], start=5),
        "expand_classes": Trial([0]),
        "ddof": Trial(beside={"nodes_per_class": 3}),
        "condense_at": Trial(reason="the same surrogate at either place is its promise"),
        "link_threshold": Trial([0.5]),
        "noise": Trial(reason="needs secure sums"),
        "nodes_percent": Trial([50.0]),
        "moment": Trial(beside={"nodes_per_class": 3}),
        "patience": Trial([1], {"stage1_check": 2, "stage2_check": 2}),
        "gamma_max": Trial([0.05]),
        "focal_gamma": Trial(beside={"fine_tune": "focal"}),
    },
)
