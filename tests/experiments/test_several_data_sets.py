"""Clients with data sets of their own: what stands for one that is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.experiments.several_data_sets import stand_in


def small(labels: list[int], columns: int = 2, *, sparse: bool = False) -> Graph:
    """As many nodes in a row as there are labels; the first one trains."""
    count = len(labels)
    features = np.ones((count, columns), dtype=np.float32)
    return Graph(
        sp.csr_matrix(features) if sparse else features,
        np.array([[0, 1], [1, 0]]),
        np.array(labels),
        3,
        splits={name: np.arange(count) == place for place, name in enumerate(("train", "val", "test"))},
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_as_many_nodes_as_it_has_with_nothing_of_its_own(sparse: bool) -> None:
    graph = stand_in(small([0, 1], sparse=sparse), small([2, -1, 1], columns=5, sparse=not sparse))
    assert isinstance(graph, Graph)
    assert (graph.features.shape, graph.is_sparse, graph.features.sum()) == ((3, 2), sparse, 0)
    assert graph.edges.shape == (2, 0)
    assert (graph.labels.tolist(), graph.num_classes) == ([0, -1, 0], 3)  # only whether they are known
    assert {name: mask.tolist() for name, mask in graph.splits.items()} == dict.fromkeys(graph.splits, [False] * 3)
    assert len(graph.splits) == 3
    assert stand_in(small([0, 1]), None).union.num_nodes == 0


def test_as_many_graphs_as_it_has() -> None:
    union = replace(small([-1, -1, -1]), splits={})
    like = GraphCollection(union, np.array([0, 2, 3]), np.array([1, 2]), 3, "some")
    for item, labels in ((like, [1, 2]), (None, [0])):
        found = stand_in(like, item)
        assert isinstance(found, GraphCollection)
        assert (found.labels.tolist(), found.pointer.tolist()) == (labels, list(range(len(labels) + 1)))
        assert (found.union.num_edges, found.union.num_nodes) == (0, len(labels))
