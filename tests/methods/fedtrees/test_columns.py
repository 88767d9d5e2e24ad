"""Columns of a node by hand, and that they depend on nobody else's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.methods.fedtrees import columns
from graphsilo.methods.fedtrees.columns import node_columns, width_of
from graphsilo.models.view import GraphTensors
from kit.fedtrees import QUICK, silo_of

NONE = np.zeros((1, 0), np.float32)


def test_by_hand_on_a_path():
    """0 - 1 - 2 with the features 1, 3, 5: N X is 3, 3, 3; N² X the same; only node 1's neighbours differ, by 2."""
    ends = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Graph(np.array([[1], [3], [5]], np.float32), ends, np.zeros(3, np.int64), 2)
    found = node_columns([GraphTensors(graph)], 64, NONE, 0)
    two, three = np.log(2), np.log(3)
    assert found == pytest.approx(
        np.array([[1, 3, 3, 0, two, three], [3, 3, 3, 2, three, two], [5, 3, 3, 0, two, three]]), abs=1e-6
    )
    assert found.shape[1] == width_of(1, 64, 0)


def test_equal_neighbours_deviate_by_exactly_nothing():
    ends = np.array([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]])
    graph = Graph(np.full((4, 1), 0.1, np.float32), ends, np.zeros(4, np.int64), 2)
    assert node_columns([GraphTensors(graph)], 64, NONE, 0)[:, 3].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("dim", "principal"), [(64, 0), (3, 0), (3, 1), (4, 2)])
def test_a_row_does_not_depend_on_who_else_is_there(dim, principal):
    known = columns.first_basis(5, 5, 0)[:, :principal]
    together = node_columns([GraphTensors(silo_of(0, [0, 1, 2]).graph)], dim, known, 7)
    apart = [node_columns([GraphTensors(silo_of(0, [number]).graph)], dim, known, 7) for number in range(3)]
    assert np.array_equal(together, np.concatenate(apart))
    assert together.shape[1] == width_of(5, dim, 0)


def test_moments_by_hand():
    """Rows (3, 4) and (0, -2) become (.6, .8) and (0, -1): with the first axis Σ x x₁ is (.36, .48), with the second
    (.48, .64) + (0, 1)."""
    rows = np.array([[3, 4], [7, 7], [0, -2]], np.float32)
    found = columns.second_moments(rows, np.array([0, 2]), np.eye(2, dtype=np.float32)) / 2**26
    assert found == pytest.approx(np.array([[0.36, 0.48], [0.48, 1.64]]), abs=1e-3)
    sparse = columns.second_moments(sp.csr_matrix(rows), np.array([0, 2]), np.eye(2, dtype=np.float32))
    assert np.array_equal(sparse / 2**26, found)


def directions_of(rows, silos, width=2):
    """What silos with these rows come to."""
    found = columns.first_basis(rows.shape[1], width, 3)
    for further in (True, True, False):
        sums = sum(columns.second_moments(rows, nodes, found) for nodes in silos)
        found = columns.next_basis(sums) if further else columns.directions_of(found, sums)
    return found


def test_directions_are_the_principal_ones_of_all_rows_in_order():
    draw = np.random.default_rng(0)
    axes = np.linalg.qr(draw.standard_normal((20, 20)))[0]
    rows = ((draw.standard_normal((300, 20)) * [9, 4, *[0.2] * 18]) @ axes.T).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    truth = np.linalg.svd(unit.astype(np.float64))[2][:2]
    found = directions_of(rows, [np.arange(300)])
    assert np.abs((truth * found.T).sum(1)) == pytest.approx([1, 1], abs=1e-3)


def test_directions_are_those_of_one_place_bit_for_bit():
    rows = np.random.default_rng(1).standard_normal((9000, 20)).astype(np.float32)
    order = np.random.default_rng(2).permutation(9000)
    together = directions_of(rows, [np.arange(9000)])
    for silos in ([order], np.array_split(order, 7)):
        assert np.array_equal(together, directions_of(rows, silos))


def test_many_columns_are_projected_at_random_alone():
    assert columns.principal_of(128, 128) == 0
    assert columns.principal_of(129, 128) == columns.principal_of(columns.WIDEST, 128) == 64
    assert columns.principal_of(columns.WIDEST + 1, 128) == 0


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
