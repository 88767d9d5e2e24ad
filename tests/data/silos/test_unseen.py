"""Silos that are asked about what they never saw."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.data.silos.scenarios import build_silos
from graphsilo.data.silos.unseen import grow, missing_classes
from kit.silos import ids, named


def test_missing_classes_are_the_absent_ones_and_the_smallest_present(path: Graph) -> None:
    labels = ids(0, 0, 0, 1, 1, 2, 2, 2, 3)
    everyone = np.arange(9)
    # Trained on: 0 twice, 1 twice, 2 three times, 3 never. The tie between 0 and 1 goes to 0.
    train = ids(0, 1, 3, 4, 5, 6, 7)
    assert missing_classes(labels, everyone, train, num_classes=4) == [0, 3]
    assert missing_classes(labels, everyone, train, num_classes=4, missing="absent") == [3]
    # Class 3 has 1 node, class 0 has 3, class 1 has 2: five or six nodes need class 1 too.
    assert missing_classes(labels, everyone, train, num_classes=4, min_missing_nodes=4) == [0, 3]
    assert missing_classes(labels, everyone, train, num_classes=4, min_missing_nodes=5) == [0, 1, 3]
    assert missing_classes(labels, everyone, train, num_classes=4, min_missing_nodes=100) == [0, 1, 3]
    assert missing_classes(labels, everyone, ids(5), num_classes=4) == [0, 1, 3]


def test_growth_walks_h_hops_through_allowed_nodes(path: Graph) -> None:
    adjacency = undirected_adjacency(path)
    assert grow(adjacency, ids(3, 4), hops=1).tolist() == [2, 5]
    assert grow(adjacency, ids(3, 4), hops=2).tolist() == [1, 2, 5, 6]
    assert grow(adjacency, ids(3, 4), hops=9).tolist() == [0, 1, 2, 5, 6, 7, 8]
    assert grow(adjacency, ids(3, 4), hops=9, allowed=np.arange(9) > 5).tolist() == []
    assert grow(adjacency, ids(3, 4), hops=9, allowed=np.arange(9) != 1).tolist() == [2, 5, 6, 7, 8]


def test_unseen_by_hand(path: Graph, cut_path: Partition) -> None:
    first, second = build_silos(path, cut_path, scenario="unseen")
    # Client 0 trains on classes 0 and 1, once each: class 2 is absent and class 0 (smallest, first) goes: node 2 stays.
    assert first.facts["missing_classes"] == [0, 2]
    assert first.graph.global_ids.tolist() == [2]
    assert first.train.tolist() == [0]
    grown = named(first, "grown")
    # Two hops from 2 along the path: 0, 1 (its own, excluded) and 3, 4.
    assert grown.graph.global_ids.tolist() == [2, 0, 1, 3, 4]
    assert grown.graph.num_edges == 8
    assert grown.items["missing_class"].tolist() == [1, 2, 4]
    assert grown.items["unseen_node"].tolist() == [3]
    # Client 1 holds 5, 4, 3 with classes 2, 0, 1; trained 4 and 5: class 1 is absent, class 0 goes: 5 stays.
    assert second.facts["missing_classes"] == [0, 1]
    assert second.graph.global_ids.tolist() == [5]
    assert named(second, "grown").graph.global_ids.tolist() == [5, 3, 4, 6, 7]
    assert named(second, "grown").items["unseen_node"].tolist() == [3, 4]
    new = named(first, "new_client")
    assert new.graph is named(second, "new_client").graph
    assert new.graph.global_ids.tolist() == [6, 7, 8]
    assert new.items["new_client"].tolist() == [0, 1, 2]


def test_only_touching_edges_on_demand(path: Graph, cut_path: Partition) -> None:
    first = build_silos(path, cut_path, scenario="unseen", options={"edges": "touching"})[0]
    assert named(first, "grown").graph.edges.T.tolist() == [[2, 0], [0, 2], [0, 3], [3, 0]]
