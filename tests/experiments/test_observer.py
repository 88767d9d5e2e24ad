"""Who watches a run hears every round."""

from __future__ import annotations

import pytest

from graphsilo.experiments.runner import run
from kit.runs import Listener


def test_observers_hear_every_round(small):
    listener = Listener()
    result = run(small(run__seeds=[5, 6]), observer=listener)
    assert [(one.seed, one.index, one.round) for one in listener.heard] == [
        (5, 1, 1), (5, 1, 2), (5, 1, 3), (6, 2, 1), (6, 2, 2), (6, 2, 3),
    ]  # fmt: skip
    last = listener.heard[2]
    first_seed = result.tree["seeds"][0]
    assert last.upload_bytes == sum(row["upload_bytes"] for row in first_seed["rounds"])
    assert last.best == (pytest.approx(first_seed["validation"]["accuracy"]), first_seed["best_round"])
    assert listener.first["clients"] == 3
