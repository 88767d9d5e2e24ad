"""What the runtime does to a client, whatever its method: it numbers calls, remembers models, and hands them over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime.hosted import HostedClient
from kit.clients import OneNumber


def hosted():
    graph = Graph(np.eye(2, dtype=np.float32), np.array([[0, 1], [1, 0]]), np.array([0, 1]), 2)
    silo = Silo(0, graph, np.array([0]), (EvaluationSet("seen", graph, {}),), Schema("node", 2, 2))
    return HostedClient(OneNumber(ClientContext(0, silo, MethodConfig(), ModelSpec("gcn", {}), 0)))


def test_models_scale_and_embeddings_at_the_end():
    held = hosted()
    client = held.client
    result = held.finish(embeddings=True, study=False)
    assert sorted(result) == ["best", "embeddings", "last"]
    assert (result["best"], result["embeddings"].tolist()) == (None, [[2.0], [2.0]])
    held.remember()
    client.model = 5.0
    client.silo = replace(client.silo, scale=FeatureScale(np.zeros(2), np.full(2, 3.0)), fills={"age": 4.0})
    result = held.finish(embeddings=True, study=True)
    assert result["best"]["own"]["x"].tolist() == [1.0]
    assert result["embeddings"].tolist() == [[2.0], [2.0]]  # of the best model
    assert result["last"]["own"]["x"].tolist() == [5.0]
    assert (client.model, result["study"]) == (5.0, {"model": 5.0})  # which is put back
    assert (result["scale"]["factor"].tolist(), float(result["fills"]["age"])) == ([3.0, 3.0], 4.0)
    client.embed = lambda data: None
    assert sorted(held.finish(embeddings=True, study=False)) == ["best", "fills", "last", "scale"]
    assert sorted(held.finish(embeddings=False, study=False)) == ["best", "fills", "last", "scale"]


def drawn(client, *names):
    return int(torch.randint(2**31, (), generator=client.generator(*names)))


def test_a_step_that_is_asked_again_in_a_round_draws_anew():
    held = hosted()
    client = held.client
    held.begin("train", 1)
    first = drawn(client, "batches")
    assert drawn(client, "batches") == first
    assert drawn(client, "dropout") != first
    held.begin("other", 1)
    assert drawn(client, "batches") == first  # of another step it is the first call
    held.begin("train", 1)
    again = drawn(client, "batches")
    held.begin("train", 1)
    assert len({first, again, drawn(client, "batches")}) == 3
    held.begin("train", 2)
    second = drawn(client, "batches")
    held.begin("train", 1)
    assert drawn(client, "batches") == first != second


def test_a_client_that_is_made_again_goes_on_where_it_was():
    held, again = hosted(), hosted()
    held.begin("train", 1)
    held.begin("train", 1)
    held.remember()
    held.client.model = 7.0
    again.load_state(decode_tree(encode_tree(held.state())))
    again.numbering = held.numbering
    assert (again.client.model, again.best["own"]["x"].tolist()) == (7.0, [1.0])
    held.begin("train", 1)
    again.begin("train", 1)
    assert (again.client.round, again.client.repeat) == (held.client.round, held.client.repeat) == (1, 2)
    assert drawn(again.client, "batches") == drawn(held.client, "batches")
