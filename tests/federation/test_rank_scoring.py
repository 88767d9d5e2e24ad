"""What a client computes of how its model ranks."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.errors import RequestError
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


@pytest.mark.parametrize("bounds", [[1.0, 2.0, 4.0, 5.0], [1.0, 3.0], [2.0, 1.0], list(range(99))])
def test_no_two_periods_that_differ_by_a_day_are_told_apart(bounds: list[float]) -> None:
    """The difference of their tables would say what is on that day; and of single days tables say it at once."""
    graph = Graph(
        np.zeros((6, 1), np.float32), np.zeros((2, 0), np.int64), np.zeros(6, np.int64), 1, time=np.arange(6.0)
    )
    seen, asked = EvaluationSet("seen", graph, {"test": np.arange(6)}), list[float]()
    for _ in range(2):
        assert "test:1" in with_periods(seen, [1.0, 2.0, 4.0], 1, asked).items
    with pytest.raises(RequestError, match="periods of a kind was asked of this silo that no run"):
        with_periods(seen, bounds, 1, asked)
    if len(bounds) > 60:
        with pytest.raises(RequestError, match="periods of a kind"):
            with_periods(seen, bounds, 1)
