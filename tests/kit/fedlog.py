"""What several tests of fedlog are made of."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo

SHORT = {"generator_epochs": 3, "networks": 2, "prototypes": 2, "embedding_dim": 8}


def silo_of(client, labels, *, train=None, classes=3, nodes=12, features=5):
    """A ring of nodes with these labels for the first ones; all others are unlabelled to training."""
    draw = np.random.default_rng(client)
    ring = np.stack([np.arange(nodes), np.roll(np.arange(nodes), 1)])
    all_labels = np.resize(np.array(labels), nodes).astype(np.int64)
    graph = Graph(
        features=(draw.random((nodes, features)) < 0.4).astype(np.float32),
        edges=np.concatenate([ring, ring[::-1]], axis=1).astype(np.int64),
        labels=all_labels,
        num_classes=classes,
    )
    chosen = np.arange(len(labels)) if train is None else np.array(train, dtype=np.int64)
    rest = np.setdiff1d(np.arange(nodes), chosen)
    items = {"train": chosen, "val": rest[::2], "test": rest[1::2]}
    return Silo(client, graph, chosen, (EvaluationSet("seen", graph, items),), Schema("node", features, classes))


def build(kit, silos, **settings):
    return kit.build("fedlog", silos, model="sage", **{**SHORT, **settings})
