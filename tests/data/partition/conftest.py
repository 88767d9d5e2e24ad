"""Small graphs worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition
from kit.silos import ids


def make_graph(
    links: Sequence[tuple[int, int]], labels: Sequence[int], *, num_classes: int | None = None, name: str = "tiny"
) -> Graph:
    """An undirected graph from links, each named once; node i has the feature i."""
    pairs = np.array(links, dtype=np.int64).reshape(-1, 2).T
    edges = np.concatenate([pairs, pairs[::-1]], axis=1)
    edges = edges[:, np.lexsort((edges[1], edges[0]))]
    return Graph(
        features=np.arange(len(labels), dtype=np.float32)[:, None],
        edges=edges,
        labels=np.array(labels, dtype=np.int64),
        num_classes=num_classes or max(labels) + 1,
        name=name,
    )


def make_blocks(blocks: int, size: int, *, classes: int = 2) -> Graph:
    """Complete blocks of ``size`` nodes in a ring, joined by one link each; block b has the class b mod classes."""
    links = []
    for block in range(blocks):
        first = block * size
        links += [(first + i, first + j) for i in range(size) for j in range(i + 1, size)]
        if blocks > 1:
            links.append((first + size - 1, (first + size) % (blocks * size)))
    labels = np.repeat(np.arange(blocks) % classes, size)
    return make_graph(links, labels.tolist(), num_classes=classes)


@pytest.fixture
def two_triangles() -> Graph:
    """Triangles 0-1-2 (class 0) and 3-4-5 (class 1), joined by the link 2-3."""
    return make_graph([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5)], [0, 0, 0, 1, 1, 1])


@pytest.fixture
def blocks() -> Graph:
    """Eight complete blocks of 10 nodes in a ring; classes 0 and 1 alternate."""
    return make_blocks(8, 10)


@pytest.fixture
def small() -> Partition:
    """Two clients on six nodes."""
    return Partition(
        rule="files",
        seed=1,
        data="tiny",
        num_nodes=6,
        nodes=(ids(2, 0, 1), ids(3, 4, 5)),
        train=(ids(2), ids(3)),
        val=(ids(0), ids(4)),
        test=(ids(1), ids(5)),
        options={"path": "x"},
    )
