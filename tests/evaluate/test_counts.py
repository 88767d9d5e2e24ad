from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.graph import Graph
from graphsilo.data.links import NodeTypes
from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.errors import DataError
from graphsilo.evaluate.counts import ConfusionPlan
from graphsilo.evaluate.groups import Groups, node_groups

LABELS = np.array([0, 0, 0, 1])
ITEMS = {"val": np.array([0]), "test": np.array([1, 2, 3])}


def path_set(part=None) -> EvaluationSet:
    edges = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    return EvaluationSet("seen", Graph(np.zeros((4, 1), np.float32), edges, LABELS, 2), ITEMS, part)


def test_a_path_worked_by_hand():
    # cells: node 1 neither (0), node 2 hete (1), node 3 hete and minority (3)
    plan = ConfusionPlan.of(path_set(), 2)
    counts = plan.count(np.array([1, 0, 1, 1]))
    assert counts.shape == plan.shape == (1, 2, 4, 2, 2)
    assert counts.dtype == np.int64
    assert counts[0, plan.kind("val")].sum(axis=0).tolist() == [[0, 1], [0, 0]]
    test = counts[0, plan.kind("test")]
    assert test[0].tolist() == [[1, 0], [0, 0]]
    assert test[1].tolist() == [[0, 1], [0, 0]]
    assert test[2].tolist() == [[0, 0], [0, 0]]
    assert test[3].tolist() == [[0, 0], [0, 1]]
    assert plan.part_sizes.tolist() == [4]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_torch_predictions_count_the_same(dtype):
    plan = ConfusionPlan.of(path_set(), 2)
    predicted = np.array([1, 0, 1, 1])
    assert (plan.count(torch.tensor(predicted, dtype=dtype)) == plan.count(predicted)).all()
    assert (plan.count(predicted.astype(np.int32)) == plan.count(predicted)).all()
    assert (plan.count(predicted.tolist()) == plan.count(predicted)).all()
    scores = torch.eye(2)[torch.from_numpy(predicted)].requires_grad_()
    assert (plan.count(scores.argmax(1)) == plan.count(predicted)).all()


def test_counting_leaves_the_predictions_and_the_plan_alone():
    plan = ConfusionPlan.of(path_set(), 2)
    predicted = np.array([1, 0, 1, 1])
    first = plan.count(predicted)
    assert predicted.tolist() == [1, 0, 1, 1]
    assert (plan.count(predicted) == first).all()


def test_parts_are_counted_apart():
    plan = ConfusionPlan.of(path_set(np.array([0, 2, 2, 0])), 2, num_parts=4)
    counts = plan.count(np.array([0, 0, 1, 1]))
    assert counts.sum(axis=(2, 3, 4)).tolist() == [[1, 1], [0, 0], [0, 2], [0, 0]]
    assert plan.part_sizes.tolist() == [2, 0, 2, 0]


def test_a_client_weighs_as_much_as_it_has_nodes_that_could_be_classified():
    """Of two accounts and a shop each, one account without a label: two, and not three or one."""
    types = NodeTypes(("account", "shop"), np.array([0, 0, 1, 0, 0, 1], np.int16), np.array([0], np.int16), 0)
    labels = np.array([0, -1, -1, 0, 1, -1])
    graph = Graph(np.zeros((6, 1), np.float32), np.zeros((2, 0), np.int64), labels, 2, types=types)
    items = {"test": np.array([0, 3, 4])}
    part = np.array([0, 0, 0, 1, 1, 1])
    assert ConfusionPlan.of(EvaluationSet("seen", graph, items), 2).part_sizes.tolist() == [4]
    assert ConfusionPlan.of(EvaluationSet("seen", graph, items, part), 2).part_sizes.tolist() == [2, 2]


def test_items_of_nobody_or_without_label_are_left_out():
    labels = np.array([0, -1, 1, 1])
    plan = ConfusionPlan({"test": np.arange(4)}, labels, 2, part=np.array([0, 0, 0, -1]))
    assert plan.count(np.array([0, 0, 0, 0])).sum() == 2
    assert plan.part_sizes.tolist() == [3]


def test_items_of_several_kinds():
    plan = ConfusionPlan({**ITEMS, "train": np.array([0, 1, 2, 3])}, LABELS, 2)
    assert plan.kinds == ("val", "test", "train")
    counts = plan.count(LABELS)
    assert counts.sum(axis=(0, 2, 3, 4)).tolist() == [1, 3, 4]


def test_nothing_to_score():
    plan = ConfusionPlan({"test": np.zeros(0, np.int64)}, np.zeros(3, np.int64), 2)
    assert plan.count(np.zeros(3, np.int64)).sum() == 0
    assert ConfusionPlan({}, np.zeros(3, np.int64), 2).count(np.zeros(3, np.int64)).shape == (1, 0, 4, 2, 2)


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        (np.array([0, 1]), "4 items"),
        (np.array([0, 1, 2, 0]), "0 to 1"),
        (np.array([0, -1, 0, 0]), "0 to 1"),
        (np.array([0.0, 1.0, 0.0, 0.0]), "argmax"),
        (np.zeros((4, 2)), "4 items"),
    ],
)
def test_wrong_predictions_are_refused(predicted, said):
    with pytest.raises(DataError, match=said):
        ConfusionPlan.of(path_set(), 2).count(predicted)


def test_wrong_plans_are_refused():
    with pytest.raises(DataError, match="below 1"):
        ConfusionPlan(ITEMS, LABELS, 1)
    for bad in (4, 9, -1, -3):
        with pytest.raises(DataError, match=f"items are numbered 0 to 3; got {bad}"):
            ConfusionPlan({"val": np.array([0]), "test": np.array([3, bad, 1])}, LABELS, 2)
    with pytest.raises(DataError, match="one of 2 parts, 0 to 1; got 2"):
        ConfusionPlan(ITEMS, LABELS, 2, part=np.array([0, 1, 2, 0]), num_parts=2)
    with pytest.raises(DataError, match="part must hold"):
        ConfusionPlan(ITEMS, LABELS, 2, part=np.array([0]))
    with pytest.raises(DataError, match="did you mean 'test'"):
        ConfusionPlan(ITEMS, LABELS, 2).kind("tset")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 6), st.integers(1, 4))
def test_counts_add_up_over_items_and_parts(seed, n, classes, parts):
    random = np.random.default_rng(seed)
    labels, predicted = random.integers(-1, classes, n), random.integers(0, classes, n)
    groups = Groups(random.random(n) < 0.5, random.random(n) < 0.5)
    part = random.integers(0, parts, n)
    items, cut = random.permutation(n), int(random.integers(0, n + 1))

    def count(chosen, **more):
        return ConfusionPlan({"test": chosen}, labels, classes, groups=groups, **more).count(predicted)

    whole = count(items)
    assert (count(items[:cut]) + count(items[cut:]) == whole).all()
    assert (count(items, part=part, num_parts=parts).sum(axis=0) == whole[0]).all()
    for which in range(parts):  # a part of the pool = that client alone
        alone = count(items[part[items] == which])
        assert (count(items, part=part, num_parts=parts)[which] == alone[0]).all()
    # every cell is the plain confusion matrix of its nodes
    for cell in range(4):
        expected = np.zeros((classes, classes), dtype=int)
        for i in range(n):
            if labels[i] >= 0 and groups.cell[i] == cell:
                expected[labels[i], predicted[i]] += 1
        assert (whole[0, 0, cell] == expected).all()


def test_groups_of_a_set_are_those_of_its_graph():
    evaluation = path_set()
    by_hand = ConfusionPlan(ITEMS, LABELS, 2, groups=node_groups(evaluation.graph))
    predicted = np.array([0, 1, 1, 0])
    assert (ConfusionPlan.of(evaluation, 2).count(predicted) == by_hand.count(predicted)).all()


def test_three_kinds_of_three_parts_are_nine_tables():
    # Each part has one item of each kind; item 3p + k is predicted as class k.
    items = {name: np.arange(k, 9, 3) for k, name in enumerate(("val", "test", "missing_class"))}
    plan = ConfusionPlan(items, np.arange(9) // 3, 3, part=np.arange(9) // 3)
    found = plan.count(np.arange(9) % 3)
    for part in range(3):
        for kind in range(3):
            wanted = np.zeros((3, 3), dtype=np.int64)
            wanted[part, kind] = 1  # the parts' true classes are their own numbers
            assert np.array_equal(found[part, kind].sum(0), wanted)
