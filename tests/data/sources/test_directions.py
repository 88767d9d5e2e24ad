"""Links and their directions."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources import directions


def graph_of(edges: list[tuple[int, int]], nodes: int) -> Graph:
    columns = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return Graph(np.eye(nodes, dtype=np.float32), np.ascontiguousarray(columns), np.zeros(nodes, dtype=np.int64), 1)


def pairs(edges: np.ndarray) -> list[tuple[int, int]]:
    return [tuple(column) for column in edges.T.tolist()]


def test_to_undirected_adds_reverses_and_drops_loops_and_duplicates() -> None:
    edges = graph_of([(0, 1), (0, 1), (1, 0), (2, 2), (3, 1)], 4).edges
    assert pairs(directions.to_undirected(edges, 4)) == [(0, 1), (1, 0), (1, 3), (3, 1)]


def test_to_undirected_keeps_undirected_edges_and_their_order() -> None:
    edges = graph_of([(2, 0), (0, 2), (1, 0), (0, 1)], 3).edges
    assert directions.to_undirected(edges, 3) is edges


def test_to_undirected_survives_more_duplicates_than_a_byte_can_count() -> None:
    edges = np.zeros((2, 256), dtype=np.int64)
    edges[1] = 1
    assert pairs(directions.to_undirected(edges, 2)) == [(0, 1), (1, 0)]


def test_to_undirected_without_edges() -> None:
    empty = np.zeros((2, 0), dtype=np.int64)
    assert directions.to_undirected(empty, 3).shape == (2, 0)


def test_links_are_symmetric_where_each_leads_back_and_not_where_as_many_lead_in_as_out() -> None:
    assert directions.is_symmetric(graph_of([(0, 1), (1, 0), (1, 0), (2, 2)], 3))
    assert not directions.is_symmetric(graph_of([(0, 1), (1, 0), (1, 2)], 3))
    ring = graph_of([(0, 1), (1, 2), (2, 0)], 3)
    assert not directions.is_symmetric(ring)
    assert Schema.of(ring, "node").directed


def test_remove_self_loops() -> None:
    edges = graph_of([(1, 1), (0, 1)], 2).edges
    assert pairs(directions.remove_self_loops(edges)) == [(0, 1)]
