"""The suite catches methods that break its promises: what it says of faults that were put in."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphsilo.errors import FederationError
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.settings import setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.methods import fedavg
from graphsilo.testing.conformance import (
    ConformanceError,
    check_determinism,
    check_failing_client,
    check_labels_stay,
    check_late_client,
    check_lost_answers,
    check_poor_clients,
    check_reduction,
    check_resume,
    check_state,
    hide_labels,
    small_config,
    variants,
)
from graphsilo.testing.small import max_rounds_tried


class Choosing(fedavg.FedAvgConfig):
    """Says that clients choose by validation."""

    @property
    def chooses_by_validation(self):
        return True


def peeking(where, kind):
    """FedAvg whose clients let the labels of ``kind`` nodes into one of the places that the check looks at."""

    class Client(fedavg.Client):
        def peek(self, place):
            labels = self.silo.seen.graph.labels[self.silo.seen.items[kind]]
            return int(labels @ np.arange(len(labels))) if where == place else 0

        @property
        def weight(self):
            return super().weight + self.peek("sent")

        def state(self):
            return {**super().state(), "note": self.peek("state")}

        def predict(self, data, view="own"):
            return super().predict(data, view) + self.peek("predictions")

    return replace(fedavg.METHOD, name="peeking", client=Client)


FOUND = {"sent": "change what is sent", "state": "a client's state", "predictions": "what a client predicts"}


@pytest.mark.parametrize("kind", ["val", "test"])
@pytest.mark.parametrize("where", FOUND)
def test_labels_that_leak_are_found(monkeypatch, where, kind):
    method = peeking(where, kind)
    monkeypatch.setitem(registry._REGISTERED, "peeking", method)
    with pytest.raises(ConformanceError, match=f"peeking: labels of validation or test nodes .*{FOUND[where]}"):
        check_labels_stay(method, {})


def test_who_chooses_by_validation_may_look_at_it_alone(monkeypatch):
    for kind in ("val", "test"):
        method = replace(peeking("state", kind), config=Choosing)
        monkeypatch.setitem(registry._REGISTERED, "peeking", method)
        if kind == "val":
            check_labels_stay(method, {})
        else:
            with pytest.raises(ConformanceError, match="labels of test nodes change a client's state"):
                check_labels_stay(method, {})


def test_which_labels_are_permuted():
    method = registry.load("fedavg")
    silo = prepare(small_config(method, {}), method).silos[0]
    items = silo.seen.items
    for validation in (True, False):
        hidden = hide_labels(silo, validation=validation)
        changed = np.flatnonzero(hidden.graph.labels != silo.graph.labels)
        assert len(np.intersect1d(changed, items["test"])) > 0
        assert (len(np.intersect1d(changed, items["val"])) > 0) is validation
        assert not len(np.intersect1d(changed, silo.train))
        assert np.array_equal(np.sort(hidden.graph.labels), np.sort(silo.graph.labels))
        assert hidden.seen.graph is hidden.graph


def register(monkeypatch, **changes):
    method = replace(fedavg.METHOD, name="tried", **changes)
    monkeypatch.setitem(registry._REGISTERED, "tried", method)
    return method


def test_a_method_is_tried_once_for_every_task_and_with_different_models():
    assert list(variants(registry.load("fedavg"))) == ["node", "graph", "link", "regression", "multilabel"]
    found = variants(registry.load("fedpg"))
    assert list(found) == ["node", "graph", "different models"]
    assert [found[name].tasks for name in found] == [("node",), ("graph",), ("node",)]
    assert list(variants(registry.load("majority"))) == ["node", "graph"]  # without a backbone there is no other


@pytest.mark.parametrize("task", ["node", "graph", "link"])
def test_a_method_of_one_task_is_checked_on_it(monkeypatch, task):
    method = register(monkeypatch, tasks=(task,))
    assert prepare(small_config(method, {}), method).task == task
    for check in (check_state, check_poor_clients, check_labels_stay, check_late_client):
        check(method, {})


def test_a_method_that_is_not_what_it_says_hears_which_number_differs(monkeypatch):
    method = register(monkeypatch, reduces_to=("fedavg", {"lr": 0.02}))
    said = r"tried: METHOD.reduces_to: with \{'lr': 0.02\} and all other settings by default it is not fedavg: "
    with pytest.raises(ConformanceError, match=said + r"after three rounds, client 0's \S+ differs by up to 0\.\d+"):
        check_reduction(method, {})


def test_different_models_that_do_not_work_are_found(monkeypatch):
    method = register(monkeypatch, heterogeneous=True)
    with pytest.raises(FederationError, match="clients had to answer"):
        check_state(variants(method)["different models"], {})


class OneRound(fedavg.FedAvgConfig):
    rounds: int = setting(1, "one and no more", le=1, ge=1)


def test_a_bound_on_rounds_is_respected(monkeypatch):
    method = register(monkeypatch, config=OneRound)
    assert (max_rounds_tried(method), max_rounds_tried(fedavg.METHOD)) == (1, float("inf"))
    assert small_config(method, {}).method_config().rounds == 1
    check_determinism(method, {})


class Forgetful(fedavg.Client):
    """Knows the aggregate from training alone."""

    taught = False

    def fit(self, request):
        self.taught = True
        super().fit(request)

    def install_aggregate(self, weights):
        if not self.taught:
            raise RuntimeError("what is that")
        super().install_aggregate(weights)


class Forgetting(fedavg.Server):
    client = Forgetful


class Careless(fedavg.Server):
    """Takes whatever comes."""

    def collect(self, federation, clients):
        return federation.sum(self.client.train, fedavg.TrainRequest(weights=self.weights), to=clients).require(1)


class Strict(fedavg.Server):
    """Wants everybody, whatever is allowed."""

    def collect(self, federation, clients):
        return federation.sum(self.client.train, fedavg.TrainRequest(weights=self.weights), to=clients).require(4)


def test_a_client_that_cannot_be_scored_before_it_is_asked_is_found(monkeypatch):
    method = register(monkeypatch, client=Forgetful, server=Forgetting)
    with pytest.raises((ConformanceError, FederationError), match=r"client 3 failed|before client 3"):
        check_late_client(method, {})


def test_a_server_that_goes_on_without_those_who_must_answer_is_found(monkeypatch):
    method = register(monkeypatch, server=Careless)
    with pytest.raises(ConformanceError, match="every client had to answer, and it went on"):
        check_failing_client(method, {})


def test_a_server_that_stops_where_fewer_are_allowed_is_found(monkeypatch):
    method = register(monkeypatch, server=Strict)
    with pytest.raises(FederationError, match="4 clients had to answer, 3 did"):
        check_failing_client(method, {})


class Counting(fedavg.Client):
    """Moves what it sends by next to nothing, in some rounds, which it counts."""

    asked = 0
    moved = (1, 2, 3)

    def upload(self):
        self.asked += 1
        by = 1e-6 * self.asked if self.asked in self.moved else 0.0
        return {name: each * (1 + by) for name, each in super().upload().items()}


class Keeping(Counting):
    """Keeps the count."""

    def state(self):
        return {**super().state(), "asked": self.asked}

    def load_state(self, state):
        super().load_state(state)
        self.asked = state["asked"]


class Second(Counting):
    """Needs what it forgets in round 2 alone."""

    moved = (2,)


def serving(member):
    """FedAvg's server for another client."""

    class Server(fedavg.Server):
        client = member

    return Server


@pytest.mark.slow
def test_a_client_that_keeps_all_goes_on_as_it_was(monkeypatch):
    check_resume(register(monkeypatch, client=Keeping, server=serving(Keeping)), {})


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (Counting, "resumed after round 2, models differ: seed0-aggregate-last"),
        (Second, "resumed after round 1, the state after round 2 differs"),
    ],
)
def test_a_client_that_forgets_is_found_though_no_score_changes(monkeypatch, client, said):
    with pytest.raises(ConformanceError, match=said):
        check_resume(register(monkeypatch, client=client, server=serving(client)), {})


class TwoRounds(fedavg.FedAvgConfig):
    rounds: int = setting(2, "two and no more", le=2, ge=1)


def test_two_rounds_are_stopped_after_the_first(monkeypatch):
    method = register(monkeypatch, client=Second, server=serving(Second), config=TwoRounds)
    with pytest.raises(ConformanceError, match="resumed after round 1, models differ: seed0-aggregate-last"):
        check_resume(method, {})


class Noting(fedavg.Server):
    """Counts its rounds, which nothing depends on."""

    done = 0
    kept = ("weights", "done")

    def round(self, federation, number):
        self.done += 1
        super().round(federation, number)


class Mistaking(Noting):
    """Begins to count anew."""

    def load_state(self, state):
        super().load_state({**state, "done": 0})


@pytest.mark.slow
def test_a_server_that_forgets_is_found(monkeypatch):
    check_resume(register(monkeypatch, server=Noting), {})
    with pytest.raises(ConformanceError, match="tried: resumed after round 1, the state after round 2 differs"):
        check_resume(register(monkeypatch, server=Mistaking), {})


def feddyn(**attributes):
    """FedDyn of the documentation, with a client of its own."""
    found = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "feddyn.py"))["METHOD"]
    client = type("Client", (found.client,), attributes)
    return replace(found, client=client)


def test_what_a_lost_answer_leaves_ahead_is_found(monkeypatch):
    """FedDyn with slopes that it saves, and of which nobody says that they are to be taken back."""
    named, base = feddyn(), TrainingClient
    silent = feddyn(
        kept=(),
        state=lambda self: {**base.state(self), "slopes": self.slopes},
        load_state=lambda self, state: (base.load_state(self, state), setattr(self, "slopes", state["slopes"])),
    )
    monkeypatch.setitem(registry._REGISTERED, "feddyn", named)
    check_lost_answers(named, {})
    with pytest.raises(ConformanceError, match=r"feddyn: when an answer to \['train'\] is lost, .* in `kept`"):
        check_lost_answers(silent, {})
