"""What the benchmark's liars train on and send, and what is kept of a run."""

from __future__ import annotations

import numpy as np
import pytest
import robust
import scipy.sparse as sp
import torch
from robust import ATTACKS, Attack, Score, farthest, row, spoiled, triggered, unlike

from graphsilo.data.graph import Graph


@pytest.mark.parametrize("sparse", [True, False])
def test_the_trigger_is_on_the_nodes_alone(sparse: bool) -> None:
    features = np.zeros((4, 20), dtype=np.float32)
    features[0, 0] = 3.0
    edges = np.zeros((2, 0), dtype=np.int64)
    kept = sp.csr_array(features) if sparse else features
    graph = Graph(features=kept, edges=edges, labels=np.zeros(4, dtype=np.int64), num_classes=2)
    found = triggered(graph, np.array([1, 3])).features
    found = found.toarray() if sparse else found
    assert [(line == 3.0).sum() for line in found] == [1, 10, 0, 10]


def test_a_lie_near_the_bounds() -> None:
    """0.8 · 100 · 2 = 160 = 1 + 159 · (2 − 1); of a large model four fifths of a million."""
    one, two = {"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}
    assert farthest(one, two) == pytest.approx(159.0)
    assert farthest({"w": torch.tensor([1e5])}, {"w": torch.tensor([2e5])}) == pytest.approx(7.0)


def test_what_is_kept() -> None:
    def score(right: int, classes: list[int]) -> Score:
        return Score(items=4, right=right, own=3, tried=2, sent=1, classes=np.array(classes))

    scores = {0: score(4, [30, 5]), 1: score(2, [30, 6]), 2: score(1, [0, 12])}
    assert unlike(scores) == 2
    found = row(scores, [0])
    assert (found["accuracy"], found["all"], found["unlike"]) == ("37.5000", "58.3333", "25.0000")
    assert (found["sent"], found["unlike_own"], found["each"]) == ("50.0000", "75.0000", "100.00 50.00 25.00")


def test_liars_learn_from_other_labels(small) -> None:
    from graphsilo.experiments.simulation import prepare
    from graphsilo.methods.fedavg import METHOD

    silo = prepare(small(), METHOD).silos[0]
    labels = silo.labels[silo.train]
    assert spoiled(silo, ATTACKS["honest"]) is silo
    turned = spoiled(silo, Attack(labels=True)).labels[silo.train]
    assert (turned == silo.schema.num_classes - 1 - labels).all()
    behind = spoiled(silo, Attack(backdoor=True)).labels[silo.train]
    assert (behind[::2] == robust.TARGET).all()
    assert (behind[1::2] == labels[1::2]).all()
