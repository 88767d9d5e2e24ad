"""All clients in one process: the promises of the interface."""

from __future__ import annotations

import re

import pytest
import torch

from graphsilo.errors import FederationError, MessageError
from graphsilo.experiments.runner import run
from graphsilo.methods.fedavg import TrainRequest
from graphsilo.runtime import exchange
from graphsilo.runtime.dispatch import handler_of
from graphsilo.testing import conformance


@pytest.fixture
def encodings(monkeypatch):
    """Messages that the coordinator encoded."""
    seen = []
    original = exchange.encode
    monkeypatch.setattr(exchange, "encode", lambda message: (seen.append(message), original(message))[1])
    return seen


def test_a_broadcast_is_encoded_once(federation_of, troubled, encodings):
    _, federation = federation_of()
    request = troubled.Echo(client=0, round=0, process=0)
    federation.ask(troubled.Client.echo, request)
    assert encodings == [request]
    federation.ask(troubled.Client.echo, dict.fromkeys(federation.clients, request))
    assert len(encodings) == 2
    federation.ask(
        troubled.Client.echo, {client: troubled.Echo(client=0, round=0, process=0) for client in federation.clients}
    )
    assert len(encodings) == 6
    # Counted for everyone all the same.
    sizes = {row[2]: row[8] for row in federation.ledger.rows() if row[3] == "down" and row[6] == "(header)"}
    assert len(sizes) == 4
    assert len(set(sizes.values())) == 1


def test_replies_come_in_order(federation_of, troubled):
    _, federation = federation_of()
    requests = {client: troubled.Echo(client=0, round=0, process=0, value=10.0 * client) for client in (3, 1, 0)}
    replies = federation.ask(troubled.Client.echo, requests)
    assert replies.clients == (0, 1, 3)
    assert [reply.value for _, reply in replies] == [1.0, 11.0, 31.0]
    assert [reply.round for _, reply in replies] == [1, 1, 1]
    assert federation.participants == {0, 1, 3}
    assert federation.ask(troubled.Client.echo, requests[0], to=[2, 0, 2]).clients == (0, 2)
    assert federation.ask(troubled.Client.echo, requests[0], to=[]).clients == ()


def test_addressees_must_take_part(federation_of, troubled):
    _, federation = federation_of()
    request = troubled.Echo(client=0, round=0, process=0)
    with pytest.raises(FederationError, match="client 9 takes no part; there are 4 clients"):
        federation.ask(troubled.Client.echo, request, to=[0, 9])
    with pytest.raises(FederationError, match="there is no request for client 2"):
        federation.ask(troubled.Client.echo, {0: request}, to=[0, 2])


def test_an_unknown_handler(troubled):
    with pytest.raises(MessageError, match=r"no handler 'trian'; did you mean 'train'\?"):
        handler_of(troubled.Client, "trian")
    with pytest.raises(MessageError, match="no handler 'predict'"):
        handler_of(troubled.Client, "predict")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (
            "raise",
            r"client 2 failed in 'train' \(ValueError: .* is gone; in your own code, .*troubled\.py, line 47\)",
        ),
        ("write", r"client 2 failed in 'train' \(MessageError: .*wrote into the received field 'weights'"),
        ("nan", r"client 2 failed in 'train' \(MessageError: TrainReply\.weights contains NaN or infinity"),
        ("type", r"client 2 failed in 'train' \(MessageError: .*must return TrainReply; Echo came"),
        ("shape", r"client 2 failed in 'train' \(MessageError: TrainReply\.weights has the shape layers\.0\.weight"),
    ],
)
def test_failures_are_listed_with_the_client(federation_of, troubled, how, text):
    server, federation = federation_of(who=[2], when=1, how=how)
    request = TrainRequest(weights=server.weights)
    total = federation.sum(troubled.Client.train, request)
    assert re.search(text, str(total.failures[2]))
    with pytest.raises(FederationError, match="4 clients had to answer"):
        total.require()
    if how != "write":  # the others share the bytes that were written to, and may be refused as well
        assert total.clients == (0, 1, 3)
        assert total.require(3).num_samples == sum(len(federation.client(k).silo.train) for k in (0, 1, 3))


def test_a_failure_carries_its_traceback(federation_of, troubled):
    server, federation = federation_of(who=[2], when=1)
    replies = federation.ask(troubled.Client.train, TrainRequest(weights=server.weights))
    assert "troubled.py" in replies.failures[2].trace
    with pytest.raises(FederationError) as caught:
        replies.require()
    assert "Traceback" in caught.value.__notes__[0]
    assert "Traceback" not in str(caught.value)


def test_what_was_sent_to_a_failing_client_is_noted(federation_of, troubled):
    server, federation = federation_of(who=[2], when=1)
    federation.ask(troubled.Client.train, TrainRequest(weights=server.weights))
    rows = federation.ledger.rows()
    assert {row[2] for row in rows if row[3] == "down"} == {0, 1, 2, 3}
    assert {row[2] for row in rows if row[3] == "up"} == {0, 1, 3}


def test_a_failure_stops_the_run(config_of):
    with pytest.raises(FederationError, match=r"4 clients had to answer, 3 did\. First failure: client 1 failed"):
        run(config_of(who=[1]))


def test_min_clients_lets_it_go_on(config_of):
    tree = run(config_of(who=[1], min_clients=3)).tree["seeds"][0]
    assert [len(row.get("failures", [])) for row in tree["rounds"]] == [0, 1, 0]
    assert "client 1 failed in 'train'" in tree["rounds"][1]["failures"][0]
    assert [row["participants"] for row in tree["rounds"]] == [4, 3, 4]
    with pytest.raises(FederationError, match="3 clients had to answer, 2 did"):
        run(config_of(who=[1, 2], min_clients=3))


def test_a_client_that_cannot_evaluate_is_left_out(config_of):
    tree = run(config_of(who=[1], when=3, how="evaluate", min_clients=3, lr=1e-9)).tree["seeds"][0]
    assert [row["participants"] for row in tree["rounds"]] == [4, 4, 4]
    whole = run(config_of(lr=1e-9)).tree["seeds"][0]
    assert [client["client"] for client in tree["clients"]] == [0, 1, 2, 3]
    # Nothing is learned at that rate: round 1 is the best one, where everybody answered.
    assert tree["best_round"] == whole["best_round"] == 1
    assert tree["clients"] == whole["clients"]
    first, last = tree["test"], tree["test_last"]
    assert last["items"] < first["items"]


def test_the_best_round_without_a_client(config_of):
    """Client 1 fails to evaluate in the only evaluation there is."""
    config = config_of(who=[1], when=3, how="evaluate", min_clients=3)
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"every": 3})})
    tree = run(config).tree["seeds"][0]
    assert [bool(client["test"]) for client in tree["clients"]] == [True, False, True, True]
    assert [client["client"] for client in tree["clients"]] == [0, 1, 2, 3]
    assert tree["test"]["worst_client"]["client"] in (0, 2, 3)


def test_sums_are_made_in_the_order_of_clients(federation_of, troubled):
    """The same sum as adding by hand, client after client."""
    server, federation = federation_of()
    twin_server, twin = federation_of()
    assert all(torch.equal(server.weights[name], twin_server.weights[name]) for name in server.weights)
    total = federation.sum(troubled.Client.train, TrainRequest(weights=server.weights)).require()
    replies = twin.ask(troubled.Client.train, TrainRequest(weights=server.weights)).require()
    for name in server.weights:
        expected = torch.zeros_like(server.weights[name], dtype=torch.float64)
        for _, reply in replies:
            expected += reply.weights[name].double() * reply.num_samples
        assert torch.equal(total.weights[name], expected)


def test_conformance_of_the_method_without_trouble(troubled):
    conformance.check_determinism(troubled.METHOD, {})
