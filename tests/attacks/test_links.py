"""Which nodes are linked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.attacks.links import correlation, links, sample_pairs
from kit.attacks import cases, recorded


def test_half_of_the_pairs_are_linked():
    for _, silo in cases(recorded()):
        pairs, linked = sample_pairs(silo)
        adjacency = silo.graph.adjacency().toarray() != 0
        assert np.array_equal(adjacency[pairs[0], pairs[1]], linked)
        assert linked.sum() == (~linked).sum() == np.triu(adjacency, 1).sum()
        assert (pairs[0] != pairs[1]).all()


def test_alike_answers_correlate():
    answers = torch.tensor([[0.0, 1.0, 2.0], [5.0, 6.0, 7.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
    assert correlation(answers, np.array([[0, 0], [1, 2]])) == pytest.approx([1.0, -1.0])
    # A class that nothing votes for
    sure = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf], [-torch.inf, 0.0]])
    assert correlation(sure, np.array([[0, 0], [1, 2]])) == pytest.approx([1.0, -1.0])


def test_published_predictions_say_more_than_features():
    run = recorded(method__rounds=10)
    (one,) = links(cases(run, "reader"), run.simulation.silos)
    assert one.uses == "published predictions of the silo's nodes"
    assert one.verdict == "above the prior"
    (other,) = links(cases(run), run.simulation.silos)
    assert other.uses == "the model, asked about the nodes without links"
    assert other.value < one.value
    assert other.prior == one.prior


def test_without_a_model_there_is_nothing_to_ask():
    run = recorded(method__name="local")
    (one,) = links(cases(run), run.simulation.silos)
    assert one.value is None
