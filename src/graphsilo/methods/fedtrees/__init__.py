"""FedTrees — boosted trees on propagated features: exact sums of histograms each round, then a choice at each silo.

graphsilo's own; boosted trees from sums of histograms, on propagated features.

Every silo makes the same fixed columns of its nodes (``node_columns``), or graphs (``graphs``). A round is one step of
boosting: level by level, silos send how many of their training nodes fall into each bin of each column, with the sums
of their gradients and hessians, as whole numbers; the server adds them up and takes the best splits. The trees are the
ones that all silos' rows in one place would have given, bit for bit, whatever the number of silos or their order.
Validation says after how many rounds a model is best, as in any method. Each silo also corrects the leaves towards its
own rows and grows trees of its own rows alone, and takes what its own validation nodes prefer.

Ours; the parts are known: Friedman, "Greedy Function Approximation", 2001; Chen and Guestrin, "XGBoost", KDD 2016
(gain, histograms); Shi et al., "Quantized Training of Gradient Boosting Decision Trees", NeurIPS 2022 (whole numbers);
horizontal sums of histograms as in FederBoost and FedTree; columns and directions see there.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fedtrees.client import Client
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.server import Server

METHOD = Method(
    about=__doc__,
    name="fedtrees",
    family="trees",
    near=("SecureBoost", "FedXGB"),
    config=FedTreesConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph", "regression", "multilabel"),
    backbone=False,
    edge_weights=True,
    choices={"chosen": ("the common forest", "the common forest with own corrections", "own trees alone")},
    balances="balance=0.5",
    space=({"lr": [0.05, 0.1, 0.2], "depth": [3, 4, 5, 6], "columns": [32, 64, 128], "min_child": [5, 10, 20]},),
    trials={
        "columns": Trial([3]),
        "dim": Trial([2]),
        "gamma": Trial([1.0]),
        "balance": Trial([1.0]),
    },
)
