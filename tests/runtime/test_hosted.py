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


class Counter(OneNumber):
    """Adds up in place what it is asked with, in an attribute that lasts, and in one beside it that stays."""

    kept = ("sums",)

    def __init__(self, context):
        super().__init__(context)
        self.sums, self.seen = {"x": torch.zeros(1), "steps": [0]}, 0

    def state(self):
        return {**super().state(), "sums": self.sums}

    def load_state(self, state):
        super().load_state(state)
        self.sums = state["sums"]

    def add(self, amount):
        self.sums["x"] += amount
        self.sums["steps"].append(amount)
        self.seen += 1
        return self.sums["x"].item()


def hosted(kind=OneNumber, **settings):
    graph = Graph(np.eye(2, dtype=np.float32), np.array([[0, 1], [1, 0]]), np.array([0, 1]), 2)
    silo = Silo(0, graph, np.array([0]), (EvaluationSet("seen", graph, {}),), Schema("node", 2, 2))
    return HostedClient(kind(ClientContext(0, silo, MethodConfig(**settings), ModelSpec("gcn", {}), 0)))


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


def test_what_was_not_counted_is_taken_back():
    """1, 2, 4 and 8 are added; 2 and 4 are not counted, and 8 goes on from 1. What nobody named stays."""
    held = hosted(Counter, min_clients=1)
    found = []
    for amount, turn in ((1, (1, None)), (2, (2, None)), (4, (3, 2)), (8, (4, 2))):
        held.take_turn("train", turn)
        found.append(held.client.add(amount))
        held.left_out["train/weights"] = held.left_out.get("train/weights", 0) + torch.tensor(amount)
    assert found == [1.0, 3.0, 5.0, 9.0]
    held.take_turn("evaluate", (5, None))
    assert (held.client.sums["steps"], held.client.seen) == ([0, 1, 8], 4)
    assert held.left_out["train/weights"].item() == 9


def test_an_evaluation_that_was_lost_takes_nothing_back():
    held = hosted(Counter, min_clients=1)
    for name, turn in (("train", (1, None)), ("evaluate", (2, None)), ("evaluate_sums", (3, 2))):
        held.take_turn(name, turn)
        if name == "train":
            held.client.add(1)
    assert held.client.sums["x"].item() == 1.0


def test_a_client_that_is_made_again_can_take_back():
    """As who makes room for others: what takes back a step is in the file, which one it is stays here. Who goes on from
    a checkpoint has nothing to take back."""
    held, again, resumed = (hosted(Counter, min_clients=1) for _ in range(3))
    held.take_turn("train", (7, None))
    held.client.add(1)
    state = decode_tree(encode_tree(held.state()))
    for other in (again, resumed):
        other.load_state(state)
        assert other.client.sums["x"].item() == 1.0
    again.turn = held.turn
    again.take_turn("train", (8, 7))
    resumed.take_turn("train", (1, 1))
    assert (again.client.sums["x"].item(), resumed.client.sums["x"].item()) == (0.0, 1.0)
    held.settle()
    assert "before" not in held.state()


def test_who_goes_back_tells_so_in_secure_sums():
    """Whoever opens a sum with it was asked otherwise."""
    held, other = hosted(Counter, min_clients=1), hosted(Counter, min_clients=1)
    for each, since in ((held, None), (other, 1)):
        each.settled = b"words"
        each.take_turn("train", (1, None))
        each.begin("train", 1, np.zeros(1, dtype=np.uint8))
        each.take_turn("train", (2, since))
        each.begin("train", 2, np.zeros(1, dtype=np.uint8))
    assert held.asked != other.asked
