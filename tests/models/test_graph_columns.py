"""Columns of whole graphs by hand, and what they do not depend on."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.models.graph_columns import STRUCTURE, graph_columns, width_of_graphs
from graphsilo.models.view import GraphTensors
from kit.linked_graphs import collection, drawn

TRIANGLES = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]
"""Two triangles that share node 2."""


def columns(*parts, features=None, dim=8):
    graphs = collection(parts, features)
    return graph_columns(graphs, GraphTensors(graphs).matrix("mean"), dim, 0)


def test_by_hand():
    """Degrees 2, 2, 4, 2, 2 of 4 that there may be. Nodes 0 and 1 are one class, 3 and 4 another, 2 a third; the
    first two have no neighbour with fewer links, so they are groups, of four of the five nodes, with 3 nodes each."""
    [row] = columns((5, TRIANGLES), features=np.array([[0], [0], [5], [0], [0]], np.float32))
    log, mean = np.log1p, (4 * np.log(3) + np.log(5)) / 5
    assert row[:3] == pytest.approx([1, 2.0, 1.5])  # N X is 2.5, 2.5, 0, 2.5, 2.5; N² X 1.25, 1.25, 2.5, 1.25, 1.25
    assert row[3:6] == pytest.approx([log(5), log(12), 12 / 20])
    assert row[6:8] == pytest.approx([mean, 0.4 * np.log(5 / 3)])
    assert row[8:15] == pytest.approx([*[np.log(3)] * 6, np.log(5)])
    assert row[15:17] == pytest.approx([0.6, 0.2])
    assert row[17:24] == pytest.approx([*[0.5] * 6, 1.0])
    assert row[24:29] == pytest.approx([log(3), 0.6, log(2), 0.4, 0.8])
    assert row[29:34] == pytest.approx([log(2), log(2), log(1), 0, 0])
    assert row[34:] == pytest.approx([log(3), log(3), 0, 0, 0])
    assert len(row) == width_of_graphs(1, 8) == 3 + STRUCTURE


def test_whatever_the_order_of_nodes():
    features = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    order = np.array([3, 0, 4, 2, 1])  # new number of each node
    turned = [(order[a], order[b]) for a, b in TRIANGLES]
    assert columns((5, TRIANGLES), features=features) == pytest.approx(
        columns((5, turned), features=features[np.argsort(order)]), abs=1e-6
    )


@pytest.mark.parametrize("dim", [8, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_does_not_depend_on_who_else_is_there(dim, sparse):
    parts = [drawn(number, nodes) for number, nodes in enumerate((9, 4, 30, 1, 12))]
    draw = np.random.default_rng(1)
    rows = [(draw.random((nodes, 6)) < 0.4).astype(np.float32) for nodes, _ in parts]
    kept = sp.csr_matrix if sparse else np.asarray
    together = columns(*parts, features=kept(np.concatenate(rows)), dim=dim)
    for number, part in enumerate(parts):
        assert np.array_equal(columns(part, features=kept(rows[number]), dim=dim)[0], together[number])
    assert together.shape[1] == width_of_graphs(6, dim)


def test_graphs_without_nodes_or_links():
    found = columns((0, []), (1, []), (3, []), (2, [(0, 1)]))
    assert np.isfinite(found).all()
    assert not found[0].any()
    log = np.log1p
    assert found[1, 24:].tolist() == pytest.approx([log(1), 1, log(1), 1, 1, log(1), 0, 0, 0, 0, log(1), 0, 0, 0, 0])
    assert found[2, 24:29].tolist() == pytest.approx([log(3), 1, log(3), 1, 1])  # three groups of one
    assert found[3, 24:29].tolist() == pytest.approx([log(1), 0.5, log(1), 0.5, 1])  # one of two
    assert columns().shape == (0, 3 + STRUCTURE)


def test_a_star_of_100_000_nodes_and_many_graphs_take_seconds():
    before = time.process_time()
    found = columns((100_001, [(0, leaf) for leaf in range(1, 100_001)]), *[(2, [(0, 1)])] * 20_000)
    assert time.process_time() - before < 20
    assert found[0, 26] == pytest.approx(np.log1p(100_000))  # each leaf is a group
    assert np.array_equal(found[1], found[-1])
