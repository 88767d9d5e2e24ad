"""What several tests of fedsage_plus are made of."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.data.graph import Graph
from graphsilo.methods.fedsage_plus import Client
from graphsilo.methods.fedsage_plus.messages import PretrainRequest

SMALL = {
    "local_generator_epochs": 2,
    "generator_epochs": 2,
    "generator_hidden": (8, 16),
    "encoder_widths": (4, 8),
}


ROUNDED = {"hidden_share": 0.5, "loss_counts": "round", "mend_counts": "round", "cross_targets": "neighbours"}
"""What the release does: no draw decides how many neighbours there are."""


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def graph_of(edges, nodes, *, features=None, labels=None):
    both = np.array([*edges, *((b, a) for a, b in edges)], dtype=np.int64).reshape(-1, 2).T
    matrix = np.eye(nodes, dtype=np.float32) if features is None else np.asarray(features, dtype=np.float32)
    return Graph(matrix, both, np.zeros(nodes, np.int64) if labels is None else np.asarray(labels), 2)


# -- the exchange ----------------------------------------------------------------------------------------------------


def pair(kit, **settings):
    """Two clients after local training, the first with some predicted neighbours."""
    silos = [kit.tiny_silo(client, nodes=24, train=range(0, 24, 2)) for client in range(2)]
    settings = {**SMALL, **ROUNDED, "count_bias": 2.6, "generator_dropout": 0.5, **settings}
    server, federation = kit.build("fedsage_plus", silos, model="sage", **settings)
    federation.at("setup", 0)
    federation.sum(Client.pretrain, PretrainRequest())
    return server, federation
