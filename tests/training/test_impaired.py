"""What FedSage+ hides from its generator."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.training import impaired as impaired_graph
from graphsilo.training.impaired import AllNodes, Targets
from kit.fedsage_plus import draw, graph_of

# -- the impaired graph ----------------------------------------------------------------------------------------------


def test_hiding_by_hand():
    # 0 - 1 - 2 - 3 with 2 hidden: 0, 1 and 3 stay, 1 and 3 lack node 2, only the edge 0 - 1 is left.
    graph = graph_of([(0, 1), (1, 2), (2, 3)], 4, labels=[0, 1, 0, 1])
    impaired = impaired_graph.impair(graph, np.array([2]), np.array([1, 3]), graph.labels)
    assert impaired.kept.tolist() == [0, 1, 3]
    assert impaired.counts.tolist() == [0, 1, 1]
    assert impaired.pointer.tolist() == [0, 0, 1, 2]
    assert impaired.missing.tolist() == [2, 2]
    assert impaired.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert impaired.train.tolist() == [1, 2]
    assert impaired.labels.tolist() == [1, 1]


def test_at_most_five_hidden_neighbours_are_compared():
    graph = graph_of([(0, leaf) for leaf in range(1, 9)], 9)
    impaired = impaired_graph.impair(graph, np.arange(2, 9), np.array([0, 1]), graph.labels)
    assert impaired.counts.tolist() == [7, 0]
    assert impaired.missing.tolist() == [2, 3, 4, 5, 6]


def targets_of(rows):
    """Targets from lists of feature rows."""
    pointer = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Targets(sp.csr_matrix(np.array([one for row in rows for one in row], dtype=np.float32)), pointer)


def test_feature_loss_by_hand():
    # (0.5, 0): to (1, 0) 0.25, to (0, 1) 1.25.  (0, 2): to (1, 0) 5, to (0, 1) 1.
    targets = targets_of([[(1, 0), (0, 1)]])
    made = [torch.tensor([[0.5, 0.0]]), torch.tensor([[0.0, 2.0]])]
    loss = impaired_graph.feature_loss(made, [np.array([0]), np.array([0])], targets)
    assert float(loss) == pytest.approx(1.25)


@pytest.mark.parametrize("chosen", [None, np.array([1, 2])], ids=["all rows", "two of four"])
@pytest.mark.parametrize("sparse", [True, False])
def test_gradient_of_the_feature_loss_by_hand(sparse, chosen):
    """2 (x̂ − x_u) for what is compared, nothing for the rest: (½, 0) is nearest to (1, 0), (0, 3) to (0, 1)."""
    rows = np.array([[1, 0], [0, 1]], dtype=np.float32)
    made = torch.tensor([[9.0, 9.0], [0.5, 0.0], [0.0, 3.0], [7.0, 7.0]])[
        slice(None) if chosen is not None else slice(1, 3)
    ]
    made.requires_grad_()
    nodes = AllNodes(sp.csr_matrix(rows) if sparse else rows)
    loss = impaired_graph.feature_loss([made], [np.arange(2)], nodes, None if chosen is None else [chosen])
    assert loss.item() == pytest.approx(0.25 + 4.0)
    (3.0 * loss).backward()
    wanted = torch.tensor([[0.0, 0.0], [-3.0, 0.0], [0.0, 12.0], [0.0, 0.0]])
    assert torch.equal(made.grad, wanted if chosen is not None else wanted[1:3])
    assert made.detach().max() == (9.0 if chosen is not None else 3.0)  # nothing was written to


def test_a_target_whose_entries_stand_twice_counts_their_sum():
    twice = sp.csr_matrix((np.array([0.25, 0.75], dtype=np.float32), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    made = torch.tensor([[0.0, 3.0]])
    assert torch.equal(made - impaired_graph.dense(twice), torch.tensor([[0.0, 2.0]]))


def test_perfect_features_cost_nothing():
    truth = np.array([[0.1, 0.9, 0.0], [0.4, 0.0, 0.2], [0.0, 0.0, 0.7]], dtype=np.float32)
    targets = targets_of([truth[:2], truth[2:]])
    # node 0 has both of its neighbours, in the other order; node 1 its only one
    made = [torch.from_numpy(truth[[1, 2]]), torch.from_numpy(truth[[0]])]
    assert float(impaired_graph.feature_loss(made, [np.array([0, 1]), np.array([0])], targets)) == 0.0


def test_random_neighbours_are_neighbours_of_one_node():
    adjacency = undirected_adjacency(graph_of([(0, 1), (1, 2), (4, 5)], 6))
    found = impaired_graph.random_neighbours(adjacency, 50, draw()).reshape(50, 5)
    sets = [frozenset(row) for row in found.tolist()]
    allowed = [{1}, {0, 2}, {5}, {4}]
    assert all(any(each <= group for group in allowed) for each in sets)
    assert {frozenset({1}), frozenset({0, 2}), frozenset({4})} <= set(sets)
    assert len(impaired_graph.random_neighbours(undirected_adjacency(graph_of([], 3)), 4, draw())) == 0
