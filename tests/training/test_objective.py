"""What local training minimises, and the loop around it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.data.graph import GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Links, Schema, Silo
from graphsilo.errors import UnsupportedError
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.objective import ClassifyItems, Slopes, objective
from kit.training import CLASSES, NODES, full_batch, graph, model_for, silo

BACKBONES = models.names()


def collection():
    whole = graph()
    pointer = np.arange(0, NODES + 1, 5)
    keep = whole.edges[:, whole.edges[0] // 5 == whole.edges[1] // 5]
    union = replace(whole.with_edges(keep), labels=np.full(NODES, -1))
    return GraphCollection(union, pointer, np.arange(8) % 2, 2)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", BACKBONES)
def test_restricted_rows_change_no_number(name, sparse):
    """Loss and gradients on the training rows alone are those of the whole graph."""
    one = silo(sparse=sparse)
    model, data = model_for(one, name), GraphTensors(one.graph)
    goal = objective(data, one)
    rows = torch.from_numpy(one.train)
    expected = F.cross_entropy(model(data.full)[rows], torch.from_numpy(one.labels[one.train]))
    loss = goal.loss(model, full_batch(goal), None)
    torch.testing.assert_close(loss, expected)
    mine = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    for left, right in zip(mine, theirs, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", BACKBONES)
def test_gradients_are_those_of_autograd_with_dropout_on(name):
    one = silo()
    model = model_for(one, name)
    goal = objective(GraphTensors(one.graph), one)
    batch, parameters = full_batch(goal), list(model.parameters())
    mine = goal.gradients(model, batch, generator(0, "train"), parameters)
    expected = goal.loss(model, batch, generator(0, "train"))
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, torch.zeros_like(left) if right is None else right, atol=1e-6, rtol=1e-4)


def sums_of(seen):
    """A term with a gradient for logits, embeddings and, beside the pass, the parameters."""

    def term(step):
        seen.append(step)
        weights = torch.arange(1.0, len(step.labels) + 1)[:, None]
        return (weights * step.logits.square()).sum() + (weights * step.embeddings).sum() / 7

    return term


@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("name", BACKBONES)
def test_a_terms_gradient_is_that_of_autograd_with_dropout_on(name, size):
    """One pass, by hand where the model can, gives what autograd gives of the whole loss."""
    one = silo()
    model = model_for(one, name)
    goal = objective(GraphTensors(one.graph), one)
    batch, parameters, seen = next(iter(goal.batches(size, generator(3)))), list(model.parameters()), []
    draw = generator(0, "train")
    mine = goal.gradients(model, batch, draw, parameters, sums_of(seen))
    other = generator(0, "train")
    logits, embeddings = model.outputs(batch.view, other)
    assert torch.equal(draw.get_state(), other.get_state())
    step = seen[0]
    assert step.labels.tolist() == one.labels[step.items].tolist()
    torch.testing.assert_close(step.logits, logits)
    torch.testing.assert_close(step.embeddings, embeddings)
    whole = F.cross_entropy(logits, batch.labels) + sums_of([])(step._replace(logits=logits, embeddings=embeddings))
    theirs = torch.autograd.grad(whole, parameters, allow_unused=True)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, torch.zeros_like(left) if right is None else right, atol=1e-4, rtol=1e-4)


def test_a_term_may_use_parameters_and_be_constant():
    one = silo()
    model = model_for(one)
    goal = objective(GraphTensors(one.graph), one)
    parameters = list(model.parameters())
    plain = goal.gradients(model, full_batch(goal), generator(0), parameters)
    changed = goal.gradients(
        model, full_batch(goal), generator(0), parameters, lambda step: sum(p.sum() for p in parameters)
    )
    same = goal.gradients(model, full_batch(goal), generator(0), parameters, lambda step: torch.zeros(()))
    for left, right, constant in zip(plain, changed, same, strict=True):
        torch.testing.assert_close(left + 1.0, right)
        assert torch.equal(left, constant)


@pytest.mark.parametrize("size", [0, 4])
def test_weights_of_items_by_hand(size):
    """The loss is the mean of weight times cross-entropy, each item with its own weight."""
    one = silo()
    model, weights = model_for(one), torch.linspace(0.0, 2.0, 15)
    goal = objective(GraphTensors(one.graph), one)
    batch, parameters = next(iter(goal.batches(size, generator(3)))), list(model.parameters())
    mine = goal.gradients(model, batch, None, parameters, node_weights=weights)
    of = torch.tensor([weights[one.train.tolist().index(item)] for item in batch.view.items.tolist()])
    each = F.cross_entropy(model(batch.view), batch.labels, reduction="none")
    theirs = torch.autograd.grad((of * each).mean(), parameters)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("a", "b"), [(2.0, 3.0), (2.0, None), (None, 3.0), (None, None)])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_a_term_may_give_its_gradient_itself(name, a, b):
    """And leave out that for logits or embeddings; otherwise as autograd finds it."""
    one = silo()
    model = model_for(one, name)
    goal = objective(GraphTensors(one.graph), one)
    batch, parameters = next(iter(goal.batches(4, generator(3)))), list(model.parameters())

    def slopes(step):
        logits, embeddings = step.logits.detach(), step.embeddings.detach()
        return Slopes(None if a is None else 2 * a * logits, None if b is None else 2 * b * embeddings)

    def value(step):
        return (a or 0.0) * step.logits.square().sum() + (b or 0.0) * step.embeddings.square().sum()

    mine, theirs = (goal.gradients(model, batch, generator(0), parameters, term) for term in (slopes, value))
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_all_items_are_shown_to_a_term_and_the_rest_of_the_loss_stays(name, size):
    one = silo()
    model, data = model_for(one, name), GraphTensors(one.graph)
    goal, plain = ClassifyItems(data, one, all_items=True), objective(data, one)
    (batch, other), parameters = (
        (next(iter(each.batches(size, generator(3)))) for each in (goal, plain)),
        list(model.parameters()),
    )
    weights, seen = torch.linspace(0.5, 2.0, len(one.train)), []

    def term(step):
        seen.append(step)
        return step.embeddings.square().sum()

    torch.testing.assert_close(goal.loss(model, batch, None), plain.loss(model, other, None))
    for node_weights in (None, weights):
        for mine, theirs in zip(
            goal.gradients(model, batch, None, parameters, node_weights=node_weights),
            plain.gradients(model, other, None, parameters, node_weights=node_weights),
            strict=True,
        ):
            torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)
    mine = goal.gradients(model, batch, None, parameters, term)
    whole = plain.loss(model, other, None) + model.embed(data.full).square().sum()
    theirs = torch.autograd.grad(whole, parameters, allow_unused=True)
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, torch.zeros_like(left) if right is None else right, atol=1e-5, rtol=1e-4)
    (step,) = seen
    labels = np.full(NODES, -1)
    labels[other.view.items] = one.labels[other.view.items]
    assert (step.items.tolist(), step.labels.tolist()) == (list(range(NODES)), labels.tolist())


def test_terms_need_labelled_items():
    one, _ = links()
    goal, model = objective(GraphTensors(one.graph), one), model_for(one)
    with pytest.raises(UnsupportedError, match="need the task 'node' or 'graph'"):
        goal.gradients(model, full_batch(goal), None, list(model.parameters()), lambda step: torch.zeros(()))


def test_mean_cross_entropy_by_hand():
    one = silo(train=[0, 1])
    model = model_for(one)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    goal = objective(GraphTensors(one.graph), one)
    assert float(goal.loss(model, full_batch(goal), None).detach()) == pytest.approx(math.log(CLASSES))


def test_unlabelled_training_items_are_left_out():
    one = silo(train=range(10))
    labels = one.graph.labels.copy()
    labels[:4] = -1
    one = replace(one, graph=replace(one.graph, labels=labels))
    assert objective(GraphTensors(one.graph), one).num_samples == 6


def test_noisy_labels_are_learned_from():
    one = silo()
    goal = objective(GraphTensors(one.graph), one)
    noisy = replace(one, noisy_labels=(one.graph.labels + 1) % CLASSES)
    other = objective(GraphTensors(one.graph), noisy)
    model = model_for(one)
    rows = torch.from_numpy(one.train)
    expected = F.cross_entropy(
        model(GraphTensors(one.graph).full)[rows], torch.from_numpy(noisy.noisy_labels[one.train])
    )
    torch.testing.assert_close(other.loss(model, full_batch(other), None), expected)
    assert float(goal.loss(model, full_batch(goal), None).detach()) != float(expected.detach())


class Seen:
    """A model that notes which items each batch asks for."""

    def __init__(self):
        self.items = []

    def __call__(self, view, draw):
        self.items.append(view.items)
        return torch.zeros(len(view.items), CLASSES)


@pytest.mark.parametrize(("size", "batches"), [(1, 15), (4, 4), (14, 2), (15, 1), (99, 1), (0, 1)])
def test_batches_cover_every_item_once(size, batches):
    one = silo()
    goal = objective(GraphTensors(one.graph), one)
    for epoch in range(3):
        seen = Seen()
        for batch in goal.batches(size, generator(epoch)):
            goal.loss(seen, batch, None)
        assert len(seen.items) == batches
        assert sorted(np.concatenate(seen.items).tolist()) == one.train.tolist()


def test_batches_are_shuffled_by_the_generator_alone():
    one = silo()
    goal = objective(GraphTensors(one.graph), one)

    def order(seed):
        seen = Seen()
        for batch in goal.batches(4, generator(seed)):
            goal.loss(seen, batch, None)
        return np.concatenate(seen.items).tolist()

    assert order(0) == order(0)
    assert order(0) != order(1)


def test_batches_carry_their_own_labels():
    one = silo()
    goal = objective(GraphTensors(one.graph), one)

    class Oracle:
        """Knows the true label of every item."""

        def __call__(self, view, draw):
            return 50.0 * F.one_hot(torch.from_numpy(one.labels[view.items]), CLASSES).float()

    for size in (0, 4):
        losses = [float(goal.loss(Oracle(), batch, None)) for batch in goal.batches(size, generator(0))]
        assert max(losses) < 1e-6


def test_graph_batches_equal_the_whole():
    graphs = collection()
    one = Silo(0, graphs, np.arange(6), (EvaluationSet("seen", graphs, {}),), Schema("graph", 12, 2))
    goal = objective(GraphTensors(graphs), one)
    model = model_for(one, "gin")
    whole = float(goal.loss(model, full_batch(goal), None).detach())
    parts = [float(goal.loss(model, batch, None).detach()) for batch in goal.batches(2, generator(0))]
    assert np.mean(parts) == pytest.approx(whole, abs=1e-5)


def links():
    one = silo("link")
    pairs = one.graph.edges[:, one.graph.edges[0] < one.graph.edges[1]]
    none = np.zeros((2, 0), dtype=np.int64)
    return replace(one, links=Links(pairs, none, none, none, none)), pairs
