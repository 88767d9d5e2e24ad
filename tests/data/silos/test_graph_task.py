"""Silos for graph classification."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition.graphs import partition_graphs
from graphsilo.data.silos.graph_task import build_graph_silos
from graphsilo.data.silos.pooling import pool_silos
from graphsilo.data.sources.catalog import LoadOptions, apply_options
from graphsilo.errors import DataError


def make_paths(count: int, *, features: int = 2, name: str = "paths") -> GraphCollection:
    sizes = 2 + np.arange(count) % 4
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    inner = np.setdiff1d(np.arange(pointer[-1]), pointer[1:] - 1)
    edges = np.concatenate([[inner, inner + 1], [inner + 1, inner]], axis=1).astype(np.int64)
    union = Graph(np.ones((pointer[-1], features), dtype=np.float32), edges, np.full(pointer[-1], -1), 2, name=name)
    return GraphCollection(union, pointer, np.arange(count) % 2, 2, name=name)


def test_graph_silos_hold_whole_graphs() -> None:
    paths = make_paths(40)
    cut = partition_graphs(paths, "dirichlet", clients=3, seed=1)
    silos = build_graph_silos(paths, cut)
    for silo, nodes in zip(silos, cut.nodes, strict=True):
        assert isinstance(silo.graph, GraphCollection)
        assert silo.graph.global_ids.tolist() == nodes.tolist()
        assert silo.num_items == len(nodes)
        np.testing.assert_array_equal(silo.labels, paths.labels[nodes])
        used = np.concatenate(list(silo.seen.items.values()))
        assert sorted(used.tolist()) == list(range(len(nodes)))
    pooled = pool_silos(silos)
    assert isinstance(pooled.graph, GraphCollection)
    assert len(pooled.graph) == 40
    assert pooled.graph.global_ids.tolist() == np.concatenate(cut.nodes).tolist()
    assert pooled.seen.part is not None
    assert np.bincount(pooled.seen.part).tolist() == [len(nodes) for nodes in cut.nodes]


def test_cross_domain_needs_common_features() -> None:
    both = [make_paths(20, features=2, name="a"), make_paths(30, features=3, name="b")]
    cut = partition_graphs(both, "domains")
    with pytest.raises(DataError, match="2, 3 features"):
        build_graph_silos(both, cut)
    first, second = build_graph_silos(both, cut, features="degree", max_degree=1)
    assert first.schema == second.schema
    assert (len(first.graph), len(second.graph)) == (20, 30)
    # Ends of a path have degree 1; degrees of 2 share the last column, so every row is (0, 1).
    assert first.graph.union.features.sum(axis=0).tolist() == [0.0, first.graph.union.num_nodes]


def test_degrees_are_of_edges_out_of_a_node_as_where_data_has_no_features() -> None:
    pointer, ends = np.arange(0, 61, 3), np.array([[0, 0], [1, 2]])
    edges = np.concatenate([ends + first for first in pointer[:-1]], axis=1)
    union = Graph(np.ones((60, 1), dtype=np.float32), edges, np.full(60, -1), 2, name="stars")
    stars = GraphCollection(union, pointer, np.arange(20) % 2, 2, name="stars")
    cut = partition_graphs(stars, "random", clients=1)
    (silo,) = build_graph_silos(stars, cut, features="degree", max_degree=2)
    loaded = apply_options(stars, LoadOptions(undirected=False, degree_features=True))
    for found in (silo.graph.union.features, loaded.union.features[:, 1:]):
        assert found[:3].tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0]]
