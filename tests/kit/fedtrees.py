"""What several tests of fedtrees are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo

QUICK = {"depth": 3, "min_child": 2, "bins": 16, "columns": 8}


def part(number: int, nodes: int = 40, features: int = 5, classes: int = 3) -> tuple[np.ndarray, ...]:
    """Features, links and labels of one piece of a graph, which no link leaves."""
    draw = np.random.default_rng(number)
    rows = draw.standard_normal((nodes, features)).astype(np.float32)
    labels = (np.digitize(rows[:, 0] * rows[:, 1], [-0.3, 0.3]) + draw.integers(0, 5, nodes) // 4) % classes
    ends = draw.integers(0, nodes, (2, 2 * nodes))
    return rows, np.concatenate([ends, ends[::-1]], axis=1), labels


def silo_of(client: int, numbers: Sequence[int], classes: int = 3, **more: int) -> Silo:
    """These pieces in one silo, in this order: half of the nodes to learn from, a quarter to validate."""
    parts = [part(number, classes=classes, **more) for number in numbers]
    offsets = np.cumsum([0, *(len(rows) for rows, _, _ in parts)])
    features = np.concatenate([rows for rows, _, _ in parts])
    edges = np.concatenate([ends + offset for (_, ends, _), offset in zip(parts, offsets, strict=False)], axis=1)
    labels = np.concatenate([labels for _, _, labels in parts]).astype(np.int64)
    graph = Graph(features, edges, labels, classes)
    place = np.concatenate([np.arange(len(rows)) % 4 for rows, _, _ in parts])
    items = {name: np.flatnonzero(np.isin(place, which)) for name, which in
             (("train", (0, 1)), ("val", (2,)), ("test", (3,)))}  # fmt: skip
    schema = Schema("node", features.shape[1], classes)
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), schema)


def with_directions(silo: Silo) -> Silo:
    """Half of its links, in one direction and with weights that the features of their ends say."""
    graph = silo.graph
    sources, targets = graph.features[graph.edges]
    kept = sources[:, 1] < targets[:, 1]
    weights = np.exp(sources[kept, 2] + targets[kept, 3])
    graph = replace(graph, edges=graph.edges[:, kept], edge_weights=weights.astype(np.float32))
    schema = replace(silo.schema, directed=True, weighted=True)
    return replace(silo, graph=graph, schema=schema, evaluations=(replace(silo.seen, graph=graph),))
