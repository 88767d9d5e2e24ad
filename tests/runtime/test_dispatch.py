"""Policies in the silo's process: what is refused fails, the others go on, and nothing changes where all may pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from graphsilo.errors import DataError, DisclosureError, FederationError
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientBase
from graphsilo.federation.interface import Failure
from graphsilo.federation.kinds import KINDS
from graphsilo.federation.message import Message
from graphsilo.federation.policy import DisclosurePolicy, Gate, is_filled
from graphsilo.federation.wire import Encoded
from graphsilo.methods import fedavg
from graphsilo.methods.fedavg import TrainRequest
from graphsilo.runtime import dispatch
from graphsilo.runtime.hosted import HostedClient, Turn
from graphsilo.runtime.local import clients
from graphsilo.testing import conformance
from kit.broad import broadly


class Guard:
    """Puts gates before the clients of in-process federations, and keeps what their steps wanted to send."""

    def __init__(self, policies: Mapping[int, DisclosurePolicy]):
        self.policies = policies
        self.gates: dict[int, tuple[ClientBase, Gate]] = {}
        self.answers: list[tuple[str, Message]] = []
        self.failures: list[Failure] = []

    def call(
        self, held: HostedClient, name: str, round_number: int, inbox: dispatch.Inbox, _: None, turn: Turn
    ) -> Encoded | Failure:
        client = held.client
        if id(client) not in self.gates:
            policy = self.policies.get(client.id, DisclosurePolicy())
            gate = Gate(policy, client.silo.class_counts().tolist())
            check = gate.check
            gate.check = lambda step, reply: (self.answers.append((step, reply)), check(step, reply))[1]  # type: ignore
            self.gates[id(client)] = client, gate
        reply = dispatch.call(held, name, round_number, inbox, self.gates[id(client)][1], turn)
        if isinstance(reply, Failure):
            self.failures.append(reply)
        return reply


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Guard]:
    """Gates from now on: ``guarded({1: {"kinds": ["counts"]}})`` gives client 1 that policy, the others the default."""

    def install(policies: Mapping[int, Mapping[str, object]] | None = None) -> Guard:
        found = {client: DisclosurePolicy.of(values) for client, values in (policies or {}).items()}
        guard = Guard(found)
        monkeypatch.setattr(clients, "call", guard.call)
        return guard

    return install


def small(name: str, **settings: object):
    method = registry.load(name)
    return conformance.small_config(method, {**method.quick, **settings}, clients=3)


# -- nothing is refused ----------------------------------------------------------------------------------------------


def test_a_method_that_sends_links_is_refused_by_the_default_policy(guarded):
    guarded()
    with pytest.raises(FederationError, match=r"facts about edges \(kind 'topology'\)"):
        run(small("fedgcn"))


LOOSER = {
    name: {"kinds": [kind for kind in KINDS if kind != "logits"], "recoverable": True}
    for name in ("fedgcn", "fedgl", "fedstruct")
}
"""What a method needs its silos' owners to allow beyond the default."""


@pytest.mark.parametrize("name", broadly(registry.names()))
def test_every_method_runs_under_the_default_policy(name, guarded):
    """The same numbers as without gates; and nothing that it sent passes a policy that leaves one of its kinds out."""
    config = small(name)
    free = conformance.numbers(run(config).tree)
    guard = guarded(dict.fromkeys(range(3), LOOSER.get(name, {})))
    assert conformance.numbers(run(config).tree) == free
    assert not guard.failures
    assert guard.answers
    for kind in KINDS:
        policy = DisclosurePolicy(kinds=tuple(other for other in KINDS if other != kind), recoverable=True)
        for step, reply in guard.answers:
            has = any(spec.kind == kind and is_filled(getattr(reply, spec.name)) for spec in reply.specs())
            outcome = refused(policy, step, reply)
            assert outcome == (has and kind != "control"), f"{type(reply).__name__}, {kind}"


def refused(policy: DisclosurePolicy, step: str, reply: Message) -> bool:
    try:
        Gate(policy, [9, 9, 9]).check(step, reply)
    except DisclosureError:
        return True
    return False


# -- one of three refuses --------------------------------------------------------------------------------------------


def test_a_refusal_stops_the_run(guarded):
    guard = guarded({1: {"kinds": ["counts", "score"]}})
    with pytest.raises(FederationError) as caught:
        run(small("fedavg"))
    assert re.search(
        r"3 clients had to answer, 2 did\. First failure: client 1 failed in 'train' \(DisclosureError: "
        r"TrainReply\.weights, which 'train' sends, discloses model weights \(kind 'model'\)",
        str(caught.value),
    )
    assert [(failure.client, failure.handler, failure.kind) for failure in guard.failures] == [
        (1, "train", "DisclosureError")
    ]


def test_the_others_go_on(guarded, monkeypatch):
    """With ``min_clients=2`` the two others train as if there were nobody else."""
    guarded({1: {"kinds": ["counts", "score"]}})
    tree = run(small("fedavg", min_clients=2)).tree["seeds"][0]
    assert [len(row["failures"]) for row in tree["rounds"]] == [1, 1, 1]
    assert "client 1 failed in 'train' (DisclosureError: TrainReply.weights" in tree["rounds"][0]["failures"][0]

    def weights(policies: Mapping[int, Mapping[str, object]], to: tuple[int, ...]) -> dict[str, torch.Tensor]:
        guarded(policies)
        server, federation, _ = conformance.assemble(registry.load("fedavg"), {"min_clients": 2})
        monkeypatch.setattr(server, "select", lambda *_: to)
        for number in (1, 2):
            federation.at("round", number)
            server.round(federation, number)
        assert not [row for row in federation.ledger.rows() if row[3] == "up" and row[2] == 1]
        return server.weights

    mine = weights({1: {"kinds": ["counts"]}}, (0, 1, 2))
    theirs = weights({}, (0, 2))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_too_large_a_message(guarded):
    """GCN 40-8-3: 320 + 8 + 24 + 3 weights of 4 bytes, four names of 18 or 16 letters, a number of 8 bytes."""
    guard = guarded()
    config = small("fedavg")
    run(config)
    step, reply = guard.answers[0]
    names = sum(len(name) for name in reply.weights)
    size = 4 * (40 * 8 + 8 + 8 * 3 + 3) + names + 8
    assert Gate(DisclosurePolicy(), [9]).check(step, reply) == size
    guarded({1: {"max_message_bytes": size}})
    run(config)
    guarded({1: {"max_message_bytes": size - 1}})
    with pytest.raises(FederationError, match=rf"TrainReply, which 'train' sends, has more bytes .*: {size - 1} \("):
        run(config)


def test_the_bytes_of_a_run(guarded):
    guard = guarded()
    run(small("fedavg"))
    client, gate = next(iter(guard.gates.values()))
    guarded({client.id: {"max_run_bytes": gate.sent_bytes}})
    run(small("fedavg"))
    guarded({client.id: {"max_run_bytes": gate.sent_bytes - 1}})
    with pytest.raises(FederationError, match=r"failed in 'evaluate' \(DisclosureError: .* this run would take more"):
        run(small("fedavg"))


def test_a_round_too_many(guarded):
    guarded({1: {"max_rounds": 2}})
    tree = run(small("fedavg", min_clients=2)).tree["seeds"][0]
    assert [len(row.get("failures", [])) for row in tree["rounds"]] == [0, 0, 2]
    assert all("this is round 3" in line for line in tree["rounds"][2]["failures"])  # training and evaluation


# -- small classes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def least(monkeypatch: pytest.MonkeyPatch) -> int:
    """The fewest training items that a class has at client 0, now that every node is one."""

    def prepared(*arguments: Any) -> Any:
        simulation = prepare(*arguments)
        silos = [replace(silo, train=np.arange(silo.num_items)) for silo in simulation.silos]
        return replace(simulation, silos=silos)

    monkeypatch.setattr(conformance, "prepare", prepared)
    _, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    counts = federation.client(0).silo.class_counts()
    assert sorted(counts)[1] > min(counts) > 2  # one class is the smallest
    return int(counts.min())


@pytest.mark.parametrize(
    ("name", "step", "settings"),
    [
        ("fedlog", "fit_generator", {}),
        ("fedlog", "train", {"neighbour_generator": False}),
        ("fedpg", "train", {}),
        ("opfgl", "statistics", {"expand": False}),
    ],
)
def test_a_small_class_is_not_described(guarded, least, name, step, settings):
    """A class with exactly the minimum may be; with one item less, the message that describes it is refused."""
    method = registry.load(name)
    for minimum in (least, least + 1):
        guard = guarded({0: {"min_class_count": minimum}})
        server, federation, _ = conformance.assemble(method, {**method.quick, **settings, "min_clients": 1})
        server.set_up(federation)
        federation.at("round", 1)
        server.round(federation, 1)
        found = [(failure.client, failure.handler, failure.kind) for failure in guard.failures]
        # Whoever is refused in set-up may be asked again, and is refused again.
        assert found[:1] == ([] if minimum == least else [(0, step, "DisclosureError")])
        assert {client for client, *_ in found} <= {0}
        if found:
            text = guard.failures[0].reason
            assert f"than its policy.min_class_count of {minimum}" in text
            assert "Classes with too few training items here" not in text
            assert "Classes with too few training items here" in guard.failures[0].trace  # stays in the silo


def test_a_setting_of_the_method_leaves_the_class_out(guarded, least):
    """O-pFGL with ``min_count`` at the policy's minimum says nothing of the class, and passes."""
    guard = guarded({0: {"min_class_count": least + 1}})
    settings = {**registry.load("opfgl").quick, "expand": False, "min_count": least + 1}
    server, federation, _ = conformance.assemble(registry.load("opfgl"), settings)
    server.set_up(federation)
    assert not guard.failures
    statistics = guard.answers[0][1]
    small_class = int(federation.client(0).silo.class_counts().argmin())
    for name in ("counts", "labelled", "contributors", "totals", "within", "squares"):
        rows = getattr(statistics, name)
        assert not rows[small_class].any()
        assert rows.any()


# -- what stays ------------------------------------------------------------------------------------------------------


def test_the_state_is_that_of_a_failed_call(guarded):
    """The step has run; what it changed stays, as with a call whose answer was lost on the way."""
    states = []
    for policies in ({}, {1: {"kinds": ["counts"]}}):
        guarded(policies)
        server, federation, _ = conformance.assemble(registry.load("fedavg"), {})
        federation.at("round", 1)
        total = federation.sum(fedavg.Client.train, TrainRequest(weights=server.weights))
        assert list(total.failures) == list(policies)
        states.append(federation.cache.get(1).state()["state"])
    assert states[0]["model"].keys() == states[1]["model"].keys()
    assert all(torch.equal(states[0]["model"][name], value) for name, value in states[1]["model"].items())


def test_a_call_that_is_refused_for_its_round_does_not_run(guarded):
    guarded({1: {"max_rounds": 1}})
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    before = {name: value.clone() for name, value in federation.client(1).weights.items()}
    federation.at("round", 2)
    federation.sum(fedavg.Client.train, TrainRequest(weights=server.weights))
    assert all(torch.equal(before[name], value) for name, value in federation.client(1).weights.items())


@pytest.mark.parametrize("told", [False, True])
def test_texts_of_errors_stay(guarded, federation_of, troubled, told):
    guard = guarded({2: {"error_texts": told}})
    server, federation = federation_of(who=[2], when=1)
    federation.ask(troubled.Client.train, TrainRequest(weights=server.weights))
    (failure,) = guard.failures
    assert failure.kind == "ValueError"
    assert ("the disk of this hospital is gone" in failure.reason) is told
    assert "the disk of this hospital is gone" in failure.trace


def test_texts_about_tables_stay(guarded, federation_of, troubled, monkeypatch):
    """An error about data is worded by graphsilo, and quotes rows all the same."""
    guard = guarded()
    server, federation = federation_of()
    monkeypatch.setattr(
        fedavg.Client, "fit", lambda self, request: (_ for _ in ()).throw(DataError("row 3 holds 'Meyer'"))
    )
    federation.ask(troubled.Client.train, TrainRequest(weights=server.weights))
    assert [failure.kind for failure in guard.failures] == ["DataError"] * 4
    assert guard.failures[0].reason == "what went wrong stands in the log at the silo"
    assert "Meyer" in guard.failures[0].trace


def test_errors_of_messages_are_told(guarded, federation_of, troubled):
    guard = guarded()
    server, federation = federation_of(who=[2], when=1, how="type")
    federation.ask(troubled.Client.train, TrainRequest(weights=server.weights))
    assert "must return TrainReply; Echo came" in guard.failures[0].reason
    assert guard.failures[0].trace == ""


def test_what_training_alone_came_to_stays_at_the_silo(guarded):
    """Texts about senders are about the silo's own models there; the site's log has them."""
    guard, method = guarded(), registry.load("fedavg")
    with pytest.raises(
        FederationError, match=r"training alone came to an error whose text stays in the site's own log"
    ):
        run(conformance.small_config(method, {**method.quick, "lr": 1e9}, clients=3, run={"alone": True}))
    assert not any(letter.isdigit() for failure in guard.failures for letter in failure.reason)
    assert "TrainReply.weights holds" in guard.failures[0].trace
