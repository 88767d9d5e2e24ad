"""Links between like nodes, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.methods.fedgl import links


def test_links_by_hand():
    """Products 2, 0 and 1 of three nodes, a fourth opposite to all: W_01 = (1 + 2/3)/2, W_12 = (1/3 + 1)/2; degrees
    11/6, 5/2, 5/3. With one neighbour each W_01 = 1, W_12 = 1/2, and degrees 2, 5/2, 3/2."""
    rows = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [-1.0, -1.0]])
    for neighbours, near, far in (
        (3, (5 / 6) / np.sqrt(11 / 6 * 5 / 2), (2 / 3) / np.sqrt(5 / 2 * 5 / 3)),
        (1, 1 / np.sqrt(2 * 5 / 2), 0.5 / np.sqrt(5 / 2 * 3 / 2)),
    ):
        found = links.link_alike(rows, neighbours, 0.5)
        weights = {tuple(pair): value for pair, value in zip(found["ends"].t().tolist(), found["weights"], strict=True)}
        assert weights == pytest.approx(
            {(0, 1): near / 2, (1, 0): near / 2, (1, 2): far / 2, (2, 1): far / 2}, rel=1e-5
        )


def test_links_are_the_same_whatever_is_in_memory_at_once(monkeypatch):
    rows = torch.randn(23, 4, generator=torch.Generator().manual_seed(0))
    whole = links.link_alike(rows, 5, 1.0)
    monkeypatch.setattr(links, "_ENTRIES", 70)
    parts = links.link_alike(rows, 5, 1.0)
    assert torch.equal(whole["ends"], parts["ends"])
    torch.testing.assert_close(whole["weights"], parts["weights"])
    assert not len(links.link_alike(torch.zeros(3, 2), 5, 1.0)["weights"])
    assert not len(links.link_alike(torch.ones(1, 2), 5, 1.0)["weights"])


def test_links_add_up_with_a_graphs_own():
    """A link that a table names twice is one."""
    edges = np.array([[0, 1, 1], [1, 0, 0]])
    graph = Graph(np.zeros((3, 1), np.float32), edges, np.zeros(3, np.int64), 1)
    more = {"ends": torch.tensor([[0, 2], [1, 1]]), "weights": torch.tensor([0.25, 0.5])}
    assert links.add_links(graph, more).adjacency().toarray().tolist() == [[0, 1, 0], [1.25, 0, 0.5], [0, 0, 0]]
