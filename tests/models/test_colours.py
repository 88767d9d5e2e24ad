"""Colours of Weisfeiler and Lehman: what they tell apart, and what not."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import graphsilo
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import UnsupportedError
from graphsilo.methods.fedridge.features import CONSTANT, Features, Recipe
from graphsilo.models.colours import colour_counts
from graphsilo.models.view import GraphTensors

WIDE = 1 << 16


def collection(parts, features=None):
    """Graphs of numbers of nodes and undirected links; features of all nodes, one after the other."""
    pointer = np.cumsum([0, *(nodes for nodes, _ in parts)])
    ends = [(a + start, b + start) for (_, links), start in zip(parts, pointer, strict=False) for a, b in links]
    both = np.array([*ends, *((b, a) for a, b in ends)], dtype=np.int64).reshape(-1, 2).T
    rows = np.ones((pointer[-1], 1)) if features is None else features
    rows = rows if sp.issparse(rows) else np.asarray(rows, dtype=np.float32)
    union = Graph(rows, both, np.full(pointer[-1], -1, dtype=np.int64), 2)
    return GraphTensors(GraphCollection(union, pointer, np.zeros(len(parts), dtype=np.int64), 2))


def counts(data, hops, seed=0):
    return colour_counts(data.collection, hops, WIDE, seed).toarray()


def test_counts_by_hand():
    """A path of three: degrees 1, 2, 1, of which one hop makes the same two groups: 2, 1, 2, 1 of all 6."""
    [row] = counts(collection([(3, [(0, 1), (1, 2)])]), 1)
    assert sorted((row[row > 0] ** 2 * 6).round(5)) == [1, 1, 2, 2]


def test_whatever_the_order_of_nodes_and_links():
    parts = [(5, [(0, 1), (1, 2), (2, 3), (1, 4)]), (5, [(4, 3), (3, 2), (2, 1), (3, 0)])]
    first, second = counts(collection(parts), 3)
    assert np.array_equal(first, second)
    features = np.eye(5)[[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]]
    first, second = counts(collection(parts, features), 0)
    assert np.array_equal(first, second)  # the same rows
    first, second = counts(collection(parts, features), 1)
    assert not np.array_equal(first, second)  # with other neighbours


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_they_tell_apart_what_networkx_does(hops):
    """Graphs of the same hash there are the same here, and no others."""
    draw = np.random.default_rng(1)
    graphs = [nx.gnm_random_graph(6, 6, seed=int(draw.integers(1000))) for _ in range(60)]
    rows = counts(collection([(6, list(graph.edges)) for graph in graphs]), hops)
    theirs = [nx.weisfeiler_lehman_subgraph_hashes(graph, iterations=max(hops, 1)) for graph in graphs]
    known = [
        (sorted(dict(graph.degree).values()), sorted(each[hops - 1] for each in found.values()) if hops > 1 else [],
         sorted(sorted(graph.degree(other) for other in graph[node]) for node in graph) if hops else [])
        for graph, found in zip(graphs, theirs, strict=True)
    ]  # fmt: skip
    for one in range(60):
        for other in range(one):
            assert np.array_equal(rows[one], rows[other]) == (known[one] == known[other])


def test_six_nodes_in_one_ring_or_two_look_alike():
    """What no number of hops tells apart."""
    ring = [(node, (node + 1) % 6) for node in range(6)]
    triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    one, two = counts(collection([(6, ring), (6, triangles)]), 5)
    assert np.array_equal(one, two)


def test_sparse_features_are_the_same_and_values_count():
    parts = [(2, [(0, 1)]), (2, [(0, 1)])]
    features = np.array([[0, 1], [2, 0], [0, 1], [3, 0]], dtype=np.float32)
    dense = counts(collection(parts, features), 2)
    assert np.array_equal(dense, counts(collection(parts, sp.csr_matrix(features)), 2))
    assert not np.array_equal(dense[0], dense[1])


def test_every_client_counts_in_the_same_columns():
    parts = [(3, [(0, 1), (1, 2)]), (4, [(0, 1), (2, 3)]), (2, [])]
    whole = counts(collection(parts), 2)
    for number, part in enumerate(parts):
        assert np.array_equal(counts(collection([part]), 2)[0], whole[number])
    assert not np.array_equal(counts(collection(parts), 2, seed=1), whole)
    assert (np.linalg.norm(whole, axis=1) == pytest.approx(1.0)) is True


def test_columns_of_features():
    data, recipe = collection([(3, [(0, 1)]), (2, [])]), Recipe("wl", 2, 8, 0, 0)
    made = Features(data, recipe)
    [(_, rows)] = made.blocks(np.arange(2))
    assert rows.shape == (2, 9)
    assert rows[:, 8].tolist() == [CONSTANT, CONSTANT]
    assert made.width == recipe.width(1, graphs=True) == 9
    assert recipe.constant(1, graphs=True) == 8
    assert recipe.blocks(1, sums=7.0) == [[8.0, 1.0], [1.0, CONSTANT**2]]
    assert Features(data, Recipe("wl", 2, 0, 0, 0)).width == 4097


def test_nodes_have_none():
    config = {"data": {"name": "citation-sbm", "generator": {"nodes": 60}}, "partition": {"clients": 2}, "model": {}}
    with pytest.raises(UnsupportedError, match="counts neighbourhoods of whole graphs; take mean or separate"):
        graphsilo.run({**config, "method": {"name": "fedridge", "features": "wl"}}, report=False)
