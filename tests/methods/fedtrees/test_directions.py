"""Columns of a node by hand, and that they depend on nobody else's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema
from graphsilo.methods.fedtrees import directions
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.models.node_columns import node_columns, views_of, width_of
from graphsilo.models.view import GraphTensors
from kit.fedtrees import QUICK, silo_of, with_directions

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


def test_links_with_directions_and_weights_by_hand():
    """0 -> 1 weighs 2 and 2 -> 1 weighs 6, with the same features: both ways it is the path above. In alone, N X of
    node 1 is (2 + 6 · 5) / 8 = 4 with the deviation √((2 + 6 · 25) / 8 - 16) = √3; out alone, 0 and 2 have node 1."""
    graph = Graph(
        np.array([[1], [3], [5]], np.float32), np.array([[0, 2], [1, 1]]), np.zeros(3, np.int64), 2,
        edge_weights=np.array([2, 6], np.float32),
    )  # fmt: skip
    data, log = GraphTensors(graph), np.log
    both = np.array([[1, 3, 3, 0, log(2), log(3)], [3, 3, 3, 2, log(3), log(2)], [5, 3, 3, 0, log(2), log(3)]])
    into = np.array([[0, 0, 0, 0, 0], [4, 0, np.sqrt(3), log(9), 0], [0, 0, 0, 0, 0]])
    out = np.array([[3, 0, 0, log(3), 0], [0, 0, 0, 0, 0], [3, 0, 0, log(7), 0]])
    found = node_columns(views_of(data, Schema("node", 1, 2, directed=True, weighted=True)), 64, NONE, 0)
    assert found == pytest.approx(np.hstack([both, into, out]), abs=1e-6)
    assert found.shape[1] == width_of(1, 64, 0, views=3)
    assert views_of(data, Schema("node", 1, 2)) == [data]


def test_weights_alone_by_hand():
    """0 - 1 weighs 2 and 1 - 2 weighs 6, both ways: sums are 2, 8 and 6, and the mean of node 1's neighbours is 4."""
    graph = Graph(
        np.array([[1], [3], [5]], np.float32), np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), np.zeros(3, np.int64), 2,
        edge_weights=np.array([2, 2, 6, 6], np.float32),
    )  # fmt: skip
    found = node_columns(views_of(GraphTensors(graph), Schema("node", 1, 2, weighted=True)), 64, NONE, 0)
    assert found.shape[1] == width_of(1, 64, 0, views=2) == 11
    assert found[:, 1].tolist() == [3, 3, 3]
    assert found[:, 6] == pytest.approx([3, 4, 3])
    assert found[:, 9] == pytest.approx(np.log([3, 9, 7]))


def test_equal_neighbours_deviate_by_exactly_nothing():
    ends = np.array([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]])
    graph = Graph(np.full((4, 1), 0.1, np.float32), ends, np.zeros(4, np.int64), 2)
    assert node_columns([GraphTensors(graph)], 64, NONE, 0)[:, 3].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("changed", [lambda silo: silo, with_directions])
@pytest.mark.parametrize(("dim", "principal"), [(64, 0), (3, 0), (3, 1), (4, 2)])
def test_a_row_does_not_depend_on_who_else_is_there(dim, principal, changed):
    known = directions.first_basis(5, 5, 0)[:, :principal]

    def rows(numbers):
        silo = changed(silo_of(0, numbers))
        return node_columns(views_of(GraphTensors(silo.graph), silo.schema), dim, known, 7)

    together = rows([0, 1, 2])
    assert np.array_equal(together, np.concatenate([rows([number]) for number in range(3)]))
    assert together.shape[1] == width_of(5, dim, 0, views=1 if changed is not with_directions else 3)


def test_moments_by_hand():
    """Rows (3, 4) and (0, -2) become (.6, .8) and (0, -1): with the first axis Σ x x₁ is (.36, .48), with the second
    (.48, .64) + (0, 1)."""
    rows = np.array([[3, 4], [7, 7], [0, -2]], np.float32)
    found = directions.second_moments(rows, np.array([0, 2]), np.eye(2, dtype=np.float32)) / 2**26
    assert found == pytest.approx(np.array([[0.36, 0.48], [0.48, 1.64]]), abs=1e-3)
    sparse = directions.second_moments(sp.csr_matrix(rows), np.array([0, 2]), np.eye(2, dtype=np.float32))
    assert np.array_equal(sparse / 2**26, found)


def directions_of(rows, silos, width=2):
    """What silos with these rows come to."""
    found = directions.first_basis(rows.shape[1], width, 3)
    for further in (True, True, False):
        sums = sum(directions.second_moments(rows, nodes, found) for nodes in silos)
        found = directions.next_basis(sums) if further else directions.directions_of(found, sums)
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
    assert directions.principal_of(128, 128) == 0
    assert directions.principal_of(129, 128) == directions.principal_of(directions.WIDEST, 128) == 64
    assert directions.principal_of(directions.WIDEST + 1, 128) == 0


@pytest.mark.parametrize(("changed", "views"), [(lambda silo: silo, 1), (with_directions, 3)])
def test_nobodys_own_label_is_in_a_row_of_its(kit, changed, views):
    silo = changed(silo_of(0, [0]))
    _, federation = kit.build("fedtrees", [silo], **QUICK)
    before = federation.client(0)._rows(federation.client(0).data)
    assert before.shape[1] == width_of(5, 64, 3, views)
    for node in silo.train[:10]:
        labels = silo.graph.labels.copy()
        labels[node] = (labels[node] + 1) % 3
        graph = replace(silo.graph, labels=labels)
        other = replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),))
        client = kit.build("fedtrees", [other], **QUICK)[1].client(0)
        assert client._rows(client.data)[node] == pytest.approx(before[node], abs=1e-7)
        assert views == 3 or not np.array_equal(client._rows(client.data), before)


def test_elsewhere_nothing_is_known_of_labels(kit):
    client = kit.build("fedtrees", [silo_of(0, [0])], **QUICK)[1].client(0)
    there = client.tensors(silo_of(1, [1]).graph)
    assert not client._rows(there)[:, -6:].any()
    assert client._rows(client.data)[:, -6:].any()


def test_label_features_are_left_out_where_relations_are_known_apart():
    schema = Schema("node", 3, 2, relations=("payment", "transfer"))
    config = FedTreesConfig()
    assert not config.has_labels(schema)
    assert config.width(schema) == FedTreesConfig(label_features=False).width(schema)
    assert config.has_labels(Schema("node", 3, 2))
