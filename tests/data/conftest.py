"""Small graphs that the tests of silos share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def undirected(pairs: list[tuple[int, int]]) -> np.ndarray:
    edges = np.array(pairs + [(b, a) for a, b in pairs], dtype=np.int64).T
    return edges[:, np.lexsort((edges[1], edges[0]))]


@pytest.fixture
def path() -> Graph:
    """A path of nine nodes; labels 0 0 1 | 1 0 2 | 2 2 0."""
    return Graph(
        features=np.arange(9, dtype=np.float32)[:, None],
        edges=undirected([(i, i + 1) for i in range(8)]),
        labels=ids(0, 0, 1, 1, 0, 2, 2, 2, 0),
        num_classes=3,
        name="path",
    )


@pytest.fixture
def cut_path() -> Partition:
    """Clients 0-1-2 and 3-4-5; the new client holds 6-7-8."""
    return Partition(
        rule="files",
        seed=0,
        data="path",
        num_nodes=9,
        nodes=(ids(0, 1, 2), ids(5, 4, 3)),
        train=(ids(0, 2), ids(4, 5)),
        val=(ids(1), ids()),
        test=(ids(), ids(3)),
        new_part=ids(6, 7, 8),
    )


def make_random_graph(seed: int = 0, nodes: int = 240) -> Graph:
    generator = np.random.default_rng(seed)
    block = np.arange(nodes) % 6
    pairs = np.stack(np.triu_indices(nodes, 1))
    kept = generator.random(pairs.shape[1]) < np.where(block[pairs[0]] == block[pairs[1]], 0.2, 0.01)
    edges = np.concatenate([pairs[:, kept], pairs[::-1, kept]], axis=1)
    labels = np.where(generator.random(nodes) < 0.2, generator.integers(5, size=nodes), block % 5)
    labels[:4] = -1
    return Graph(generator.standard_normal((nodes, 3)).astype(np.float32), edges, labels, 5, name="random")


@pytest.fixture
def random_graph() -> Callable[..., Graph]:
    """Six blocks in five classes; the first four nodes have no label."""
    return make_random_graph
