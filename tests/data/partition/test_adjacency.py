from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import both_directions, edges_inside, undirected_adjacency, undirected_links


def test_adjacency_is_symmetric_without_loops_and_repeats(two_triangles: Graph) -> None:
    graph = two_triangles.with_edges(np.array([[1, 1, 0, 2, 2], [0, 0, 1, 2, 4]]))
    wanted = np.zeros((6, 6))
    wanted[0, 1] = wanted[1, 0] = wanted[2, 4] = wanted[4, 2] = 1
    np.testing.assert_array_equal(undirected_adjacency(graph).toarray(), wanted)


def test_links_and_back() -> None:
    edges = np.array([[1, 0, 2, 3], [0, 1, 2, 1]])
    links = undirected_links(edges)
    assert links.tolist() == [[0, 1], [1, 3]]
    assert both_directions(links).tolist() == [[0, 1, 1, 3], [1, 0, 3, 1]]
    assert undirected_links(np.zeros((2, 0), dtype=np.int64)).shape == (2, 0)


def test_edges_inside_disjoint_and_overlapping_clients(two_triangles: Graph) -> None:
    disjoint = edges_inside(two_triangles.edges, [np.array([0, 1, 2]), np.array([4, 3])], num_nodes=6)
    assert [edges.shape[1] for edges in disjoint] == [6, 2]
    overlapping = edges_inside(two_triangles.edges, [np.array([0, 1, 2]), np.array([2, 3])], num_nodes=6)
    assert [edges.T.tolist() for edges in overlapping][1] == [[2, 3], [3, 2]]
    for edges, nodes in zip(disjoint, ([0, 1, 2], [4, 3]), strict=True):
        assert edges.shape[1] == two_triangles.subgraph(np.array(nodes)).num_edges


def test_a_client_without_edges_gets_an_empty_array(two_triangles: Graph) -> None:
    found = edges_inside(two_triangles.edges, [np.array([0]), np.array([1, 2]), np.array([5])], num_nodes=6)
    assert [edges.shape for edges in found] == [(2, 0), (2, 2), (2, 0)]
