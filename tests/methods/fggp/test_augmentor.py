"""FGGP's second view: which pairs there are, how links are drawn, and what the augmentor learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.methods.fggp.augmentor import (
    all_pairs,
    contains,
    draw_links,
    link,
    link_loss,
    random_pairs,
    scores_of,
    union_keys,
    union_pairs,
)
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator

ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0], [1.0, 0.1], [0.9, 0.2]])
"""Nodes 0, 3 and 4 look alike, and 1 and 2."""


def tensors(pointer=None):
    """Five nodes with the link 0 → 1; or graphs of two and three of them."""
    graph = Graph(ROWS.numpy(), np.array([[0], [1]]), np.full(5, -1, dtype=np.int64), 2)
    return GraphTensors(graph if pointer is None else GraphCollection(graph, np.array(pointer), np.array([0, 1]), 2))


def pairs_of(ends):
    return sorted(map(tuple, ends.t().tolist()))


def test_the_union_by_hand():
    """0 and 3, 3 and 4, 1 and 2 are each other's most similar; in graphs of two and three only 3 and 4, 2 and 3 are."""
    data = tensors()
    keys = union_keys(data, ROWS, 1)
    assert keys.tolist() == [1, 3, 7, 19]  # 0-1, 0-3, 1-2, 3-4
    assert link(data, keys).graph.num_edges == 8
    assert union_keys(data, ROWS, 0).tolist() == [1]
    divided = tensors([0, 2, 5])
    keys = union_keys(divided, ROWS, 1)
    assert keys.tolist() == [1, 14, 19]  # 0-1, 2-4, 3-4
    assert pairs_of(union_pairs(divided.view(np.array([1])), keys).ends) == [(0, 2), (1, 2)]
    whole = union_pairs(divided.full, keys)
    assert pairs_of(whole.ends) == [(0, 1), (2, 4), (3, 4)]
    assert whole.linked.tolist() == [1, 1, 1]


def test_all_pairs_by_hand():
    found = all_pairs(tensors().full, torch.tensor([1, 19]))
    assert pairs_of(found.ends) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    assert found.linked.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    divided, keys = tensors([0, 2, 5]), torch.tensor([1, 14])
    assert pairs_of(all_pairs(divided.full, keys).ends) == [(0, 1), (2, 3), (2, 4), (3, 4)]
    some = all_pairs(divided.view(np.array([1, 0])), keys)  # the second graph first
    assert some.ends.t().tolist() == [[0, 1], [0, 2], [1, 2], [3, 4]]
    assert some.linked.tolist() == [0, 1, 0, 1]


def test_random_pairs_are_of_one_graph_and_no_links():
    data, keys = tensors([0, 2, 5]), torch.tensor([1, 14])
    found = random_pairs(data.view(np.array([1, 0])), keys, 300, generator(0))
    assert {tuple(sorted(pair)) for pair in found.t().tolist()} == {(0, 1), (1, 2)}
    assert not contains(torch.zeros(0, dtype=torch.int64), torch.tensor([3])).any()


@pytest.mark.parametrize("count", [3, 40])
def test_scores_are_products_of_rows(count):
    hidden = torch.randn(count, 3, generator=generator(0), dtype=torch.float64).requires_grad_()
    ends = torch.tensor([[0, 0, 1], [1, 2, 2]])
    torch.testing.assert_close(scores_of(hidden, ends), torch.stack([hidden[i] @ hidden[j] for i, j in ends.t()]))


def test_links_are_drawn_by_their_probability():
    """π = ½ s / max s + ½ A: certain at the largest score of a link, never at 0 of none, one half at either."""
    scores, linked = torch.tensor([4.0, 0.0, 4.0, 0.0, 1.0]), torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])
    many = draw_links(scores.repeat(4000), linked.repeat(4000), torch.tensor(4.0), generator(0)).view(4000, 5)
    assert set(many.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(many.mean(0), torch.tensor([1.0, 0.0, 0.5, 0.5, 0.125]), atol=0.03, rtol=0)
    assert draw_links(torch.zeros(2), torch.tensor([0.0, 1.0]), torch.tensor(0.0), generator(0))[0] == 0.0
    free = torch.full((1000,), 2.0, requires_grad=True)
    draw_links(free, torch.zeros(1000), torch.tensor(4.0), generator(0)).sum().backward()
    assert bool((free.grad > 0).all())


def test_the_loss_of_links_is_the_papers_weighted_cross_entropy():
    """w · BCE with ρ for links: w = M / 2 (M − E), ρ = (M − E) / E of M pairs with E links."""
    scores, linked = torch.tensor([3.0, -1.0, 0.5, 2.0, -4.0]), torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])
    expected = 5 / 6 * F.binary_cross_entropy_with_logits(scores, linked, pos_weight=torch.tensor(1.5))
    torch.testing.assert_close(link_loss(scores, linked, torch.zeros(0)), expected)
    near = linked > 0
    torch.testing.assert_close(link_loss(scores[near], linked[near], scores[~near]), expected)
    assert float(link_loss(torch.zeros(0), torch.zeros(0), torch.zeros(0))) == 0.0
    free = torch.zeros(2, requires_grad=True)
    link_loss(free, torch.tensor([1.0, 0.0]), torch.zeros(0)).backward()
    assert free.grad.tolist() == [-0.25, 0.25]
