"""Columns of a node by hand, and that they depend on nobody else's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.methods.fedtrees.columns import node_columns, width_of
from graphsilo.models.view import GraphTensors
from kit.fedtrees import QUICK, silo_of


def test_by_hand_on_a_path():
    """0 - 1 - 2 with the features 1, 3, 5: N X is 3, 3, 3; N² X the same; only node 1's neighbours differ, by 2."""
    ends = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Graph(np.array([[1], [3], [5]], np.float32), ends, np.zeros(3, np.int64), 2)
    found = node_columns(GraphTensors(graph), 64, 0)
    two, three = np.log(2), np.log(3)
    assert found == pytest.approx(
        np.array([[1, 3, 3, 0, two, three], [3, 3, 3, 2, three, two], [5, 3, 3, 0, two, three]]), abs=1e-6
    )
    assert found.shape[1] == width_of(1, 64, 0)


def test_equal_neighbours_deviate_by_exactly_nothing():
    ends = np.array([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]])
    graph = Graph(np.full((4, 1), 0.1, np.float32), ends, np.zeros(4, np.int64), 2)
    assert node_columns(GraphTensors(graph), 64, 0)[:, 3].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dim", [64, 3])
def test_a_row_does_not_depend_on_who_else_is_there(dim):
    together = node_columns(GraphTensors(silo_of(0, [0, 1, 2]).graph), dim, 7)
    apart = [node_columns(GraphTensors(silo_of(0, [number]).graph), dim, 7) for number in range(3)]
    assert np.array_equal(together, np.concatenate(apart))
    assert together.shape[1] == width_of(5, dim, 0)


def test_nobodys_own_label_is_in_a_row_of_its(kit):
    silo = silo_of(0, [0])
    _, federation = kit.build("fedtrees", [silo], **QUICK)
    before = federation.client(0)._rows(federation.client(0).data)
    assert before.shape[1] == width_of(5, 64, 3)
    for node in silo.train[:10]:
        labels = silo.graph.labels.copy()
        labels[node] = (labels[node] + 1) % 3
        graph = replace(silo.graph, labels=labels)
        other = replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),))
        client = kit.build("fedtrees", [other], **QUICK)[1].client(0)
        assert client._rows(client.data)[node] == pytest.approx(before[node], abs=1e-7)
        assert not np.array_equal(client._rows(client.data), before)


def test_elsewhere_nothing_is_known_of_labels(kit):
    client = kit.build("fedtrees", [silo_of(0, [0])], **QUICK)[1].client(0)
    there = client.tensors(silo_of(1, [1]).graph)
    assert not client._rows(there)[:, -6:].any()
    assert client._rows(client.data)[:, -6:].any()
