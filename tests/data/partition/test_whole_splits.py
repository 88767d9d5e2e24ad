"""Splits of a whole graph."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition.whole_splits import map_to_clients, predefined_split
from graphsilo.errors import DataError


def make_graph(labels: list[int], **splits: np.ndarray) -> Graph:
    n = len(labels)
    edges = np.stack([np.arange(n), np.roll(np.arange(n), 1)])
    return Graph(np.zeros((n, 1), dtype=np.float32), edges, np.array(labels), max(labels) + 1, splits=splits)


def test_a_global_split_is_seen_from_each_client_in_its_order() -> None:
    split = (np.array([0, 3]), np.array([1, 2]), np.array([4]))
    found = map_to_clients(split, [np.array([4, 3, 0]), np.array([2, 1])], num_items=5)
    assert [part.tolist() for part in found[0]] == [[3, 0], [], [4]]
    assert [part.tolist() for part in found[1]] == [[], [2, 1], []]


def test_predefined_splits_by_column_without_unlabelled_nodes() -> None:
    column = np.array([[True, False], [False, True], [True, True], [False, False]])
    graph = make_graph([0, 1, -1, 0], train=column, val=~column, test=np.zeros((4, 2), dtype=bool))
    assert [part.tolist() for part in predefined_split(graph)] == [[0], [1, 3], []]
    assert [part.tolist() for part in predefined_split(graph, split_index=1)] == [[1], [0, 3], []]
    with pytest.raises(DataError, match="2 predefined splits"):
        predefined_split(graph, split_index=2)


def test_data_without_a_predefined_split_says_so() -> None:
    with pytest.raises(DataError, match="carries no predefined train or val or test split"):
        predefined_split(make_graph([0, 1]))
    one = np.array([True, False])
    graph = make_graph([0, 1], train=one, val=~one, test=~one & one)
    with pytest.raises(DataError, match="one predefined split"):
        predefined_split(graph, split_index=1)
