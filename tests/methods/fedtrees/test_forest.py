"""Gradients, histograms, splits and leaves by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.methods.fedtrees import forest
from graphsilo.methods.fedtrees.bins import LARGEST, codes_of
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.forest import Growing, Layout, Rule

SIX = np.array([[1, 0], [2, 1], [3, 0], [4, 1], [5, 0], [6, 1]], dtype=np.float32)
EDGES = np.array([[1.5, 2.5, 3.5, 4.5, 5.5], [0.5, *[LARGEST] * 4]], dtype=np.float32)
CLASSES = np.array([0, 0, 1, 1, 1, 0])


def grown(rows, edges, labels, rule, margins=None, parts=((0, None),), scale=1 << 10):
    """A tree of the rows of several silos, from sums alone."""
    layout = Layout.draw(edges, 64, 0, 0)
    margins = np.zeros((len(rows), 1)) if margins is None else margins
    growing = Growing(rule, layout, margins.shape[1], scale)
    while len(growing.wanted):
        upper = torch.from_numpy(growing.columns), torch.from_numpy(growing.thresholds)
        total = 0
        for part in (slice(*each) for each in parts):
            first, second = forest.gradients(margins[part], labels[part], np.ones(len(labels[part])))
            total = total + forest.histograms(
                layout.places(codes_of(rows[part], edges)), layout.size, forest.leaves_of(rows[part], *upper),
                growing.wanted, *((scale * each).round().astype(np.int64) for each in (first, second)),
            )  # fmt: skip
        growing.grow(total)
    return growing.tree()


def test_six_rows_by_hand():
    """g is 1/2 for class 0 and -1/2 for class 1, h is 1/4 each. All: G = 0. Of the first column, after two rows:
    G = 1, H = 1/2 against -1 and 1: gain (1/1.5 + 1/2) / 2 = 0.583; after three 1/2 (0.25/1.75) 2 = 0.143; after five
    (0.25/2.25 + 0.25/1.25) / 2 = 0.156. The second column: rows 0, 2, 4 have G = -1/2, the others 1/2: 0.143. Then the
    right side, rows 2 to 5 with G = -1, H = 1: row 5 alone has 1/2, the others -3/2 and 3/4: gain
    (2.25/1.75 + 0.25/1.25 - 1/2) / 2 = 0.493. The left side is pure: no split has a gain there."""
    tree = grown(SIX, EDGES, CLASSES, Rule(depth=2, lr=1.0, l2=1.0, gamma=0.0, min_child=1))
    assert tree["columns"][0].tolist() == [[0, 0, 0]]
    assert tree["thresholds"][0].tolist() == [[2.5, float(np.float32(LARGEST)), 5.5]]
    assert tree["values"][0].tolist() == [pytest.approx([-1 / 1.5, 0, 1.5 / 1.75, -0.5 / 1.25])]
    leaves = forest.leaves_of(SIX, tree["columns"][0], tree["thresholds"][0])
    assert leaves[:, 0].tolist() == [0, 0, 2, 2, 2, 3]


def test_every_row_adds_to_the_penalty():
    """Six rows of 1/12 each: λ is 1, as above."""
    rule = Rule(depth=2, lr=1.0, l2=0.5, gamma=0.0, min_child=1, l2_per_row=1 / 12)
    tree = grown(SIX, EDGES, CLASSES, rule)
    assert tree["values"][0].tolist() == [pytest.approx([-1 / 1.5, 0, 1.5 / 1.75, -0.5 / 1.25])]


@pytest.mark.parametrize(
    ("rule", "thresholds"),
    [
        ({"min_child": 3}, [3.5, LARGEST, LARGEST]),  # 0.143 as the second column, of which the first is taken
        ({"gamma": 0.5}, [2.5, LARGEST, LARGEST]),  # 0.583, but not 0.493
        ({"gamma": 0.6}, [LARGEST, LARGEST, LARGEST]),
    ],
)
def test_what_a_split_must_have(rule, thresholds):
    tree = grown(SIX, EDGES, CLASSES, Rule(**{"depth": 2, "lr": 1.0, "l2": 1.0, "gamma": 0.0, "min_child": 1, **rule}))
    assert tree["thresholds"][0, 0].tolist() == pytest.approx(thresholds)


def test_gradients_by_hand():
    first, second = forest.gradients(np.log([[1.0], [3.0]]), np.array([1, 0]), np.array([1.0, 2.0]))
    assert first[:, 0] == pytest.approx([-0.5, 2 * 0.75])
    assert second[:, 0] == pytest.approx([0.25, 2 * 0.75 * 0.25])
    first, second = forest.gradients(np.log([[1.0, 2.0, 1.0]]), np.array([1]), np.ones(1))
    assert first[0] == pytest.approx([0.25, -0.5, 0.25])
    assert second[0] == pytest.approx([3 / 16, 1 / 4, 3 / 16])


def test_where_a_forest_begins():
    assert forest.base_of(np.array([3.0, 1.0])) == pytest.approx([np.log(1 / 3)])
    assert forest.base_of(np.array([2.0, 1.0, 1.0])) == pytest.approx(np.log([0.5, 0.25, 0.25]))
    assert forest.base_of(np.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("rows", "heaviest", "scale"),
    [(0, 0.0, 2**20), (2047, 0.5, 2**20), (2048, 0.5, 2**19), (10**6, 50.0, 32), (10**12, 1.0, 1)],
)
def test_sums_have_31_bits(rows, heaviest, scale):
    """The largest power of two times all weights, each at least 1, stays below 2^31: 2^31 / (50 · 10^6) = 42.9."""
    assert forest.scale_of(rows, heaviest) == scale


def test_histograms_by_hand():
    layout = Layout.draw(np.array([[0.5, LARGEST]], dtype=np.float32), 64, 0, 0)
    assert (layout.size, layout.starts.tolist()) == (3, [1])
    places = layout.places(np.array([[0], [1], [1]], dtype=np.uint8))
    nodes, gradients = np.array([[0, 2], [1, 2], [1, 0]]), np.array([[5, 1], [-7, 2], [2, -4]])
    found = forest.histograms(places, 3, nodes, np.array([[0, 1], [1, 2]]), gradients, np.ones((3, 2), np.int64))
    assert found[:, 0].tolist() == [[-5, 0, -5], [2, 0, 2], [2, 0, 2]]
    assert found[:, 1].tolist() == [[3, 1, 2], [2, 1, 1], [2, 1, 1]]


def test_a_step_draws_so_many_of_the_columns():
    edges = np.zeros((10, 1), dtype=np.float32)
    drawn = [Layout.draw(edges, 3, 0, step).columns.tolist() for step in range(8)]
    assert all(len(each) == 3 and each == sorted(set(each)) for each in drawn)
    assert len(set(map(tuple, drawn))) > 4
    assert drawn[0] == Layout.draw(edges, 3, 0, 0).columns.tolist()
    assert [FedTreesConfig(columns=3).num_drawn(count) for count in (1, 2, 3, 5, 9)] == [1, 1, 2, 3, 3]


@pytest.mark.parametrize("parts", [[(0, 3), (3, 6)], [(4, 6), (0, 0), (0, 4)]])
def test_sums_of_silos_are_those_of_one_place(parts):
    rule = Rule(depth=3, lr=0.3, l2=0.5, gamma=0.0, min_child=1)
    margins = np.random.default_rng(0).standard_normal((6, 3))
    labels = np.array([0, 2, 1, 1, 2, 0])
    one = grown(SIX, EDGES, labels, rule, margins)
    other = grown(SIX, EDGES, labels, rule, margins, parts)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_lie_about_one_child_makes_no_giant_of_the_other():
    """With a hessian of -0.999 the leaf would be a thousand times as large as any."""
    rule = Rule(depth=1, lr=0.1, l2=1.0, gamma=0.0, min_child=1)
    for hessian in (-0.999, 0.0):
        assert rule.value(np.array([2.0]), np.array([hessian])) == pytest.approx(-0.2)
        assert rule.score(np.array([2.0]), np.array([hessian])) == pytest.approx(4.0)


def test_a_corrected_leaf_lies_between_the_common_one_and_that_of_the_own_rows():
    tree = {"values": torch.tensor([[[0.5, -1.0]]])}
    rule = Rule(depth=1, lr=0.1, l2=1.0, gamma=0.0, min_child=1)
    sums = np.array([[[-6.0, 0.0]], [[2.0, 0.0]]])
    found = forest.correct_leaves(tree, sums, rule, 4.0)
    assert found["values"][0, 0].tolist() == pytest.approx([(4 * 0.5 + 0.6) / 6, -1.0])
