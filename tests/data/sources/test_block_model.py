"""Degrees, communities and homophily of generated graphs."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.sources.generated import citation_sbm, heterophily_sbm
from kit.generated import edge_homophily


def degrees(graph: Graph) -> np.ndarray:
    return np.bincount(graph.edges[0], minlength=graph.num_nodes)


def test_degrees_have_a_heavy_tail_and_no_node_is_alone() -> None:
    degree = degrees(citation_sbm())
    assert degree.min() >= 1
    assert degree.max() > 15 * degree.mean()
    assert np.median(degree) < degree.mean()
    # A larger exponent has a lighter tail.
    assert degrees(citation_sbm(degree_exponent=6.0)).max() < degree.max() / 2


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.65, 1.0])
def test_homophily_is_met(homophily: float) -> None:
    graph = citation_sbm(nodes=800, classes=4, features=50, homophily=homophily, mean_degree=5)
    assert edge_homophily(graph) == pytest.approx(homophily, abs=1e-3)


def test_communities_hold_most_links() -> None:
    from sknetwork.clustering import Louvain, get_modularity

    def modularity(graph: Graph) -> float:
        adjacency = graph.adjacency()
        return float(get_modularity(adjacency, Louvain(random_state=0).fit_predict(adjacency)))

    assert modularity(citation_sbm()) > max(0.72, modularity(citation_sbm(locality=0.0)) + 0.04)


def test_heterophily_joins_neighbours_on_the_ring() -> None:
    graph = heterophily_sbm()
    assert edge_homophily(graph) == pytest.approx(0.2, abs=1e-3)
    ends = graph.labels[graph.edges]
    distance = (ends[0] - ends[1]) % 5
    ring = ((distance == 1) | (distance == 4)).mean()
    # Ambiguous nodes (12 %) link as another class does; the others stay on the ring.
    assert ring > 0.6
    assert heterophily_sbm(classes=2, nodes=200, features=10, mean_degree=4, feature_density=0.1).num_classes == 2
