"""The loss of link prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.silos.silo import Links
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.links import link_scores
from graphsilo.training.objective import objective
from kit.training import NODES, full_batch, graph, model_for, silo


def links():
    one = silo("link")
    pairs = one.graph.edges[:, one.graph.edges[0] < one.graph.edges[1]]
    none = np.zeros((2, 0), dtype=np.int64)
    return replace(one, links=Links(pairs, none, none, none, none)), pairs


def test_link_scores_by_hand():
    embeddings = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, -1.0]])
    assert link_scores(embeddings, np.array([[0, 1], [1, 2]])).tolist() == [11.0, -2.5]


def test_link_objective():
    one, pairs = links()
    goal = objective(GraphTensors(one.graph), one)
    assert goal.num_samples == pairs.shape[1]
    drawn, target = full_batch(goal)
    assert torch.equal(drawn[:, : pairs.shape[1]], torch.from_numpy(pairs))
    assert target.tolist() == [1.0] * pairs.shape[1] + [0.0] * pairs.shape[1]
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < NODES
    model = model_for(one)
    embeddings = model(goal.data.full)
    score = (embeddings[drawn[0]] * embeddings[drawn[1]]).sum(1)
    expected = -(target * F.logsigmoid(score) + (1 - target) * F.logsigmoid(-score)).mean()
    torch.testing.assert_close(goal.loss(model, (drawn, target), None), expected)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_link_batches_cover_every_pair_once(size):
    one, pairs = links()
    goal = objective(GraphTensors(one.graph), one)
    found = []
    for drawn, target in goal.batches(size, generator(0)):
        assert int(target.sum()) * 2 == len(target)
        found += drawn[:, target == 1].t().tolist()
    assert sorted(map(tuple, found)) == sorted(map(tuple, pairs.T.tolist()))


def test_negatives_change_with_the_generator():
    one, pairs = links()
    goal = objective(GraphTensors(one.graph), one)

    def negatives(seed):
        return next(iter(goal.batches(0, generator(seed))))[0][:, pairs.shape[1] :]

    assert torch.equal(negatives(0), negatives(0))
    assert not torch.equal(negatives(0), negatives(1))


def test_link_prediction_needs_links():
    with pytest.raises(ValueError, match="needs a silo with links"):
        objective(GraphTensors(graph()), silo("link"))
