"""What several tests of fairfgl are made of."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo


def rounds(server, federation, count=1, start=1):
    for number in range(start, start + count):
        federation.at("round", number)
        server.round(federation, number)
    return server.weights


def patch(client=0, *, nodes=24, train=10, classes=2, features=5, seed=0):
    """A random graph whose features tell something about the labels."""
    draw = np.random.default_rng([seed, client])
    pairs = draw.integers(0, nodes, (2, 3 * nodes))
    pairs = pairs[:, pairs[0] != pairs[1]]
    labels = draw.integers(0, classes, nodes)
    values = draw.standard_normal((nodes, features)).astype(np.float32)
    values[:, 0] += labels
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1).astype(np.int64)
    graph = Graph(values, edges, labels.astype(np.int64), classes)
    order = draw.permutation(nodes)
    chosen = np.sort(order[:train])
    items = {"train": chosen, "val": np.sort(order[train : train + 6]), "test": np.sort(order[train + 6 :])}
    return Silo(client, graph, chosen, (EvaluationSet("seen", graph, items),), Schema("node", features, classes))
