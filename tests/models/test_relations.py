"""What of a table of links passes messages."""

from __future__ import annotations

import numpy as np

from graphsilo.models import GraphTensors
from graphsilo.models.relations import relation_matrix


def test_a_row_without_its_edge_passes_nothing(make_graph) -> None:
    graph = make_graph(nodes=25, features=6)
    one, other = graph.links.ends[:, 0]
    kept = ~np.isin(graph.edges, [one, other]).all(axis=0)
    before, after = (GraphTensors(each) for each in (graph, graph.with_edges(graph.edges[:, kept])))
    relation = int(graph.links.of_link[0])
    assert relation_matrix(before, relation, "sum")[other, one] == 1
    assert relation_matrix(before, relation, "sum", turned=True)[one, other] == 1
    change = before.matrix("relations") - after.matrix("relations")
    assert sorted(zip(*change.nonzero(), strict=True)) == sorted([(one, other), (other, one)])
