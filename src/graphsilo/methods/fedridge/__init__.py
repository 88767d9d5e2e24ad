"""FedRidge — ridge regression on propagated features: one exact round of sums, then a correction at each silo.

graphsilo's own; ridge regression from sums, on propagated features.

Every silo makes the same fixed features of its nodes (``features``) and sends the sums that a ridge needs,
Σ w φ φᵀ and Σ w φ yᵀ over its training nodes. The model of the total is the one that all silos' rows in one place would
have given, whatever the cut, the number of silos or their order. Penalty, features and class balance are chosen by
validation counts, which are sums, too. Each silo then corrects the common model towards its own rows, as far as its own
validation nodes say that this helps, or takes a ridge of its own rows alone where that is clearly better.

Ours; the parts are known: Hoerl and Kennard, "Ridge Regression", Technometrics 1970; exact aggregation from sufficient
statistics as in Fed3R (Fanì et al., ICML 2024) and AFL (He et al., CVPR 2025); features see ``features``.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fedridge.client import Client
from graphsilo.methods.fedridge.config import FedRidgeConfig
from graphsilo.methods.fedridge.server import Server

METHOD = Method(
    about=__doc__,
    name="fedridge",
    family="one round",
    near=("AFL", "Fed3R"),
    config=FedRidgeConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph", "regression", "multilabel"),
    backbone=False,
    edge_weights=True,
    balances="balance=[0,0.5,1]",
    trials={
        "features": Trial(["sgc", "separate"], start="mean"),
        "label_features": Trial(start="never"),
        "ridge": Trial([(0.01,)], start=(100.0,)),
        "prior": Trial([(0.2,)], start=(0.0,)),
        "own_ridge": Trial([(100.0,)], start=(0.01,)),
        "pilot": Trial([1], {"features": "auto", "ridge": (0.01,), "own": False}),
        "hops": Trial([0, 1]),
        "dim": Trial([4]),
        "balance": Trial([(1.0,)]),
        "wire": Trial(["float32"]),
        "noise": Trial(reason="needs secure sums"),
        "private_dim": Trial([2], {"epsilon": 2.0}),
        "random_features": Trial([7]),
    },
)
