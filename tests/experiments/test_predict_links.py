"""Pairs are ranked by the model that was scored, and none is a link."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo.errors import ConfigError
from graphsilo.evaluate.scores import roc_auc
from graphsilo.experiments.predict import open_member
from graphsilo.experiments.predict_links import predict_links

QUICK = {"method": "local", "rounds": 3, "report": False}


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    graph = graphsilo.load("citation-sbm", nodes=60, classes=3, features=8)
    folder = tmp_path_factory.mktemp("links") / "run"
    run = graphsilo.run(data=graph, partition=np.arange(60) % 2, task="link", out=folder, **QUICK)
    return graph, folder, run.record.seeds[0].clients[1].test.numbers["auc"]


def test_they_are_the_products_of_what_was_scored_without_the_links(linked):
    graph, folder, auc = linked
    found = predict_links(folder, client=1, model="own", top=60)
    links = {(one, other) for one, other in graph.edges.T.tolist()}
    own = range(1, 60, 2)
    free = [(one, other) for one in own for other in own if one != other and (one, other) not in links]
    assert sorted(zip(found.nodes.astype(int), found.others.astype(int), strict=True)) == free
    asked = open_member(folder, client=1, model="own", links=True)
    with torch.no_grad():
        vectors = asked.client.predict(asked.client.tensors(asked.silo.graph), "own").numpy()
    chances = 1 / (1 + np.exp(-vectors @ vectors.T))
    wanted = [chances[int(one) // 2, int(other) // 2] for one, other in zip(found.nodes, found.others, strict=True)]
    assert found.scores == pytest.approx(wanted, rel=1e-4)
    held, others = asked.silo.links.test, asked.silo.links.test_negative
    pairs = np.concatenate([held, others], axis=1)
    truth = np.repeat([1, 0], [held.shape[1], others.shape[1]])
    assert roc_auc(truth, chances[pairs[0], pairs[1]]).value == pytest.approx(auc)


def test_of_each_node_asked_for_the_likeliest_come_first(linked):
    found = predict_links(linked[1], client=1, nodes=["9", "3"], top=4)
    assert found.nodes.tolist() == ["9"] * 4 + ["3"] * 4
    assert (np.diff(found.scores[:4]) <= 0).all()
    with pytest.raises(ConfigError, match="client 1's own graph has no node 4; it holds 30 nodes such as 1"):
        predict_links(linked[1], client=1, nodes=["3", "4"])


def test_other_doors_point_to_the_command(linked):
    with pytest.raises(ConfigError, match="scores pairs of nodes, not nodes: `graphsilo predict` ranks pairs"):
        graphsilo.why(linked[1], 3)
