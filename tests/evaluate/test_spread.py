"""Means over seeds, and how far items move scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphsilo.evaluate.significance import paired_errors
from graphsilo.evaluate.spread import SeedSummary, item_errors, summarise_seeds, summarise_values


def test_mean_and_spread_over_seeds():
    # deviations -1, 0, 1: sum of squares 2, divided by n - 1 = 2
    assert summarise_values([1.0, 2.0, 3.0]) == SeedSummary(2.0, 1.0, 3)
    assert summarise_values({5: 0.8}) == SeedSummary(0.8, None, 1)
    assert summarise_values([0.8] * 3) == SeedSummary(0.8, 0.0, 3)
    assert summarise_values([None, math.nan]) == SeedSummary(None, None, 0)
    assert summarise_values([None, 1.0, 3.0]) == SeedSummary(2.0, math.sqrt(2), 2)
    assert summarise_values([1.0, 2.0]).as_dict() == {"mean": 1.5, "std": math.sqrt(0.5)}


def test_results_of_several_seeds():
    one = {
        "accuracy": 0.5,
        "min_f1": None,
        "items": 4,
        "per_class_f1": [1.0],
        "worst_client": {"client": 3, "accuracy": 0.1},
    }
    two = {
        "accuracy": 1.0,
        "min_f1": None,
        "items": 4,
        "per_class_f1": [0.0],
        "worst_client": {"client": 1, "accuracy": 0.3},
    }
    result = summarise_seeds([one, two])
    assert result == {
        "accuracy": {"mean": 0.75, "std": pytest.approx(math.sqrt(0.125))},
        "min_f1": {"mean": None, "std": None},
        "worst_client": {"accuracy": {"mean": 0.2, "std": pytest.approx(math.sqrt(0.02))}},
    }
    assert summarise_seeds([one])["accuracy"] == {"mean": 0.5, "std": None}
    assert summarise_seeds([]) == {}


def test_only_what_two_models_answer_differently_is_uncertain():
    """Ten items: two that only the first model has right, one that only the second has, seven that both have."""
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    one, other = labels.copy(), labels.copy()
    other[[0, 5]] = 1 - labels[[0, 5]]
    one[7] = 1 - labels[7]
    found = paired_errors(labels, one, other, 2)
    assert found["accuracy"] == pytest.approx(math.sqrt((3 - 10 * 0.1**2) / 10**2))  # deviations from a mean of .1
    both = np.where(np.arange(10) % 2, 1 - labels, labels)  # half of the items wrong, and the same ones
    assert item_errors(confusion(labels, both, classes=2)[None])["accuracy"] == pytest.approx(math.sqrt(0.25 / 10))
    assert paired_errors(labels, both, both, 2) == {"accuracy": 0.0, "macro_f1": 0.0}
    assert paired_errors(labels, one, one, 2) == {"accuracy": 0.0, "macro_f1": 0.0}
    assert paired_errors(labels[:0], one[:0], one[:0], 2) == {}


def confusion(labels, answers, weights=None, classes=3):
    table = np.zeros((classes, classes))
    np.add.at(table, (labels, answers), 1 if weights is None else weights)
    return table


def test_an_item_moves_the_difference_by_its_own_slope():
    """Against weighing one item a little more, of random answers to three classes."""
    draw = np.random.default_rng(0)
    labels, one, other = draw.integers(0, 3, (3, 40))

    def macro_f1(answers, weights):
        table = confusion(labels, answers, weights)
        return float(np.mean(2 * table.diagonal() / (table.sum(0) + table.sum(1))))

    moves = []
    for item in range(40):
        more, less = np.ones(40), np.ones(40)
        more[item] += 1e-5
        less[item] -= 1e-5
        up, down = (macro_f1(one, weights) - macro_f1(other, weights) for weights in (more, less))
        moves.append((up - down) / 2e-5)
    assert paired_errors(labels, one, other, 3)["macro_f1"] == pytest.approx(math.hypot(*moves), rel=1e-6)
