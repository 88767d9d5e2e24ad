"""Lies drawn at random: in any field of any answer, of any kind."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from graphsilo.errors import GraphsiloError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import evaluate, modes_of
from graphsilo.federation.codec import decode
from graphsilo.federation.interface import Failure
from graphsilo.federation.message import FieldSpec, Message
from graphsilo.federation.registry import Method
from graphsilo.federation.secure.party import Party
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.dispatch import handler_of
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.secure import SecureSums
from graphsilo.testing import conformance
from graphsilo.types import ClientId

FLOATS = (0.0, -0.0, -3.0, 2.5, 1e-30, 1e5, 9e17, 1e36, 1.7e308, math.nan, math.inf, -math.inf)
WHOLE = (0, 1, -1, -3, 10**6, 2**40, 2**53, 2**62)
PLAIN = (*FLOATS, *WHOLE, True, None, "z", "z" * 10**7, [], [1] * 10**5, {"a": 1})
LONGEST = 5000
"""Characters of what is said of a lie."""


@dataclass
class Outcome:
    """What came of a run with a liar.

    Attributes:
        told: The lies: handler, round, field, and what it held.
        failures: Of whom, and why.
        error: What ended the run.
    """

    told: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    error: BaseException | None = None


def lied_to(method: Method, seed: int) -> tuple[ClientId, Outcome, Any]:
    """Set-up, two rounds and scores between machines, with one client that lies: who it is, what came of it, and the
    server."""
    draw = Random(f"{method.name} {seed}")
    variants = conformance.variants(method)
    variant = variants[draw.choice(sorted(variants))]
    liar, minimum, often = draw.randrange(4), draw.choice([1, None]), draw.choice([1.0, 0.3])
    outcome = Outcome()
    runtime = partial(_Liar, variant, liar, draw, often, outcome)
    server, federation, _ = conformance.assemble(variant, {**method.quick, "min_clients": minimum}, runtime=runtime)
    federation.limits = dict.fromkeys(federation.clients, 1000.0)
    federation.degrees = dict.fromkeys(federation.clients, 1e5)
    try:
        conformance.play(server, federation)
        federation.at("evaluation", 9)
        modes = modes_of(RunConfig().evaluation, variant)
        evaluate(federation, server, variant.client, modes, auc=draw.random() < 0.5, minimum=minimum)
    except Exception as error:
        outcome.error = error
    return liar, outcome, server


def masked_faults(method: Method, seed: int, patch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with how a run on secure sums took lies that a client masked: it names nobody but the liar, and
    nothing that it makes is endless."""
    draw = Random(f"{method.name} masked {seed}")
    liar, often, outcome, honest = draw.randrange(4), draw.choice([1.0, 0.3]), Outcome(), Party.begin

    def begin(self: Party, purpose: Any, answer: Message, *rest: Any) -> Any:
        if self.client != liar or not answer.specs() or draw.random() >= often:
            return honest(self, purpose, answer, *rest)
        spec = draw.choice(answer.specs())
        words, value = false(spec, getattr(answer, spec.name), draw)
        outcome.told.append(f"{type(answer).__name__}.{spec.name}: {words}")
        lie = replace(answer, **{spec.name: value})  # type: ignore[type-var]
        return honest(self, purpose, lie, *rest)

    patch.setattr(Party, "begin", begin)
    server, federation, _ = conformance.assemble(method, method.quick)
    federation.secure = SecureSums(0, federation.run, singles=())
    federation.limits = dict.fromkeys(federation.clients, 300.0)
    federation.degrees = dict.fromkeys(federation.clients, 1e5)
    try:
        conformance.play(server, federation)
        federation.at("evaluation", 9)
        evaluate(federation, server, method.client, modes_of(RunConfig().evaluation, method), auc=False, summed=True)
    except Exception as error:
        outcome.error = error
    named = {int(number) for number in re.findall(r"\bclient (\d)", str(outcome.error or ""))}
    named |= {failure.client for failure in federation.failures}
    found = [f"names another: {outcome.error}"] if named - {liar} else []
    return [f"client {liar} told {outcome.told}: {text}" for text in (*found, *_broken(outcome, server))]


def faults(method: Method, seed: int) -> list[str]:
    """What is wrong with how a run took its lies: it ends in words that name the liar, or goes on without it, finite;
    nobody honest is blamed."""
    liar, outcome, server = lied_to(method, seed)
    error = outcome.error
    found = [f"blames another: {failure}" for failure in outcome.failures if failure.client != liar]
    if error is not None and f"client {liar}" not in str(error):
        found.append(f"does not name the liar: {error}")
    said = [str(error or ""), *map(str, outcome.failures)]
    found += [f"says {len(text)} characters" for text in said if len(text) > LONGEST]
    return [f"client {liar} told {outcome.told}: {text}" for text in (*found, *_broken(outcome, server))]


def _broken(outcome: Outcome, server: Any) -> list[str]:
    """What no lie may bring about: a traceback, an endless model."""
    error = outcome.error
    stray = error is not None and not isinstance(error, GraphsiloError)
    found = ["".join(traceback.format_exception(error))] if stray else []
    reached = [tensor for aggregate in server.aggregates().values() for tensor in aggregate.values()]
    return found + ([] if all(bool(torch.isfinite(one).all()) for one in reached) else ["an aggregate is endless"])


class _Liar(InProcess):
    """Has one client lie in a field of an answer as often as said."""

    def __init__(self, method: Method, liar: ClientId, draw: Random, often: float, outcome: Outcome, *arguments: Any):
        super().__init__(*arguments)
        self.method, self.liar, self.draw, self.often, self.outcome = method, liar, draw, often, outcome

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        _, kind = handler_of(self.method.client, handler).types()
        for client, answer in super().deliver(handler, round, outgoing):
            lies = client == self.liar and isinstance(answer, Encoded) and kind.specs()
            yield client, self._lie(decode(answer.data, kind)) if lies and self.draw.random() < self.often else answer

    def _lie(self, message: Message) -> Encoded:
        spec = self.draw.choice(message.specs())
        words, value = false(spec, getattr(message, spec.name), self.draw)
        self.outcome.told.append(f"{type(message).__name__}.{spec.name}: {words}")
        return conformance.encode_unchecked(replace(message, **{spec.name: value}))  # type: ignore[type-var]

    def note_failure(self, failure: Failure) -> None:
        super().note_failure(failure)
        self.outcome.failures.append(failure)


def false(spec: FieldSpec, value: Any, draw: Random) -> tuple[str, Any]:
    """Something else than a field's value, and what it is in words."""
    if value is None or draw.random() < 0.05:
        return "nothing, or text", None if value is not None else "z"
    if spec.form == "plain":
        return _plain(value, draw)
    if spec.form == "tensor":
        return _tensor(value, draw)
    if spec.form == "tensors":
        return _named(dict(value), draw)
    if not value or draw.random() < 0.3:
        return "one more", [*value, torch.ones(3)]
    place = draw.randrange(len(value))
    words, other = _tensor(value[place], draw)
    return words, [*value[:place], other, *value[place + 1 :]]


def _plain(value: Any, draw: Random) -> tuple[str, Any]:
    inside = list(range(len(value))) if isinstance(value, Sequence) and not isinstance(value, str) else []
    inside = list(value) if isinstance(value, Mapping) else inside
    if not inside or draw.random() < 0.3:
        other = draw.choice(PLAIN)
        return str(other)[:20], other
    place = draw.choice(inside)
    words, other = _plain(value[place], draw)
    if isinstance(value, Mapping):
        rest = {name: item for name, item in value.items() if name != place}
        way = draw.choice(["other", "gone", "renamed"])
        more = {"other": {place: other}, "gone": {}, "renamed": {"z": value[place]}}[way]
        return f"{place} {way}: {words}", {**rest, **more}
    return f"at {place}: {words}", [*value[:place], other, *value[place + 1 :]]


def _named(value: dict[str, Tensor], draw: Random) -> tuple[str, Any]:
    way = draw.choice(["gone", "foreign", "a long name", "none", *3 * ["one"], *3 * ["every"]])
    if not value or way == "foreign":
        return "foreign", {**value, "evil": torch.ones(3)}
    name = draw.choice(list(value))
    if way == "gone":
        return way, {other: tensor for other, tensor in value.items() if other != name}
    if way == "a long name":
        return way, {**value, "z" * 10**7: torch.ones(3)}
    if way == "none":
        return way, {}
    seed, words = draw.random(), ""
    for other in value if way == "every" else [name]:
        words, value[other] = _tensor(value[other], Random(seed))
    return f"{way}: {words}", value


def _tensor(tensor: Tensor, draw: Random) -> tuple[str, Tensor]:
    ways = ("wider", "no entries", "a scalar", "another type", "the first again", "backwards", "negated")
    way = draw.choice(("all", "all", "one", *ways))
    some = bool(tensor.dim() and tensor.numel())
    if way in ("all", "one"):
        number, other = _number(tensor.dtype, draw), tensor.clone()
        places = slice(None) if way == "all" or not some else draw.randrange(tensor.numel())
        other.view(-1)[places] = number
        return f"{way} {number}", other
    others = {
        "wider": lambda: torch.cat([tensor, tensor[..., :1]], -1) if some else tensor.new_ones(7),
        "no entries": lambda: tensor.new_zeros((0,) * max(1, tensor.dim())),
        "a scalar": lambda: tensor.new_ones(()),
        "another type": lambda: tensor.to(draw.choice([torch.float64, torch.float32, torch.int64, torch.bool])),
        "the first again": lambda: tensor[:1].expand_as(tensor).contiguous() if some else tensor,
        "backwards": lambda: tensor.flip(0) if some else tensor,
        "negated": lambda: ~tensor if tensor.dtype is torch.bool else -tensor,
    }
    return way, others[way]()


def _number(dtype: torch.dtype, draw: Random) -> float:
    """One that the type can hold."""
    if dtype is torch.bool:
        return draw.choice([0, 1])
    if not dtype.is_floating_point:
        bounds = torch.iinfo(dtype)
        return max(bounds.min, min(bounds.max, draw.choice(WHOLE)))
    number, largest = draw.choice(FLOATS), torch.finfo(dtype).max
    return max(-largest, min(largest, number)) if math.isfinite(number) else number
