"""The scale of targets from sums, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.data.silos.targets import (
    described_counts,
    read_targets,
    scale_values,
    target_scale,
    target_sums,
    with_target_scale,
)
from graphsilo.data.sources.targets import with_targets


def silo(values, train):
    n = len(values)
    plain = Graph(np.zeros((n, 1), np.float32), np.zeros((2, 0), np.int64), np.zeros(n, np.int64), 1)
    graph = with_targets(plain, np.array(values))
    items = {"val": np.zeros(0, np.int64), "test": np.zeros(0, np.int64)}
    return Silo(0, graph, np.array(train), (EvaluationSet("seen", graph, items),), Schema.of(graph, graph.task))


def test_sums_are_of_known_training_items_and_two_silos_add_up():
    one, other = silo([[1.0, np.nan], [3.0, 5.0], [99.0, 99.0]], [0, 1]), silo([[8.0, 5.0]], [0])
    counts, sums = (a + b for a, b in zip(target_sums(one), target_sums(other), strict=True))
    assert (counts.tolist(), sums.tolist()) == ([3, 2], [12.0, 10.0])
    centre = sums / counts
    squares = target_sums(one, centre)[1] + target_sums(other, centre)[1]
    assert squares.tolist() == [9 + 1 + 16, 0]
    scale = target_scale(centre, squares, counts)
    assert scale.factor == pytest.approx([(26 / 3) ** -0.5, 1.0])  # a constant one is shifted alone
    scaled = replace(one, scale=FeatureScale(np.zeros(0), np.zeros(0), targets=scale))
    back = read_targets(scaled, scale_values(scale, np.array([[1.0, 7.0]])))
    assert back == pytest.approx(np.array([[1.0, 7.0]]), rel=1e-6)


def test_a_silo_alone_has_its_own_and_an_agreed_one_wins():
    alone = silo([[1.0], [3.0]], [0, 1])
    own = with_target_scale(alone, None, None)
    assert (own.targets.shift.tolist(), own.targets.factor.tolist()) == ([2.0], [1.0])
    assert len(own.shift) == 0
    assert with_target_scale(alone, None, own).targets is own.targets


def test_what_is_told_of_a_label_describes_those_who_have_it_or_those_who_do_not():
    """Ten items are trained on: all, one, nine and none of them have these labels."""
    values = np.zeros((11, 4))
    values[:, 0] = values[3, 1] = values[1:, 2] = values[10] = 1
    assert described_counts(silo(values, range(10))).tolist() == [10, 1, 1, 10]
    assert described_counts(silo(values[:, :1] + 0.5, range(10))).tolist() == [10]
