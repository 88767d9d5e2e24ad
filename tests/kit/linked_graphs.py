"""Small graphs from their links."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph, GraphCollection


def collection(parts, features=None, labels=None):
    """Graphs of numbers of nodes and undirected links."""
    pointer = np.cumsum([0, *(nodes for nodes, _ in parts)])
    ends = [(a + start, b + start) for (_, links), start in zip(parts, pointer, strict=False) for a, b in links]
    both = np.array([*ends, *((b, a) for a, b in ends)], dtype=np.int64).reshape(-1, 2).T
    rows = np.ones((pointer[-1], 1), np.float32) if features is None else features
    union = Graph(rows, both, np.full(pointer[-1], -1, dtype=np.int64), 2)
    classes = np.zeros(len(parts), dtype=np.int64) if labels is None else np.asarray(labels)
    return GraphCollection(union, pointer, classes, 2)


def drawn(number, nodes=9):
    """A graph with as many links as nodes, or three times as many: its class."""
    draw = np.random.default_rng(number)
    ends = draw.integers(0, nodes, (nodes * (1 + 2 * (number % 2)), 2))
    return nodes, sorted({(int(min(pair)), int(max(pair))) for pair in ends if pair[0] != pair[1]})
