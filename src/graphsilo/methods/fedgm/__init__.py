"""FedGM — condensed graphs up, once; the server trains on them, and refines them by later rounds' gradients.

Zhang, Hu, Li, Zhu. "Rethinking Federated Graph Learning: A Data Condensation Perspective". IJCAI 2025.

Every client makes a small graph on which random networks have the gradients that they have on its own graph, and sends
it once. The server joins these graphs and trains a model on them. In later rounds it moves their features towards the
class gradients that clients report on further random networks.
"""

from __future__ import annotations

from graphsilo.federation.registry import Method, Trial
from graphsilo.methods.fedgm.client import Client
from graphsilo.methods.fedgm.config import FedGMConfig
from graphsilo.methods.fedgm.server import Server

METHOD = Method(
    about=__doc__,
    name="fedgm",
    family="one round",
    quick={"steps": 20, "epochs": 20, "match_hidden": 8, "ratio": 0.5, "checkpoints": 2, "train_every": 2},
    aliases=("fed_gm",),
    config=FedGMConfig,
    client=Client,
    server=Server,
    makes_graphs=True,
    tasks=("node",),
    evaluates=("aggregate", "own"),
    edge_weights=True,
    space=({"lr": [0.003, 0.01, 0.03], "ratio": [0.1, 0.25, 0.5], "links": ["learned", "edgeless"]},),
    trials={
        "train_every": Trial(reason="the last round ends with a new model, whatever it says"),
        "class_items": Trial([2]),
        "max_nodes": Trial([3]),
        "cycle": Trial([8]),
        "checkpoints": Trial([20]),
    },
)
