"""Predictions made before an evaluation asks for them: the same numbers, and never those of another model."""

from __future__ import annotations

import pytest
import torch

from graphsilo.federation import registry
from graphsilo.federation.client import EvaluateRequest
from graphsilo.methods.fedavg import Client, TrainRequest
from graphsilo.testing import conformance


@pytest.fixture
def trained():
    """FedAvg's server and clients after one round and its evaluation; counts what clients predict."""
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {"rounds": 3})
    federation.at("round", 1)
    server.round(federation, 1)
    client = federation.client(0)
    predicted = []
    predict = client.predict

    def counting(data, view="own"):
        predicted.append(view)
        return predict(data, view)

    client.predict = counting
    request = EvaluateRequest(views=["own", "aggregate"], aggregate=server.aggregate())
    return server, federation, client, request, predicted


def counts(federation, request):
    return federation.ask(Client.evaluate, request).require()[0].counts


def test_what_was_foreseen_is_taken_once(trained):
    _, federation, client, request, predicted = trained
    assert client.foresee() == 0
    assert predicted == []  # nothing was asked for so far
    expected = counts(federation, request)
    assert sorted(set(predicted)) == ["aggregate", "own"]
    sets = predicted.count("own")
    predicted.clear()
    held = client.foresee()
    assert held == sum(4 * 3 * each.graph.num_nodes for each in client.silo.evaluations)  # float32, three classes
    assert client.foresee() == held
    assert predicted == ["own"] * sets
    predicted.clear()
    assert torch.equal(counts(federation, request), expected)
    assert predicted == ["aggregate"] * sets
    predicted.clear()
    assert torch.equal(counts(federation, request), expected)
    assert predicted.count("own") == sets


def test_other_handlers_and_the_next_round_void_it(trained):
    server, federation, client, request, predicted = trained
    counts(federation, request)
    client.foresee()
    federation.sum(Client.train, TrainRequest(weights=server.weights))
    predicted.clear()
    after = counts(federation, request)
    assert "own" in predicted
    assert torch.equal(counts(federation, request), after)
    client.foresee()
    federation.at("evaluation", 2)
    predicted.clear()
    counts(federation, request)
    assert "own" in predicted


def test_a_loaded_state_voids_it(trained):
    _, federation, client, request, predicted = trained
    counts(federation, request)
    states = federation.client_states()
    client.foresee()
    federation.load_client_states(states)
    predicted.clear()
    counts(federation, request)
    assert "own" in predicted


def test_what_fails_is_told_where_it_is_asked_for(trained):
    _, federation, client, request, _ = trained
    counts(federation, request)

    def fail(data, view="own"):
        raise ValueError("no memory for that")

    client.predict = fail
    client.foresee()
    replies = federation.ask(Client.evaluate, request)
    assert replies.failures[0].reason == "no memory for that"


def test_generators_draw_as_if_nothing_had_been_foreseen(trained):
    _, federation, client, request, _ = trained
    drawn = []
    predict = client.predict

    def noisy(data, view="own"):
        drawn.append(int(torch.randint(2**31, (), generator=client.generator("noise"))))
        return predict(data, view)

    client.predict = noisy
    federation.at("evaluation", 2)
    counts(federation, request)
    counts(federation, request)
    first, drawn[:] = list(drawn), []
    federation.at("evaluation", 2)
    client.round = 0  # begins the round again
    counts(federation, request)
    before = len(drawn)
    client.foresee()
    counts(federation, request)
    assert sorted(drawn[before:]) == sorted(first[before:])
