"""A client whose answers are finite and yet impossible is named, and the run goes on without it where it may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphsilo.errors import FederationError, MessageError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.averaging import step_to
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import Failure, Handler, handler
from graphsilo.federation.message import Empty, Message, Tensors, sends
from graphsilo.methods import fedavg
from graphsilo.runtime.dispatch import handler_of
from graphsilo.runtime.local import clients
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing import conformance
from graphsilo.testing.conformance import encode_unchecked, small_config

Change = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]

LIES: dict[str, tuple[int, Change, str]] = {
    "too wide": (
        2,
        lambda w: {name: torch.full(t.shape, 1.7e308, dtype=torch.float64) for name, t in w.items()},
        "TrainReply.weights must hold float32; float64 came",
    ),
    "too large": (
        2,
        lambda w: {name: torch.full(t.shape, -3e38) for name, t in w.items()},
        "TrainReply.weights holds 3e+38; at most 1e+06 is taken",
    ),
    "other names": (
        0,
        lambda w: {"evil": torch.ones(3)},
        "TrainReply.weights has the shape evil (3,); what it was asked with has the shape layers.0.",
    ),
    "whole numbers": (
        0,
        lambda w: {name: torch.ones(t.shape, dtype=torch.int8) for name, t in w.items()},
        "TrainReply.weights must hold float32; int8 came",
    ),
    "fewer": (
        0,
        lambda w: dict(list(w.items())[:1]),
        "TrainReply.weights has nothing of that; what it was asked with has the shape layers.0.",
    ),
}


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have one client of a FedAvg run answer something else in round 2."""
    honest = clients.call

    def install(who: int, change: Change, samples: float = 9.0) -> None:
        def call(held: Any, name: str, number: int, *rest: Any) -> Any:
            answer = honest(held, name, number, *rest)
            if held.client.id != who or name != "train" or number != 2:
                return answer
            weights = change(decode(answer.data, fedavg.TrainReply).weights)
            return encode_unchecked(fedavg.TrainReply(weights=weights, num_samples=samples))

        monkeypatch.setattr(clients, "call", call)

    return install


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silos of which the coordinator knows no more than their cards."""
    made = InProcess.__init__

    def elsewhere(self: InProcess, *arguments: Any) -> None:
        made(self, *arguments)
        self.limits = dict.fromkeys(self.clients, 150.0)

    monkeypatch.setattr(InProcess, "__init__", elsewhere)


@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        ("scaffold", {}, "num_samples"), ("scaffold", {}, "weight"), ("feddc", {}, "num_samples"),
        ("feddc", {"weighted": "objectives", "weight_by": "nodes"}, "num_samples"),
    ],
)  # fmt: skip
def test_who_counts_otherwise_than_it_said_is_named(
    name: str, settings: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch, apart: None
) -> None:
    """Sums over what clients said before round 1 are divided by each other's: one alone could make any step of it."""
    honest = clients.call

    def call(held: Any, step: str, *rest: Any) -> Any:
        answer = honest(held, step, *rest)
        kind = handler_of(type(held.client), step).types()[1]
        if held.client.id != 2 or field not in kind.__dataclass_fields__:
            return answer
        return encode(replace(decode(answer.data, kind), **{field: 120.0}))

    monkeypatch.setattr(clients, "call", call)
    tree = run(small_config(registry.load(name), {**settings, "min_clients": 3})).tree
    for row in tree["seeds"][0]["rounds"]:
        (failure,) = row["failures"]
        assert failure.startswith("client 2 failed in 'train' (MessageError: TrainReply.num_samples is ")


@pytest.mark.parametrize("lie", list(LIES))
def test_impossible_share_fails_who_sent_it(lie: str, lies: Any) -> None:
    liar, change, words = LIES[lie]
    lies(liar, change)
    method = registry.load("fedavg")
    with pytest.raises(FederationError) as caught:
        run(small_config(method, {}))
    assert f"4 clients had to answer, 3 did. First failure: client {liar} failed in 'train'" in str(caught.value)
    assert words in str(caught.value)
    tree = run(small_config(method, {"min_clients": 3})).tree
    rounds = tree["seeds"][0]["rounds"]
    assert [len(row.get("failures", [])) for row in rounds] == [0, 1, 0]
    assert rounds[1]["failures"][0].startswith(f"client {liar} failed in 'train' (MessageError: {words}")
    assert tree["seeds"][0]["test"]["accuracy"] > 0


def test_largest_value_is_a_setting(lies: Any) -> None:
    lies(1, lambda weights: {name: torch.full(tensor.shape, 2.0) for name, tensor in weights.items()}, samples=0.0)
    method = registry.load("fedavg")
    allowed = run(small_config(method, {}, run={"largest_value": 2.5})).tree
    assert not any("failures" in row for row in allowed["seeds"][0]["rounds"])
    with pytest.raises(FederationError, match=r"client 1 failed in 'train' .* holds 2; at most 1\.5 is taken"):
        run(small_config(method, {}, run={"largest_value": 1.5}))


class Held(Message):
    """What is counted, in all forms, and beside it what is not."""

    one: float = sends("counts", default=0.0)
    some: list[int] = sends("counts", default=())
    named: Tensors = sends("counts", dtype=(torch.float64, torch.int64), default=())
    classes: Tensor | None = sends("counts", dtype=(torch.float32, torch.int64), default=None)
    degrees: Tensor | None = sends("topology", dtype=torch.int64, whole=True, default=None)
    share: float = sends("counts", whole=False, default=-0.5)


@pytest.mark.parametrize(
    "field",
    [
        {"one": 2.5}, {"one": -0.0}, {"one": -3.0}, {"one": 1e300}, {"one": float("nan")}, {"some": [1, -1]},
        {"named": {"a": torch.tensor([3.0, 0.5]).double()}}, {"named": {"a": torch.tensor(-1)}},
        {"classes": torch.tensor([1.0, -0.0])}, {"classes": torch.tensor([2**54])}, {"degrees": torch.tensor([-1])},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_that_counts_is_declared_and_holds_whole_numbers(field: dict[str, Any]) -> None:
    class Holder(fedavg.Client[Any]):
        @handler
        def hold(self, request: Empty) -> Held:
            return Held(one=7.0, some=[1, 2], named={"a": torch.tensor([3, 0])}, classes=torch.tensor([1.0, 2.0**24]))

    lie: list[dict[str, Any]] = []

    class Lying(InProcess):
        def deliver(self, *arguments: Any) -> Iterator[Any]:
            for client, answer in super().deliver(*arguments):
                yield (
                    client,
                    encode_unchecked(replace(decode(answer.data, Held), **lie[0])) if lie and client == 2 else answer,
                )

    method = replace(registry.load("fedavg"), client=Holder)
    _, federation, _ = conformance.assemble(method, {}, runtime=Lying)
    assert federation.ask(Holder.hold, Empty()).clients == (0, 1, 2, 3)
    lie.append(field)
    answers = federation.ask(Holder.hold, Empty())
    assert answers.clients == (0, 1, 3)
    assert f"Held.{next(iter(field))} " in answers.failures[2].reason


@pytest.mark.parametrize("liar", [0, 3])
def test_answers_of_silos_apart_are_held_against_each_other(liar: int, lies: Any, apart: None) -> None:
    """What any bound must let through would still decide the mean."""
    lies(liar, lambda weights: {name: 1e5 * tensor for name, tensor in weights.items()})
    method = registry.load("fedavg")
    tree = run(small_config(method, {"min_clients": 3})).tree
    rounds = tree["seeds"][0]["rounds"]
    assert [len(row.get("failures", [])) for row in rounds] == [0, 1, 0]
    assert re.match(
        rf"client {liar} failed in 'train' \(MessageError: TrainReply\.weights holds .*, and at half of the other "
        r"silos 0\.\d+ at most: more than 100 times as much, its size taken into account, is not taken",
        rounds[1]["failures"][0],
    )
    config = small_config(method, {"min_clients": 3})  # whoever said it here would be told that nobody lies here
    wide = run(config.model_copy(update={"run": config.run.model_copy(update={"largest_ratio": 1e9})})).tree
    assert not any("failures" in row for row in wide["seeds"][0]["rounds"])


def test_most_silos_are_not_named_for_what_they_were_sent(monkeypatch: pytest.MonkeyPatch, apart: None) -> None:
    """A liar within all bounds makes a mean of which others' answers are NaN: they failed by name, and it stayed."""
    honest = clients.call

    def call(held: Any, name: str, number: int, *rest: Any) -> Any:
        if held.client.id == 0 or name != "train" or number != 2:
            return honest(held, name, number, *rest)
        return Failure(held.client.id, name, "MessageError", "TrainReply.weights holds NaN.")

    monkeypatch.setattr(clients, "call", call)
    with pytest.raises(FederationError, match=r"3 of 4 silos have no answer to 'train' .*: nobody is named") as caught:
        run(small_config(registry.load("fedavg"), {"min_clients": 1}))
    assert "client 1" not in str(caught.value)


def test_who_answers_zeros_is_told_and_not_blamed(lies: Any, apart: None) -> None:
    lies(2, lambda weights: {name: 0 * tensor for name, tensor in weights.items()})
    tree = run(small_config(registry.load("fedavg"), {})).tree
    rounds = tree["seeds"][0]["rounds"]
    assert [row.get("idle", []) for row in rounds] == [
        [],
        ["client 2 in 'train' (TrainReply.weights: zeros alone)"],
        [],
    ]
    assert not any("failures" in row for row in rounds)
    (warning,) = [text for text in tree["warnings"] if "nothing of their own" in text]
    assert "client 2 in 1 of 3 rounds ('train' (TrainReply.weights: zeros alone))" in warning


def test_who_says_that_it_has_nothing_may_answer_zeros(lies: Any, apart: None) -> None:
    lies(2, lambda weights: {name: 0 * tensor for name, tensor in weights.items()}, samples=0.0)
    assert not any("idle" in row for row in run(small_config(registry.load("fedavg"), {})).tree["seeds"][0]["rounds"])


def test_a_check_that_a_lie_breaks_fails_who_sent_it(apart: None) -> None:
    """And says so of nobody else; in one process, where nobody lies, it is a fault of the check."""

    def check(client: int, reply: Any) -> None:
        if client == 2:
            torch.ones(3) + torch.ones(2)

    server, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    request = fedavg.TrainRequest(weights=server.weights)
    answers = federation.ask(fedavg.Client.train, request, check=check)
    assert list(answers.failures) == [2]
    assert "TrainReply is none that could be looked at (RuntimeError: The size of tensor" in answers.failures[2].reason
    federation.limits = {}
    with pytest.raises(RuntimeError, match="The size of tensor"):
        federation.ask(fedavg.Client.train, request, check=check)


def test_what_the_server_made_is_not_held_against_a_client() -> None:
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {"min_clients": 1})
    server.weights = {name: torch.full_like(value, float("inf")) for name, value in server.weights.items()}
    with pytest.raises(FederationError, match=r"TrainRequest\.weights, which the server made of the clients' answers"):
        server.round(federation, 1)
    assert federation.failures == []


def test_check_of_an_answer_fails_its_client() -> None:
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {})

    def check(client: int, reply: Any) -> None:
        if client == 2:
            raise MessageError(f"client {client}: I do not like it.")

    replies = federation.ask(fedavg.Client.train, fedavg.TrainRequest(weights=server.weights), check=check)
    assert replies.clients == (0, 1, 3)
    assert str(replies.failures[2]) == "client 2 failed in 'train' (MessageError: client 2: I do not like it.)"
    assert [failure.client for failure in federation.failures] == [2]


class Answer(Message):
    """Something that the request does not have."""

    other: Tensors = sends("model")


def answers(names: str) -> Any:
    """A federation of four FedAvg clients, of which each answers with a tensor of its own name."""
    _, federation, _ = conformance.assemble(registry.load("fedavg"), {})

    def step(client: Any, request: Empty) -> Answer:
        return Answer(other={names[client.id]: torch.ones(2)})

    Step = Handler(step)
    Step._types = (Empty, Answer)
    return federation, Step


@pytest.mark.parametrize(
    ("names", "summed"), [("bbab", (0, 1, 3)), ("abbb", (1, 2, 3)), ("aabc", (0, 1)), ("abba", ())]
)
def test_most_answers_say_what_the_others_look_like(
    names: str, summed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, step = answers(names)
    monkeypatch.setattr(fedavg.Client, "step", step, raising=False)
    total = federation.sum(step, Empty())
    assert total.clients == summed
    assert sorted(total.failures) == [client for client in range(4) if client not in summed]
    assert [failure.client for failure in federation.failures] == sorted(total.failures)
    if summed:
        assert total.message.other[names[summed[0]]].tolist() == [float(len(summed))] * 2
        total.require(2)
    else:
        with pytest.raises(
            FederationError, match=r"2 clients had to answer, 0 did. First failure: client 0 .* All cli"
        ):
            total.require(2)


def test_another_model_is_no_step() -> None:
    old = {"w": torch.ones(2)}
    assert step_to(old, {"w": torch.tensor([4.0, 8.0]).double()}, 2.0, 1.0)["w"].tolist() == [2.0, 4.0]
    for total in ({"v": torch.ones(2)}, {}, {"w": torch.ones(2), "v": torch.ones(1)}, {"w": torch.ones(3)}):
        with pytest.raises(FederationError, match="the clients' sum holds"):
            step_to(old, total, 1.0, 1.0)
