from __future__ import annotations

import json

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, audit
from graphsilo.errors import PartitionError
from kit.silos import ids


def make(nodes, train, test, *, num_nodes: int = 6) -> Partition:
    return Partition("files", 0, "tiny", num_nodes, nodes, train, tuple(ids() for _ in nodes), test)


def test_two_triangles_cut_beside_the_bridge(two_triangles: Graph) -> None:
    # Client 0 holds 0, 1, 2, 3: the links 01, 02, 12, 23. Client 1 holds 4, 5: the link 45. Cut: 34 and 35.
    report = audit(make((ids(0, 1, 2, 3), ids(4, 5)), (ids(0), ids(4)), (ids(3), ids(5))), two_triangles)
    assert report.is_disjoint_cover
    assert (report.edges, report.kept_edges, report.cut_edges) == (14, 10, 4)
    assert report.kept_share == pytest.approx(10 / 14)
    assert report.homophily == pytest.approx(6 / 7)
    first, second = report.per_client
    assert (first.nodes, first.edges, first.train, first.val, first.test) == (4, 8, 1, 0, 1)
    assert first.labels == (3, 1)
    assert first.missing_classes == (1,)
    assert first.homophily == pytest.approx(3 / 4)
    assert first.mean_degree == 2.0
    assert (first.isolated, first.components) == (0, 1)
    assert second.missing_classes == (0,)
    assert second.homophily == 1.0


def test_missing_and_shared_nodes_and_leaks_are_counted(two_triangles: Graph) -> None:
    # Node 2 is held twice, trained on by client 0 and tested on by client 1; nodes 4 and 5 are held by nobody.
    report = audit(make((ids(0, 1, 2), ids(2, 3)), (ids(2), ids(3)), (ids(0), ids(2))), two_triangles)
    assert not report.is_disjoint_cover
    assert (report.duplicates, report.missing, report.train_test_overlap) == (1, 2, 1)
    assert (report.kept_edges, report.cut_edges) == (8, 6)


def test_isolated_nodes_and_components(two_triangles: Graph) -> None:
    report = audit(make((ids(0, 5, 4, 1), ids(2, 3)), (ids(0), ids(3)), (ids(1), ids(2))), two_triangles)
    assert (report.per_client[0].isolated, report.per_client[0].components) == (0, 2)
    lonely = two_triangles.with_edges(np.array([[0, 1], [1, 1]]))
    report = audit(make((ids(0, 1, 2), ids(3, 4, 5)), (ids(0), ids(3)), (ids(1), ids(4))), lonely)
    # A self-loop is an edge but no company.
    assert (report.per_client[0].isolated, report.per_client[0].components) == (1, 2)
    assert (report.per_client[1].isolated, report.per_client[1].components) == (3, 3)
    assert report.per_client[1].homophily is None
    assert report.per_client[1].mean_degree == 0.0


def test_it_turns_into_json(two_triangles: Graph) -> None:
    report = audit(make((ids(0, 1, 2), ids(3, 4, 5)), (ids(0), ids(3)), (ids(1), ids(4))), two_triangles)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["per_client"][1]["labels"] == [0, 3]
    assert plain["cut_edges"] == 2


def test_another_graph_is_refused(two_triangles: Graph, blocks: Graph) -> None:
    with pytest.raises(PartitionError):
        audit(make((ids(0, 1),), (ids(0),), (ids(1),)), blocks)
