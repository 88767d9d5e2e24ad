"""Columns of whole graphs by hand, what they do not depend on, and the forest of one place."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.methods.fedtrees.graphs import STRUCTURE, graph_columns, width_of_graphs
from graphsilo.models.view import GraphTensors
from kit.fedtrees import QUICK

TRIANGLES = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]
"""Two triangles that share node 2."""


def collection(parts, features=None, labels=None):
    """Graphs of numbers of nodes and undirected links."""
    pointer = np.cumsum([0, *(nodes for nodes, _ in parts)])
    ends = [(a + start, b + start) for (_, links), start in zip(parts, pointer, strict=False) for a, b in links]
    both = np.array([*ends, *((b, a) for a, b in ends)], dtype=np.int64).reshape(-1, 2).T
    rows = np.ones((pointer[-1], 1), np.float32) if features is None else features
    union = Graph(rows, both, np.full(pointer[-1], -1, dtype=np.int64), 2)
    classes = np.zeros(len(parts), dtype=np.int64) if labels is None else np.asarray(labels)
    return GraphCollection(union, pointer, classes, 2)


def columns(*parts, features=None, dim=8):
    return graph_columns(GraphTensors(collection(parts, features)), dim, 0)


def drawn(number, nodes=9):
    """A graph with as many links as nodes, or three times as many: its class."""
    draw = np.random.default_rng(number)
    ends = draw.integers(0, nodes, (nodes * (1 + 2 * (number % 2)), 2))
    return nodes, sorted({(int(min(pair)), int(max(pair))) for pair in ends if pair[0] != pair[1]})


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
    assert graph_columns(GraphTensors(collection([])), 8, 0).shape == (0, 3 + STRUCTURE)


def test_a_star_of_100_000_nodes_and_many_graphs_take_seconds():
    before = time.process_time()
    found = columns((100_001, [(0, leaf) for leaf in range(1, 100_001)]), *[(2, [(0, 1)])] * 20_000)
    assert time.process_time() - before < 20
    assert found[0, 26] == pytest.approx(np.log1p(100_000))  # each leaf is a group
    assert np.array_equal(found[1], found[-1])


def silo_of(client, numbers):
    graph = collection([drawn(number) for number in numbers], labels=[number % 2 for number in numbers])
    place = np.asarray(numbers) // 2 % 4
    items = {name: np.flatnonzero(np.isin(place, which)) for name, which in
             (("train", (0, 1)), ("val", (2,)), ("test", (3,)))}  # fmt: skip
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), Schema("graph", 1, 2))


def test_the_forest_is_that_of_one_place_bit_for_bit(kit):
    numbers, forests = np.arange(90), []
    for cut in ([numbers], [numbers[60:], numbers[:60]], np.array_split(numbers[::-1], 7)):
        silos = [silo_of(client, part.tolist()) for client, part in enumerate(cut)]
        server, federation = kit.build("fedtrees", silos, **QUICK)
        server.set_up(federation)
        for number in range(1, 5):
            kit.rounds(server, federation, start=number)
        forests.append(server.forest)
    assert forests[0]["values"].any()
    for other in forests[1:]:
        assert all(torch.equal(forests[0][name], other[name]) for name in other)
    client = federation.client(0)
    predicted = client.predict(client.data).argmax(1).numpy()
    assert (predicted == client.silo.labels).mean() > 0.9
