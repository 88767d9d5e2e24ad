"""Training on what there is up to the last training node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable
from graphsilo.data.silos.link_scaling import add_own_scale
from graphsilo.data.silos.past import train_on_past
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo

ROWS = LinkTable(
    ("pays",), np.zeros(3, np.int16), np.array([[0, 3, 1], [1, 1, 0]]), np.array([[1.0], [3.0], [900.0]]),
    ("pays.sum",), np.array([0.0, 1.0, 7.0]),
)  # fmt: skip


def silo() -> Silo:
    """Of five nodes the first, third and fifth train on day 1; the second comes later, the fourth has no time."""
    graph = Graph(
        np.arange(5, dtype=np.float32)[:, None], np.array([[0, 2], [1, 4]]), np.array([0, 1, 1, 0, 1]), 2,
        time=np.array([0.0, 8.0, 1.0, np.nan, 1.0]), links=ROWS,
    )  # fmt: skip
    seen = EvaluationSet("seen", graph, {"val": np.array([1]), "test": np.array([1])})
    noisy = np.array([1, 1, 0, 0, 1])
    return Silo(0, graph, np.array([0, 2, 4]), (seen,), Schema.of(graph, "node"), noisy_labels=noisy)


def test_no_later_node_or_row_is_trained_on() -> None:
    whole = silo()
    past = train_on_past(whole)
    assert past.graph.union.features.ravel().tolist() == [0, 2, 3, 4]
    assert past.train.tolist() == [0, 1, 3]
    assert past.labels.tolist() == [1, 0, 0, 1]
    assert past.graph.union.edges.tolist() == [[1], [3]]
    assert past.seen is whole.seen
    assert train_on_past(past) is past
    assert train_on_past(replace(whole, train=np.zeros(0, np.int64))).graph is whole.graph


def test_columns_of_links_are_scaled_by_rows_up_to_then() -> None:
    """Nodes 0 and 1 are early enough; the row of 900 between them is not."""
    whole = silo()
    early = replace(whole.graph.union, time=np.array([0.0, 1.0, 1.0, np.nan, 1.0]))
    scale = add_own_scale(None, replace(whole, graph=early), "standard").links
    assert scale is not None
    assert (scale.shift.tolist(), scale.factor.tolist()) == ([2.0], [1.0])
