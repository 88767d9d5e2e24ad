"""What a client computes of how its model ranks."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.federation.rank_scoring import with_periods


def test_items_of_each_period():
    labels, none = np.array([0, 1, 0, 1, -1, 1]), np.zeros((2, 0), dtype=np.int64)
    graph = Graph(np.ones((6, 1)), none, labels, 2, time=np.array([1.0, 2, 3, 4, 4, np.nan]))
    found = with_periods(EvaluationSet("seen", graph, {"test": np.array([1, 2, 3, 4, 5])}), [1.0, 2.0, 4.0], 1).items
    assert {kind: items.tolist() for kind, items in found.items()} == {
        "test": [1, 2, 3, 4, 5], "test:0": [1], "test:1": [2, 3, 4],
    }  # fmt: skip
    few = with_periods(EvaluationSet("seen", graph, {"test": np.array([1, 2, 3, 4, 5])}), [1.0, 2.0, 4.0], 2).items
    assert [len(few[kind]) for kind in ("test:0", "test:1")] == [0, 3]
