"""Institutions that the data names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.links import Owners
from graphsilo.data.partition import partition
from graphsilo.errors import PartitionError

# a: 0, 1; b: 2, 3; of nobody 4 (linked with 1 and 2), 5 (linked with 3), 6 (with 4 alone), 7 (with 0, labelled)
EDGES = np.array([[1, 4, 3, 4, 0], [4, 2, 5, 6, 7]])
LABELS = np.array([0, 1, 0, 1, -1, -1, -1, 1])
GRAPH = Graph(
    np.zeros((8, 1), dtype=np.float32), EDGES, LABELS, 2, owners=Owners(("a", "b"), np.array([0, 0, 1, 1, *[-1] * 4]))
)


def test_nodes_of_nobody_are_copied_where_they_are_linked() -> None:
    assert [nodes.tolist() for nodes in partition(GRAPH, "natural").nodes] == [[0, 1, 4], [2, 3, 4, 5]]
    alone = partition(GRAPH, "natural", options={"unowned": "left_out"})
    assert [nodes.tolist() for nodes in alone.nodes] == [[0, 1], [2, 3]]


def test_what_has_no_such_cut_is_refused() -> None:
    with pytest.raises(PartitionError, match="names none"):
        partition(replace(GRAPH, owners=None), "natural")
    with pytest.raises(PartitionError, match="2 institutions, and 3 clients"):
        partition(GRAPH, "natural", clients=3)
    with pytest.raises(PartitionError, match="'c' has no node"):
        partition(replace(GRAPH, owners=Owners(("a", "b", "c"), GRAPH.owners.of_node)), "natural")  # type: ignore[union-attr]
