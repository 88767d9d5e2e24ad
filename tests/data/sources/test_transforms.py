"""Small changes to a graph, on graphs small enough to check by eye."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.data.sources import transforms
from graphsilo.errors import ConfigError, DataError


def graph_of(edges: list[tuple[int, int]], nodes: int) -> Graph:
    columns = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return Graph(np.eye(nodes, dtype=np.float32), np.ascontiguousarray(columns), np.zeros(nodes, dtype=np.int64), 1)


def pairs(edges: np.ndarray) -> list[tuple[int, int]]:
    return [tuple(column) for column in edges.T.tolist()]


def weighted(edges: list[tuple[int, int, float]], nodes: int) -> Graph:
    plain = graph_of([edge[:2] for edge in edges], nodes)
    return replace(plain, edge_weights=np.array([edge[2] for edge in edges], dtype=np.float32))


def triples(graph: Graph) -> list[tuple[int, int, float]]:
    assert graph.edge_weights is not None
    return [(*pair, weight) for pair, weight in zip(pairs(graph.edges), graph.edge_weights.tolist(), strict=True)]


def test_undirected_weights_are_lent_to_the_other_direction_and_parallel_ones_add_up() -> None:
    # 0-1 three times over, once backwards with the same sum; 1-2 once; a loop.
    graph = weighted([(0, 1, 1.0), (0, 1, 1.5), (1, 0, 2.5), (2, 1, 4.0), (2, 2, 9.0)], 3)
    assert triples(transforms.make_undirected(graph)) == [(0, 1, 2.5), (1, 0, 2.5), (1, 2, 4.0), (2, 1, 4.0)]


def test_undirected_keeps_what_is_undirected() -> None:
    graph = weighted([(2, 0, 3.0), (0, 2, 3.0), (1, 0, 0.5), (0, 1, 0.5)], 3)
    assert transforms.make_undirected(graph) is graph
    plain = replace(graph, edge_weights=None)
    assert pairs(transforms.make_undirected(plain).edges) == pairs(plain.edges)


def test_undirected_refuses_two_weights_for_one_link() -> None:
    graph = replace(weighted([(0, 1, 1.0), (1, 0, 3.0)], 2), node_names=np.array(["ann", "bob"]))
    with pytest.raises(DataError, match="between node ann and node bob weighs 1 in one direction and 3 in the other"):
        transforms.make_undirected(graph)


def test_merge_parallel_adds_weights_and_keeps_directions_and_loops() -> None:
    graph = weighted([(1, 0, 1.0), (0, 1, 2.0), (1, 0, 0.5), (1, 1, 3.0)], 2)
    assert triples(transforms.merge_parallel(graph)) == [(0, 1, 2.0), (1, 0, 1.5), (1, 1, 3.0)]
    once = weighted([(1, 0, 1.0), (0, 1, 2.0)], 2)
    assert transforms.merge_parallel(once) is once
    twice = graph_of([(0, 1), (0, 1)], 2)
    assert transforms.merge_parallel(twice) is twice


def test_coalesce_keeps_directions_and_loops() -> None:
    edges = graph_of([(2, 0), (1, 1), (2, 0)], 3).edges
    assert pairs(transforms.coalesce(edges, 3)) == [(1, 1), (2, 0)]


def test_largest_component_ignores_directions_and_numbers_nodes_anew() -> None:
    # 1 -> 3 <- 4 is the largest; 0 - 2 and 5 are left out.
    kept = transforms.largest_component(graph_of([(1, 3), (4, 3), (0, 2)], 6))
    assert pairs(kept.edges) == [(0, 1), (2, 1)]
    assert np.flatnonzero(kept.features.sum(axis=0)).tolist() == [1, 3, 4]
    assert kept.node_ids is None


def test_largest_component_of_equals_is_the_first() -> None:
    kept = transforms.largest_component(graph_of([(1, 3), (3, 1), (0, 2)], 4))
    assert np.flatnonzero(kept.features.sum(axis=0)).tolist() == [0, 2]


def test_largest_component_of_a_connected_graph_is_the_graph() -> None:
    graph = graph_of([(0, 1)], 2)
    assert transforms.largest_component(graph) is graph


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_row_normalize(form: type) -> None:
    rows = np.array([[1, 3, 0], [0, 0, 0], [-1, 0, 1]], dtype=np.float32)
    result = transforms.row_normalize(form(rows))
    dense = result.toarray() if sp.issparse(result) else result
    np.testing.assert_allclose(dense, [[0.25, 0.75, 0], [0, 0, 0], [-0.5, 0, 0.5]])
    assert result.dtype == np.float32
    assert transforms.row_normalize(result) is result


def test_row_normalize_shares_the_structure_of_csr() -> None:
    matrix = sp.csr_matrix(np.array([[2, 2]], dtype=np.float32))
    assert np.shares_memory(transforms.row_normalize(matrix).indices, matrix.indices)
    assert matrix.data.tolist() == [2, 2]


def test_one_hot_degree() -> None:
    path = graph_of([(0, 1), (1, 0), (1, 2), (2, 1)], 4)
    assert transforms.one_hot_degree(path).tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert transforms.one_hot_degree(path, max_degree=1).tolist() == [[0, 1], [0, 1], [0, 1], [1, 0]]
    with pytest.raises(ConfigError, match="max_degree"):
        transforms.one_hot_degree(path, max_degree=0)


def test_compact_features_is_sparse_only_for_wide_and_empty_matrices() -> None:
    assert not sp.issparse(transforms.compact_features(np.eye(10, dtype=np.float32)))
    wide = transforms.compact_features(np.eye(64, dtype=np.float32))
    assert sp.issparse(wide)
    assert wide.nnz == 64
    assert not sp.issparse(transforms.compact_features(np.ones((3, 64), dtype=np.float32)))


def test_append_features() -> None:
    left = np.array([[1.0], [2.0]], dtype=np.float32)
    right = sp.csr_matrix(np.array([[0, 3], [0, 0]], dtype=np.float32))
    assert transforms.append_features(left, right).tolist() == [[1, 0, 3], [2, 0, 0]]
    assert transforms.append_features(left[:, :0], right) is right
    with pytest.raises(DataError):
        transforms.append_features(left, right[:1])


def test_the_largest_component_keeps_its_names() -> None:
    graph = replace(graph_of([(1, 3), (0, 0)], 4), node_names=np.array(["a", "b", "c", "d"]))
    largest = transforms.largest_component(graph)
    assert largest.external_ids.tolist() == ["b", "d"]
    assert largest.node_ids is None
    part = transforms.largest_component(graph.subgraph(np.array([3, 2, 1])))
    assert (part.external_ids.tolist(), part.global_ids.tolist()) == (["d", "b"], [3, 1])
