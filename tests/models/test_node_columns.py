"""Columns of relations: what the nodes at the other end of a node's rows look like."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable, NodeTypes
from graphsilo.data.silos.silo import Schema
from graphsilo.models.node_columns import (
    node_columns,
    own_columns,
    relation_columns,
    relation_sources,
    views_of,
    width_of_relations,
)
from graphsilo.models.view import GraphTensors

NONE = np.zeros((3, 0), dtype=np.float32)


@pytest.fixture
def bank() -> Graph:
    """Accounts 0, 1, 2 with an age; a shop 3 with a size. 0 and 1 pay the shop, 0 twice; 1 sends to 2."""
    edges = np.array([[0, 3, 1, 3, 1, 2], [3, 0, 3, 1, 2, 1]])
    features = np.array([[20, 0, 1], [40, 0, 2], [60, 0, 0], [0, 9, 0]], dtype=np.float32)
    return Graph(
        features,
        edges,
        np.array([0, 1, 0, -1]),
        2,
        feature_names=("account.age", "shop.size", "payment out: count"),
        types=NodeTypes(("account", "shop"), np.array([0, 0, 0, 1], np.int16), np.array([0, 1, 0], np.int16), 0),
        links=LinkTable(
            ("payment", "transfer"),
            np.array([0, 0, 0, 1], np.int16),
            np.array([[0, 0, 1, 1], [3, 3, 3, 2]]),
            np.zeros((4, 0)),
            between=np.array([[0, 1], [0, 0]], np.int16),
        ),
    )


def test_columns_are_of_the_type_at_the_other_end(bank: Graph) -> None:
    schema = Schema.of(bank, "node")
    sources = [(number, turned, columns.tolist()) for number, turned, columns in relation_sources(schema, 64)]
    # To a shop come accounts' columns, to who pays a shop's; sums over payments are of accounts.
    assert sources == [(0, False, [0, 2]), (0, True, [1]), (1, False, [0, 2]), (1, True, [0, 2])]
    data = GraphTensors(bank)
    found = relation_columns(data, schema, own_columns(data, 64, NONE, 0), 64)
    assert found.shape == (4, width_of_relations(schema, 64)) == (4, 6 + 4 + 6 + 6)
    two = np.log(2.0)
    # Each: mean, log(1 + links), deviation, mean of that logarithm at the other end; parallel rows are one link.
    assert found[3, :6] == pytest.approx([30, 1.5, np.log(3.0), 10, 0.5, 0])
    assert found[0, 6:10] == pytest.approx([9, two, 0, 0])
    assert found[2, 10:16] == pytest.approx([40, 2, two, 0, 0, 0])
    assert found[1, 16:] == pytest.approx([60, 0, two, 0, 0, 0])
    assert not found[2, :10].any()


def test_a_wide_graph_has_its_projection_at_the_other_end(bank: Graph) -> None:
    schema = Schema.of(bank, "node")
    assert [columns for _, _, columns in relation_sources(schema, 2)] == [None] * 4
    data = GraphTensors(bank)
    own = own_columns(data, 2, np.zeros((3, 1), dtype=np.float32), 0)
    assert relation_columns(data, schema, own, 2).shape == (4, width_of_relations(schema, 2)) == (4, 4 * 3)


def test_no_node_has_no_columns(bank: Graph) -> None:
    data = GraphTensors(bank.subgraph(np.zeros(0, dtype=np.int64)))
    assert own_columns(data, 2, np.zeros((3, 1), dtype=np.float32), 0).shape == (0, 2)


@pytest.mark.parametrize("dim", [2, 64])
def test_columns_of_some_nodes_are_those_rows_of_all(bank: Graph, dim: int) -> None:
    schema, data = Schema.of(bank, "node"), GraphTensors(bank)
    known = np.zeros((3, 1 if dim == 2 else 0), dtype=np.float32), 0, (data, schema)
    views, some = views_of(data, schema), np.array([0, 2])
    assert np.array_equal(node_columns(views, dim, *known, some), node_columns(views, dim, *known)[some])
