"""FGPL's made nodes: how many, between which nodes, and linked to which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.methods.fgpl.synthesis import OversampledItems, draw_pairs, walk_from
from graphsilo.models.view import GraphTensors

SETTINGS = {"share": 0.75, "heat": 2.0, "restart": 0.15, "reach": 3, "warm_up": 0}


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_classes_are_filled_up_to_the_largest_and_later_to_the_mean():
    """Of 6, 1 and 1 nodes, and a class without any: 5 and 5 are lacking to the largest, none to a mean of 2; of 10, 1
    and 1 the mean is 3."""
    labels = torch.tensor([0] * 6 + [1, 2])
    anchors, partners = draw_pairs(labels, 4, None, draw())
    assert anchors.tolist() == [6] * 5 + [7] * 5
    assert set(partners.tolist()) <= set(range(6))  # log 1 / 1 is 0: a class of one gives no partner
    labels = torch.tensor([0] * 10 + [1, 2])
    anchors, _ = draw_pairs(labels, 4, torch.full((12, 4), 0.25), draw())
    assert anchors.tolist() == [10] * 2 + [11] * 2
    none = torch.zeros(0, dtype=torch.int64)
    assert [len(some) for some in draw_pairs(none, 4, None, draw())] == [0, 0]


def test_a_pair_is_who_the_model_is_unsure_of_and_whom_it_takes_it_for():
    """Class 1 has the nodes 6, of which it is sure, and 7, which it takes for class 2; of that class 9 is taken for
    class 1, and 8 is not."""
    labels = torch.tensor([0] * 6 + [1, 1, 2, 2])
    chances = torch.zeros(10, 3)
    chances[:6, 0] = 1.0
    chances[6], chances[7] = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    chances[8], chances[9] = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.6, 0.4])
    for seed in range(5):
        anchors, partners = draw_pairs(labels, 3, chances, draw(seed))
        assert anchors.tolist() == [7, 9]
        assert partners[0] == 9
        assert partners[1] == 7  # of class 1 the one that is taken for class 2


def test_who_is_taken_for_no_other_class_has_a_partner_of_its_own():
    labels = torch.tensor([0, 0, 0, 0, 1])
    chances = torch.nn.functional.one_hot(labels, 2).float()
    anchors, partners = draw_pairs(labels, 2, chances, draw())
    assert (anchors.tolist(), partners.tolist()) == ([4], [4])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_made_node_lies_between_two_and_hears_the_neighbours_of_one(kit, sparse):
    """¾ of node 1's features and ¼ of node 2's; links from as many nodes as a drawn node has, at most node 1's two."""
    silo = kit.tiny_silo(0)
    graph = replace(silo.graph, features=sp.csr_matrix(silo.graph.features)) if sparse else silo.graph
    goal = OversampledItems(GraphTensors(graph), replace(silo, graph=graph), **SETTINGS)
    made = goal.add(np.array([1, 0]), np.array([2, 2]), draw())
    features = made.features.toarray() if sparse else made.features
    x = silo.graph.features
    np.testing.assert_allclose(features[6], 0.75 * x[1] + 0.25 * x[2], rtol=1e-6)
    new = made.edges[:, graph.num_edges :]
    assert set(new[1].tolist()) == {6, 7}
    assert (new[0] < 6).all()
    assert np.bincount(new[1], minlength=8)[7] == 1  # node 0 has one link
    assert set(new[0][new[1] == 6].tolist()) <= {0, 1, 2}
    assert len(set(new[0][new[1] == 6].tolist())) == (new[1] == 6).sum()


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_made_nodes_change_nothing_that_is_said_of_real_ones(kit, model):
    silo = kit.tiny_silo(0)
    client = kit.build("fgpl", [silo], model=model)[1].client(0)
    data, items, labels = client.oversampled.sample(draw())
    assert torch.bincount(labels).tolist() == [2, 2]
    assert items.tolist() == [0, 1, 2, 6]
    torch.testing.assert_close(client.model(data.full)[:6], client.model(client.data.full))


def test_walks_are_those_of_the_whole_matrix():
    links = np.triu(np.random.default_rng(0).random((9, 9)) < 0.3, 1)
    both = (links | links.T).astype(float)
    tilde = both + np.eye(9)
    root = 1 / np.sqrt(tilde.sum(1))
    whole = 0.15 * np.linalg.inv(np.eye(9) - 0.85 * root[:, None] * tilde * root)
    nodes, weights = walk_from(sp.csr_matrix(links.astype(np.float32)), np.array([4, 0]), 0.15, 3)
    for row, start in enumerate((4, 0)):
        assert set(nodes[row].tolist()) == set(np.argsort(-whole[start])[:3].tolist())
        np.testing.assert_allclose(weights[row], whole[start][nodes[row]], atol=1e-4)


def test_outputs_are_remembered_by_node(kit):
    """Of a batch with the second and the third training node, and one that was made."""
    silo = kit.tiny_silo(0)
    goal = OversampledItems(GraphTensors(silo.graph), silo, **SETTINGS)
    goal.note(np.array([2, 8, 1]), torch.tensor([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]]))
    assert goal.outputs.tolist() == [[0.0, 0.0], [3.0, 4.0], [1.0, 2.0]]
    assert goal.steps == 1
