from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import DataError
from graphsilo.evaluate.groups import homophily, node_groups


def make(labels, edges, num_classes=None) -> Graph:
    labels = np.asarray(labels, dtype=np.int64)
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2).T
    return Graph(np.zeros((len(labels), 1), np.float32), edges, labels, num_classes or int(labels.max()) + 1)


def undirected(pairs):
    return [*pairs, *[(b, a) for a, b in pairs]]


PATH = undirected([(0, 1), (1, 2), (2, 3)])


def test_a_path_worked_by_hand():
    graph = make([0, 0, 0, 1], PATH)
    assert homophily(graph).tolist() == [1.0, 1.0, 0.5, 0.0]
    groups = node_groups(graph)
    assert groups.minority.tolist() == [False, False, False, True]
    assert groups.hete.tolist() == [False, False, True, True]
    assert (groups.minority & groups.hete).tolist() == [False, False, False, True]
    assert groups.cell.tolist() == [0, 0, 1, 3]


def test_self_loops_parallel_edges_and_direction_change_nothing():
    plain = make([0, 0, 1, 1], undirected([(0, 1), (0, 2), (2, 3)]))
    messy = make([0, 0, 1, 1], [(0, 1), (0, 1), (2, 0), (3, 2), (0, 0), (3, 3)])
    assert homophily(plain).tolist() == homophily(messy).tolist() == [0.5, 1.0, 0.5, 1.0]


def test_a_class_exactly_at_the_mean_is_minority():
    # counts 2, 3, 1: mean 2. Class 3 of 4 is absent and must not pull the mean down to 1.5.
    groups = node_groups(make([0, 0, 1, 1, 1, 2], [], num_classes=4))
    assert groups.minority.tolist() == [True, True, False, False, False, True]


def test_one_class_is_its_own_mean():
    assert node_groups(make([0, 0, 0], [])).minority.all()


def test_ties_go_by_node_number_and_the_middle_node_is_hete():
    # a triangle of one class plus two: all shares equal 1
    groups = node_groups(make([0] * 5, undirected([(i, j) for i in range(5) for j in range(i)])))
    assert groups.hete.tolist() == [False, False, True, True, True]


def test_ties_do_not_depend_on_the_order_of_a_silos_rows():
    # of five alike the first two by number, 0 and 1, are the upper half, whichever row of the silo they are
    graph = make([0] * 5, undirected([(i, j) for i in range(5) for j in range(i)]))
    rows = np.array([3, 1, 4, 0, 2])
    silo = graph.subgraph(rows)
    assert node_groups(silo).hete.tolist() == [True, False, True, False, True]
    pooled = node_groups(silo, part=np.array([0, 1, 0, 1, 0]))  # 3, 4 and 2; 1 and 0
    assert pooled.hete.tolist() == [True, True, True, False, False]


def test_isolated_nodes_are_hete_even_in_the_upper_half():
    groups = node_groups(make([0] * 6, undirected([(4, 5)])))
    assert groups.hete.tolist() == [True, True, True, True, False, False]
    with np.errstate(all="raise"):  # 0 of 0 neighbours is nowhere divided
        assert not node_groups(make([0, 1], [])).hete.any()  # nor is there a half to be in


def test_isolated_ranks_below_no_like_neighbour():
    # shares: 0 and 1 are unlike (0.0), 2 is isolated, 3 and 4 alike (1.0): only 3 and 4 are in the upper half
    graph = make([0, 1, 0, 1, 1], undirected([(0, 1), (3, 4)]))
    assert node_groups(graph).hete.tolist() == [True, True, True, False, False]


def test_unknown_labels_are_in_no_group_and_no_neighbour():
    graph = make([0, 0, -1, 1], PATH, num_classes=2)
    share = homophily(graph)
    assert share[:2].tolist() == [1.0, 1.0]
    assert np.isnan(share[2:]).all()
    groups = node_groups(graph)
    # 3 labelled nodes: counts 2 and 1, mean 1.5; upper half is one node, and node 3 has no labelled neighbour
    assert groups.minority.tolist() == [False, False, False, True]
    assert groups.hete.tolist() == [False, True, False, True]


def test_parts_are_grouped_as_if_alone():
    # Two paths joined by an edge 3-4 that belongs to no client.
    labels = [0, 0, 0, 1, 1, 1, 0, 1]
    graph = make(labels, undirected([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]))
    part = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    pooled = node_groups(graph, part=part)
    for which in (0, 1):
        nodes = np.flatnonzero(part == which)
        alone = node_groups(graph.subgraph(nodes))
        assert pooled.minority[nodes].tolist() == alone.minority.tolist()
        assert pooled.hete[nodes].tolist() == alone.hete.tolist()
    nobody = node_groups(graph, part=np.where(part == 1, -1, 0))
    assert not nobody.hete[4:].any()
    assert not nobody.minority[4:].any()
    assert nobody.hete[:4].tolist() == pooled.hete[:4].tolist()


def test_a_collection_has_minorities_but_no_neighbourhoods():
    union = Graph(np.zeros((4, 1), np.float32), np.zeros((2, 0), np.int64), np.full(4, -1), 1)
    graphs = GraphCollection(union, np.array([0, 1, 2, 4]), np.array([0, 0, 1]), 2)
    groups = node_groups(graphs)
    assert groups.minority.tolist() == [False, False, True]
    assert not groups.hete.any()


def test_wrong_lengths_are_refused():
    graph = make([0, 1], [])
    with pytest.raises(DataError, match="part"):
        node_groups(graph, part=np.array([0]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_groups_match_a_slow_reading_of_the_definition(data):
    n = data.draw(st.integers(1, 9))
    labels = data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    groups = node_groups(make(labels, pairs, num_classes=4))

    nodes = [v for v in range(n) if labels[v] >= 0]
    sizes = {c: sum(labels[v] == c for v in nodes) for c in {labels[v] for v in nodes}}
    net = nx.Graph([(a, b) for a, b in pairs if a != b])
    net.add_nodes_from(range(n))

    def share(v):
        around = [u for u in net[v] if labels[u] >= 0]
        return sum(labels[u] == labels[v] for u in around) / len(around) if around else -1.0

    ranked = sorted(nodes, key=lambda v: (-share(v), v))
    homo = {v for v in ranked[: len(ranked) // 2] if share(v) >= 0}
    for v in range(n):
        minority = v in nodes and sizes[labels[v]] <= sum(sizes.values()) / len(sizes) + 1e-12
        assert groups.minority[v] == minority
        compared = any(share(u) >= 0 for u in nodes)
        assert groups.hete[v] == (v in nodes and v not in homo and compared)
    # the four cells partition the nodes, and the fourth is the intersection
    assert ((groups.cell == 3) == (groups.minority & groups.hete)).all()
    assert np.bincount(groups.cell, minlength=4).sum() == n


def test_the_mean_over_classes_is_that_of_each_part():
    # 2 and 1 of three nodes; 4 and 5 of nine: above the mean of 1.5 is class 0, of 4.5 class 1.
    labels = [0, 0, 1, *[0] * 4, *[1] * 5]
    found = node_groups(make(labels, []), part=np.repeat([0, 1], [3, 9])).minority
    assert found.tolist() == [False, False, True, *[True] * 4, *[False] * 5]
