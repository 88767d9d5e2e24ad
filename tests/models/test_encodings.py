"""Encodings of structure: worked out by hand, and held against powers of a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.models import encodings
from graphsilo.models.encodings import return_probabilities, structure_of
from graphsilo.models.view import GraphTensors


def graph_of(nodes, pairs):
    ends = np.array([*pairs, *((b, a) for a, b in pairs)], dtype=np.int64).reshape(-1, 2).T
    return Graph(np.zeros((nodes, 1), dtype=np.float32), ends, np.full(nodes, -1), 2)


def drawn(nodes=30, links=50, seed=0):
    return graph_of(nodes, np.random.default_rng(seed).integers(0, nodes, (links, 2)).tolist())


def test_a_path_of_three_by_hand():
    """The ends are back after 2 and 4 steps with chance 1/2, the centre with 1; degrees 1, 2, 1."""
    found = structure_of(GraphTensors(graph_of(3, [(0, 1), (1, 2)])), 4, 3)
    end, centre = [0, 0.5, 0, 0.5, 1, 0, 0], [0, 1, 0, 1, 0, 1, 0]
    np.testing.assert_allclose(found, [end, centre, end], atol=1e-6)
    assert found.dtype == np.float32


def test_degrees_at_both_ends():
    """No link counts as one, and four as three where there are three columns."""
    star = graph_of(6, [(0, other) for other in (1, 2, 3, 4)])
    found = structure_of(GraphTensors(star), 0, 3)
    assert found.tolist() == [[0, 0, 1], *[[1, 0, 0]] * 5]
    assert structure_of(GraphTensors(star), 2, 0)[5].tolist() == [0, 0]  # no link: never anywhere


@pytest.mark.parametrize("block", [7, 1 << 12])
def test_chances_to_return_are_the_diagonals_of_powers(monkeypatch, block):
    """Of A D⁻¹, with loops in the graph."""
    monkeypatch.setattr(encodings, "_ROWS", block)
    adjacency = sp.csr_matrix(drawn().adjacency(), dtype=np.float64)
    degree = adjacency.toarray().sum(0)
    walk = adjacency.toarray() * np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    wanted = np.stack([np.diag(np.linalg.matrix_power(walk, step)) for step in range(1, 8)], 1)
    found = return_probabilities(adjacency, 7)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6


def test_the_order_of_nodes_means_nothing_and_one_way_links_count_twice():
    graph = drawn()
    plain = structure_of(GraphTensors(graph), 5, 4)
    order = np.random.default_rng(1).permutation(30)
    moved = Graph(graph.features, order[graph.edges], graph.labels, 2)
    np.testing.assert_allclose(structure_of(GraphTensors(moved), 5, 4)[order], plain, atol=1e-6)
    one_way = graph.with_edges(graph.edges[:, graph.edges[0] <= graph.edges[1]])
    np.testing.assert_allclose(structure_of(GraphTensors(one_way), 5, 4), plain, atol=1e-6)
