""""""

from __future__ import annotations

from graphsilo.data.graph import Graph


def edge_homophily(graph: Graph) -> float:
    return float((graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).mean())
