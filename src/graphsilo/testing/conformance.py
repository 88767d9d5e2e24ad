"""What every method must satisfy, whatever it does: run it on small data and hold it against the promises.

Use it in a test of your own method::

    from graphsilo.testing.conformance import check_method
    check_method(METHOD)
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import FederationError, MessageError
from graphsilo.evaluate.metrics import find_leading
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import evaluate, modes_of
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, common_model, copy_kept
from graphsilo.federation.codec import Packer, decode, decode_tree, encode, encode_tree
from graphsilo.federation.interface import Failure, Federation, Handler, handlers_of
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.message import KINDS, FieldSpec, Message, tensors_in
from graphsilo.federation.outliers import APART, LEAST_ANSWERS, find_comparable
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.wire import Encoded
from graphsilo.models.base import Model
from graphsilo.runtime.dispatch import Inbox, handler_of
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing.settings import add_starts, check_settings, find_difference
from graphsilo.testing.small import POOLS, ConformanceError, play, small_config
from graphsilo.training.optimizer import Optimizer
from graphsilo.types import ClientId


def check_method(method: Method, *, settings: Mapping[str, Any] | None = None, workers: bool = False) -> None:
    """Run every check for every task of the method, and with different models where it allows them.

    Args:
        method: The registry entry.
        settings: Settings for the small runs; none: ``Method.quick``, and every setting is tried as well.
        workers: Also compare with process workers; the method must be importable by its module's name.

    Raises:
        ConformanceError: A promise is broken.
    """
    known = registry._REGISTERED.get(method.name)
    wanted = method.quick if settings is None else settings
    registry.register(method)
    try:
        for variant in variants(method).values():
            for check in CHECKS:
                check(variant, wanted)
        if settings is None:
            check_settings(method, wanted)
        if workers:
            check_workers(method, wanted)
    finally:
        if known is None:
            del registry._REGISTERED[method.name]
        else:
            registry.register(known)


def variants(method: Method) -> dict[str, Method]:
    """The entry for one task at a time, and for different models where clients may have some; by what it is for.

    Each check can be given one of them instead of the entry itself, which it tries with its first task.
    """
    found = {str(task): replace(method, tasks=(task,)) for task in method.tasks}
    if method.heterogeneous and method.backbone:
        first = method.tasks[0]
        found["different models"] = replace(method, tasks=(first,), model={"pool": POOLS[first]})
    return found


def check_registered(method: Method, settings: Mapping[str, Any]) -> None:
    """The entry is complete, and every message declares what it discloses."""
    for attribute in ("name", "title", "citation", "summary"):
        _require(bool(getattr(method, attribute)), method, f"METHOD.{attribute} is empty")
    for name, field in method.config.model_fields.items():
        _require(bool(field.description), method, f"setting '{name}' has no description")
    usual = method.config()
    _require(
        method.config(**usual.model_dump()) == usual, method, "its default settings are refused when they are said"
    )
    for message in messages_of(method):
        for spec in message.specs():
            _require(spec.kind in KINDS, method, f"{message.__name__}.{spec.name} declares no kind of disclosure")


def check_determinism(method: Method, settings: Mapping[str, Any]) -> None:
    """The same seed gives the same numbers, whatever happened to global random states before."""
    config = small_config(method, settings)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the point is that global states do not matter
    first = run(config)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    second = run(config)
    _require(numbers(first.tree) == numbers(second.tree), method, "two runs with one seed differ")


def check_reduction(method: Method, settings: Mapping[str, Any]) -> None:
    """With the settings that take away what is its own it is the method that it says, bit for bit; in batches and with
    some clients per round, too."""
    if method.reduces_to is None:
        return
    name, off = method.reduces_to
    other = replace(registry.load(name), model=method.model)
    for way in ({}, {"batch_size": 2}, {"participation": 0.7}):
        mine = {**add_starts(method, settings), **off, **way}
        found = find_difference((other, way), (method, mine), method.tasks[0])
        others = f"the other settings {way}" if way else "all other settings by default"
        _require(not found, method, f"METHOD.reduces_to: with {dict(off)} and {others} it is not {name}: {found}")


def check_messages(method: Method, settings: Mapping[str, Any]) -> None:
    """Every message that is sent survives the codec unchanged, and every byte is in the ledger."""
    server, federation, spy = assemble(method, settings)
    play(server, spy)
    for message in spy.sent:
        again = decode(encode(message).data, type(message))
        same = encode(again).data
        _require(np.array_equal(encode(message).data, same), method, f"{type(message).__name__} changes in the codec")
    rows = federation.ledger.rows()
    noted = sum(row[8] for row in rows)
    counted = sum(sum(federation.ledger.total(phase).values()) for phase in ("setup", "round", "evaluation"))
    _require(noted == counted and bool(rows), method, f"the ledger's rows hold {noted} bytes, its totals {counted}")


def check_partial_participation(method: Method, settings: Mapping[str, Any]) -> None:
    """With half of the clients per round it still runs, and only those are asked; what comes of one round, all get."""
    config = small_config(method, {**settings, "participation": 0.5})
    result = run(config)
    for row in result.tree["seeds"][0]["rounds"]:
        if not method.pooled and not method.config.reaches_all:
            _require(
                row["participants"] <= 2,
                method,
                f"round {row['round']} asked {row['participants']} of 4 clients, not 2",
            )
    _require_finite(method, result.tree)


def check_resume(method: Method, settings: Mapping[str, Any]) -> None:
    """Stopped after any round and resumed from what it kept, it is the run in one go, bit for bit: its numbers, every
    client's and the server's models, and their states in between."""
    config = small_config(method, settings, run={"checkpoint_every": 1})
    config = config.with_settings({"evaluation.models": True})
    with tempfile.TemporaryDirectory() as folder:
        result = run(config, out=Path(folder) / "whole")
        rounds, whole = len(result.tree["seeds"][0]["rounds"]), numbers(result.tree)
        models = _models(Path(folder) / "whole")
        states: dict[int, bytes] = {}  # of the run in one go that far: who stops first after a round has not resumed
        for stops in (2, 1) if rounds > 2 else (1,):
            place = Path(folder) / f"stopped after {stops}"
            for last in range(stops, max(rounds, stops + 1)):
                with contextlib.suppress(_Stopped):
                    run(config, out=place, observer=_Stop(last), resume=last > stops)
                    raise ConformanceError(f"{method.name}: it was not stopped after round {last}.")
                if last < rounds:  # no checkpoint follows the last round
                    round_, state = _read_checkpoint(place)
                    _require(round_ == last, method, f"stopped after round {last}, it had kept round {round_}")
                    _require(
                        states.setdefault(last, state) == state,
                        method,
                        f"resumed after round {stops}, the state after round {last} differs",
                    )
            resumed = run(config, out=place, resume=True)
            _require(numbers(resumed.tree) == whole, method, f"resumed after round {stops}, the numbers differ")
            found = _models(place)
            differing = sorted(name for name in {*models, *found} if models.get(name) != found.get(name))
            _require(not differing, method, f"resumed after round {stops}, models differ: {', '.join(differing)}")


def _models(folder: Path) -> dict[str, bytes]:
    """The models that a run wrote: every client's and the server's, of the best and of the last round."""
    return {path.name: path.read_bytes() for path in (folder / "models").glob("*")}


def _read_checkpoint(folder: Path) -> tuple[int, bytes]:
    """The round of a stopped run's checkpoint, and in it the server's and all clients' states."""
    [path] = (folder / "checkpoints").glob("seed-*.ckpt")
    tree = decode_tree(path.read_bytes()[32:])
    return tree["progress"]["round"], encode_tree({part: tree[part] for part in ("server", "clients")}).tobytes()


def check_state(method: Method, settings: Mapping[str, Any]) -> None:
    """State goes out and comes back through bytes; a client restored from it answers as before."""
    server, federation, spy = assemble(method, settings)
    server.set_up(spy)
    federation.at("round", 1)
    server.round(spy, 1)
    for client, state in federation.client_states().items():
        again = decode_tree(encode_tree(state))
        held = federation.cache.get(client)
        held.load_state(again)
        back = encode_tree(held.state())
        _require(np.array_equal(back, encode_tree(state)), method, f"client {client}'s state changes when restored")
    tree = encode_tree(server.state())
    server.load_state(decode_tree(tree))
    _require(np.array_equal(encode_tree(server.state()), tree), method, "the server's state changes when restored")


def check_poor_clients(method: Method, settings: Mapping[str, Any]) -> None:
    """A client without training nodes, one with a single class, one without edges: nothing breaks, nothing is NaN."""
    config = small_config(method, settings)
    simulation = prepare(config, method)
    poor = simulation if method.pooled else replace(simulation, silos=tuple(impoverish(simulation.silos)))
    _require_finite(method, run(config, simulation=poor).tree)


def check_single_client(method: Method, settings: Mapping[str, Any]) -> None:
    """One client alone is a federation, too."""
    _require_finite(method, run(small_config(method, settings, clients=1)).tree)


def check_labels_stay(method: Method, settings: Mapping[str, Any]) -> None:
    """Labels of validation and test nodes change no message, no state and no prediction when they are permuted.

    Those of test nodes alone where the method's configuration says ``chooses_by_validation``.
    """
    chooses = small_config(method, settings).method_config().chooses_by_validation
    which = "test nodes" if chooses else "validation or test nodes"
    hint = "" if chooses else " (validation may choose at the client, if the configuration says chooses_by_validation)"
    before = traces(method, settings)
    after = traces(method, settings, hide=lambda silo: hide_labels(silo, validation=not chooses))
    for name in before:
        _require(before[name] == after[name], method, f"labels of {which} change {name}{hint}")


def traces(
    method: Method, settings: Mapping[str, Any], hide: Callable[[Silo], Silo] | None = None
) -> dict[str, list[bytes]]:
    """Everything that set-up and two rounds leave behind, as bytes: one entry per message, state and prediction."""
    server, federation, spy = assemble(method, settings, hide=hide)
    play(server, spy)
    predictions = []
    for number in federation.clients if "own" in method.evaluates else ():
        client = federation.client(number)
        with torch.no_grad():
            predictions.append(client.predict(client.tensors(client.silo.seen.graph)).cpu().numpy().tobytes())
    return {
        "what is sent": [encode_tree(values).tobytes() for values in map(vars, spy.messages)],
        "the server's state": [encode_tree(server.state()).tobytes()],
        "a client's state": [encode_tree(state).tobytes() for _, state in sorted(federation.client_states().items())],
        "what a client predicts": predictions,
    }


_SHAPES = ("another type", "other names or shapes")
_COUNTLESS = "half an item too few"
LIES: Sequence[str] = ("not a number", "infinity", "too large", *_SHAPES, _COUNTLESS)
"""What a client of ``check_liars`` answers."""
IDLE: Sequence[str] = ("zeros", "what it was sent", "what another answered")
"""What one of ``check_idle_client`` answers in every field of floats."""
EXAGGERATED = "the same, 100,000 times as large"
"""What one of ``check_exaggeration`` does: a number that a field may well hold, elsewhere."""


def check_failing_client(method: Method, settings: Mapping[str, Any]) -> None:
    """A client that fails is named; where fewer answers are allowed the others go on, and what they make is finite."""
    if method.pooled:
        return
    for failing in (0, 3):
        for since in (0, 2):
            runtime = partial(_Failing, failing, since)
            server, federation, _ = assemble(method, {**settings, "min_clients": 1}, runtime=runtime)
            play(server, federation, rounds=3)
            others = [client for client in federation.clients if client != failing]
            _require_scored(method, server, federation, others, f"after client {failing} failed from round {since} on")
            server, federation, _ = assemble(method, {**settings, "min_clients": None}, runtime=runtime)
            try:
                play(server, federation, rounds=3)
            except FederationError as error:
                _require(
                    f"client {failing} failed" in str(error), method, f"when client {failing} failed, it said: {error}"
                )
            else:
                _require(
                    not getattr(federation, "has_failed", False),
                    method,
                    f"client {failing} failed, every client had to answer, and it went on",
                )


class _Failing(InProcess):
    """One client that answers no more from a round on; in round 0, set-up, it answers nothing at all."""

    def __init__(self, failing: ClientId, since: int, *arguments: Any):
        super().__init__(*arguments)
        self.failing, self.since, self.has_failed = failing, since, False

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        for client, answer in super().deliver(handler, round, outgoing):
            if client == self.failing and round >= self.since:
                self.has_failed = True
                yield client, Failure(client, handler, "RuntimeError", "it is broken")
            else:
                yield client, answer


LOST: Sequence[str] = ("is lost", "comes late", "cannot be taken")
"""What becomes of an answer in ``check_lost_answers``."""


def check_lost_answers(method: Method, settings: Mapping[str, Any]) -> None:
    """An answer that is lost, late or refused changes nothing that lasts: asked again, the client answers the same.

    Its model and the optimiser's moments apart, which may have been trained once more.
    """
    if method.pooled:
        return
    for way in LOST:
        changed: list[str] = []
        runtime = partial(_Losing, way, changed)
        server, federation, _ = assemble(method, {**settings, "min_clients": 1}, runtime=runtime)
        play(server, federation)
        _require(
            not changed, method,
            f"when an answer to {changed[:1]} {way}, the client answers otherwise when it is asked again: what a step "
            f"changes and a later one depends on stands in `kept`",
        )  # fmt: skip


class _Losing(InProcess):
    """Asks client 0 for everything twice: its first answer does not count. ``changed`` has the steps that it shows."""

    def __init__(self, way: str, changed: list[str], *arguments: Any):
        super().__init__(*arguments)
        self.way, self.changed, self.losing = way, changed, False
        self.answer, self.request = b"", np.zeros(0, dtype=np.uint8)

    def exchange(self, handler: Any, request: Any, to: Any = None, check: Any = None) -> Iterator[Any]:
        held = self.cache.get(0)
        # Between two steps that belong together what is not counted lasts no round.
        loses = 0 in self.addressees(request, to) and held.client.can_be_offloaded
        if loses:
            numbering, back = held.numbering, _snapshot(held.client)
            self.losing = True
            failed = list(super().exchange(handler, request, [0], check))
            assert all(isinstance(answer, Failure) for _, answer, _ in failed)
            self.losing, lost, late = False, self.answer, (self.turn, None)
            held.numbering = numbering
            back()
        yield from super().exchange(handler, request, to, check)
        if loses and self.way == LOST[1]:  # it comes now, after the one that was asked for since
            comes = self.cache.call(0, handler.name, self.ledger.round, Inbox(self.request), late)
            self.answer = lost if isinstance(comes, Failure) else b""
        if loses and lost != self.answer:
            self.changed.append(handler.name)

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        for client, answer in super().deliver(handler, round, outgoing):
            if client == 0:
                self.request = outgoing[client].data
                self.answer = answer.data.tobytes() if isinstance(answer, Encoded) else str(answer).encode()
            if self.losing and self.way == LOST[2] and isinstance(answer, Encoded):
                yield client, Encoded(answer.data[:-1], answer.name, answer.field_bytes)
            else:
                yield client, Failure(client, handler, "Gone", "it is lost") if self.losing else answer


def _snapshot(client: Any) -> Callable[[], None]:
    """Puts a client's models and the moments of its optimisers back to what they are now."""
    held = [*vars(client).values(), *vars(getattr(client, "trainer", client)).values()]
    optimizers = [one for one in held if isinstance(one, Optimizer)]
    moments = copy_kept([one.state() for one in optimizers])
    tensors = [each for one in optimizers for each in one.parameters]
    tensors += [buffer for one in held if isinstance(one, Model) for buffer in one.buffers()]
    values = copy_kept(tensors)

    def back() -> None:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        for one, state in zip(optimizers, moments, strict=True):
            one.load_state(state)

    return back


def check_late_client(method: Method, settings: Mapping[str, Any]) -> None:
    """A client that is first asked in round 3 can be scored before and afterwards, by every view."""
    if method.pooled:
        return
    server, federation, spy = assemble(method, settings)
    late = federation.clients[-1]
    server.select = lambda federation, number: tuple(
        client for client in federation.clients if number >= 3 or client != late
    )
    play(server, spy, rounds=2)
    _require_scored(method, server, federation, federation.clients, f"before client {late} was ever asked")
    if server.rounds >= 3:
        federation.at("round", 3)
        server.round(spy, 3)
        _require_scored(
            method, server, federation, federation.clients, f"after client {late} was first asked in round 3"
        )


def _require_scored(method: Method, server: Any, federation: InProcess, clients: Sequence[ClientId], when: str) -> None:
    """Every view of these clients gives scores, and every aggregate is finite."""
    federation.at("evaluation", 9)
    config = RunConfig().evaluation
    found = evaluate(federation, server, method.client, modes_of(config, method), auc=False, to=clients)
    for view, sets in found.items():
        _require(
            sets["seen"].clients == tuple(clients), method, f"{when}, the view {view} scores {sets['seen'].clients}"
        )
    tensors = [tensor for aggregate in server.aggregates().values() for tensor in aggregate.values()]
    _require(all(map(_is_finite, tensors)), method, f"{when}, an aggregate is not finite")


def check_liars(method: Method, settings: Mapping[str, Any]) -> None:
    """A client whose answers cannot be is named, and where fewer answers are allowed the others go on without it."""
    if method.pooled:
        return
    for number, lie in enumerate(LIES):
        liar = (0, 3)[number % 2]  # who comes first, and who comes last
        lies: list[str] = []
        server, federation, _ = assemble(
            method, {**settings, "min_clients": 1}, runtime=partial(_Lying, method, liar, lie, lies)
        )
        assert isinstance(federation, _Lying)
        play(server, federation)
        for failure in federation.failed:
            _require(failure.client == liar, method, f"when client {liar} answers with {lie}, {failure}")
        found = len(federation.failed)
        _require(
            found == len(lies), method, f"client {liar} answered with {lie} in {lies}, of which {found} were found"
        )
        reached = [tensor for aggregate in server.aggregates().values() for tensor in aggregate.values()]
        _require(all(map(_is_finite, reached)), method, f"{lie} of client {liar} reached the aggregate")


def check_exaggeration(method: Method, settings: Mapping[str, Any]) -> None:
    """Between machines a client that makes one field far larger than the others' is named, and nobody else."""
    if method.pooled:
        return
    for name in sorted({spec.name for kind in replies_of(method) for spec in kind.specs() if spec.compared}):
        lies: list[str] = []
        runtime = partial(_Lying, method, 3, EXAGGERATED, lies, only=name)
        server, federation, _ = assemble(method, {**settings, "min_clients": 1}, runtime=runtime)
        assert isinstance(federation, _Lying)
        federation.limits = dict.fromkeys(federation.clients, 1e9)
        play(server, federation)
        for failure in federation.failed:
            _require(failure.client == 3, method, f"when client 3 makes {name} larger, {failure}")
        _require(
            bool(federation.failed) or not lies, method, f"nobody noticed that client 3 makes {name} larger in {lies}"
        )


def check_idle_client(method: Method, settings: Mapping[str, Any]) -> None:
    """Between machines a client that answers zeros, or what it was sent or another answered, harms no other: it is
    remarked or has failed, and nobody else has; what is made is finite."""
    if method.pooled:
        return
    for way in IDLE:
        lies: list[str] = []
        runtime = partial(_Lying, method, 3, way, lies)
        server, federation, _ = assemble(method, {**settings, "min_clients": 1}, runtime=runtime)
        assert isinstance(federation, _Lying)
        federation.limits = dict.fromkeys(federation.clients, 1e9)
        play(server, federation)
        named = {failure.client for failure in federation.failed}
        _require(named <= {3}, method, f"when client 3 answers {way}, {federation.failed[:1]}")
        seen = bool(named) or bool(federation.remarked)
        _require(seen or not lies, method, f"nobody noticed that client 3 answers {way} in {lies}")
        blamed = [text for text in federation.remarked if way != IDLE[2] and not text.startswith("client 3 ")]
        _require(not blamed, method, f"when client 3 answers {way}: {blamed[:1]}")
        reached = [tensor for aggregate in server.aggregates().values() for tensor in aggregate.values()]
        _require(all(map(_is_finite, reached)), method, f"{way} of client 3 made the aggregate endless")


class _Lying(InProcess):
    """One client lies wherever it can, or where it is held against others; ``lies`` says in which handlers it did."""

    def __init__(
        self, method: Method, liar: ClientId, lie: str, lies: list[str], *arguments: Any, only: str | None = None
    ):
        super().__init__(*arguments)
        self.method, self.liar, self.lie, self.lies, self.only = method, liar, lie, lies, only
        self.failed: list[Failure] = []
        self.remarked: list[str] = []
        self.asked: Message | None = None

    def exchange(self, handler: Any, request: Any, to: Any = None, check: Any = None) -> Iterator[Any]:
        self.asked = request if isinstance(request, Message) else request.get(self.liar)
        before = len(self.idle)
        yield from super().exchange(handler, request, to, check)
        self.remarked += self.idle[before:]

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        _, reply_type = handler_of(self.method.client, handler).types()
        other: Message | None = None
        for client, answer in super().deliver(handler, round, outgoing):
            lie = None
            if client != self.liar and isinstance(answer, Encoded):
                other = decode(answer.data, reply_type)
            elif self.lie in IDLE and isinstance(answer, Encoded):
                lie = (
                    self._forge_idle(decode(answer.data, reply_type), other) if len(outgoing) >= LEAST_ANSWERS else None
                )
                self.lies += [handler] if lie else []
            elif client == self.liar and isinstance(answer, Encoded):
                held_against = self.only is None or len(outgoing) >= LEAST_ANSWERS
                lie = forge(decode(answer.data, reply_type), self.lie, self.only) if held_against else None
                self.lies += [handler] if lie else []
            yield client, lie or answer

    def _forge_idle(self, own: Message, other: Message | None) -> Encoded | None:
        """The bytes of an answer in which another message's numbers, or zeros, stand for what is compared."""
        source = {IDLE[1]: self.asked, IDLE[2]: other}.get(self.lie)
        changes: dict[str, Any] = {}
        for name, (numbers, like) in find_comparable(own).items():
            value = getattr(own, name)
            if self.lie == IDLE[0]:
                changes[name] = _each(torch.zeros_like, value)
            elif (given := getattr(source, like if source is self.asked else name, None)) is not None:
                changes[name] = given
            if name in changes and not any(map(bool, map(torch.any, numbers))):
                del changes[name]
        return encode_unchecked(replace(cast("Any", own), **changes)) if changes else None

    def note_unusable(self, client: ClientId, handler: Handler[Any, Any], error: MessageError) -> Failure:
        failure = super().note_unusable(client, handler, error)
        self.failed.append(failure)
        return failure


def _each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A field with every tensor, or its plain number, changed."""
    if isinstance(value, Mapping):
        return {name: change(tensor) for name, tensor in value.items()}
    if isinstance(value, Tensor):
        return change(value)
    return [change(tensor) for tensor in value] if isinstance(value, list | tuple) else 0.0


def forge(message: Message, lie: str, only: str | None = None) -> Encoded | None:
    """The bytes of an answer, with a lie in every field that can hold it, or ``only`` in one; None where none can."""
    changes: dict[str, Any] = {}
    for spec in message.specs():
        value = getattr(message, spec.name)
        if value is None or only not in (None, spec.name) or not _can_lie(spec, value, lie):
            continue
        if spec.form == "plain":
            changes[spec.name] = _falsify(torch.tensor(value), lie).item()
        elif spec.form == "tensor":
            changes[spec.name] = _falsify(value, lie)
        elif spec.form == "tensors":
            other = "other." if lie == _SHAPES[1] else ""
            changes[spec.name] = {other + name: _falsify(tensor, lie) for name, tensor in value.items()}
        else:
            changes[spec.name] = [_falsify(tensor, lie) for tensor in value]
    return encode_unchecked(replace(cast("Any", message), **changes)) if changes else None


def encode_unchecked(message: Message) -> Encoded:
    """The bytes of a message whatever its fields hold: ``encode`` without the checks of an honest sender."""
    packer = Packer()

    def walk(value: Any) -> Any:
        if isinstance(value, Tensor):
            return packer.add(value, None, None)
        if isinstance(value, Mapping):
            return {name: walk(item) for name, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list | tuple) else value

    sizes: list[tuple[str, str, int]] = []
    body: dict[str, Any] = {}
    for spec in message.specs():
        before = packer.length
        body[spec.name] = walk(getattr(message, spec.name))
        sizes.append((spec.name, spec.kind, packer.length - before))
    name = message.wire_name()
    return Encoded(packer.finish([name, body, packer.length]), name, tuple(sizes))


def _can_lie(spec: FieldSpec, value: Any, lie: str) -> bool:
    if lie == EXAGGERATED and (spec.kind in APART or not spec.compared):
        return False
    if lie == _COUNTLESS and not spec.whole:
        return False
    if spec.form == "plain":
        return isinstance(value, float | int if lie == _COUNTLESS else float) and lie not in _SHAPES
    tensors = list(tensors_in(value))
    if lie == _COUNTLESS:
        return any(one.numel() for one in tensors)
    floats = [one for one in tensors if one.is_floating_point() and (one.numel() or lie in _SHAPES)]
    if lie == EXAGGERATED:
        return any(bool(one.any()) for one in floats)
    return bool(tensors if lie in _SHAPES else floats)


def _falsify(tensor: Tensor, lie: str) -> Tensor:
    """A tensor that holds a lie."""
    if lie == "another type":
        return tensor.to(torch.float32 if tensor.dtype is torch.float64 else torch.float64)
    if lie == "other names or shapes":
        return torch.cat([tensor, tensor[..., :1]], -1) if tensor.numel() and tensor.dim() else tensor.new_ones(7)
    if lie == _COUNTLESS:
        return tensor - 0.5 if tensor.is_floating_point() else -1 - tensor.abs()
    if not tensor.is_floating_point():
        return tensor
    if lie == EXAGGERATED:
        return 1e5 * tensor
    value = {"not a number": math.nan, "infinity": -math.inf, "too large": torch.finfo(tensor.dtype).max}[lie]
    return torch.full_like(tensor, value)


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def check_workers(method: Method, settings: Mapping[str, Any]) -> None:
    """Two worker processes give the numbers of one process, bit for bit."""
    _require_same(method, settings, {"workers": 2}, "with worker processes the numbers differ")


def check_offloading(method: Method, settings: Mapping[str, Any]) -> None:
    """Clients that are put away and made again between their calls give the numbers of clients that stay."""
    text = "with offloaded clients the numbers differ: state() lacks something"
    _require_same(method, settings, {"resident_clients": 1}, text)


def _require_same(method: Method, settings: Mapping[str, Any], otherwise: Mapping[str, Any], text: str) -> None:
    plain, other = (numbers(run(small_config(method, settings, run=how)).tree) for how in ({}, otherwise))
    _require(plain == other, method, text)


CHECKS: Sequence[Callable[[Method, Mapping[str, Any]], None]] = (
    check_registered,
    check_determinism,
    check_reduction,
    check_messages,
    check_partial_participation,
    check_resume,
    check_state,
    check_offloading,
    check_poor_clients,
    check_single_client,
    check_labels_stay,
    check_liars,
    check_exaggeration,
    check_idle_client,
    check_failing_client,
    check_lost_answers,
    check_late_client,
)


def assemble(
    method: Method,
    settings: Mapping[str, Any],
    *,
    hide: Callable[[Silo], Silo] | None = None,
    runtime: Callable[..., InProcess] = InProcess,
) -> tuple[Any, InProcess, Spy]:
    """A server and its clients, ready for set-up, with every message noted; ``hide`` changes the silos before."""
    config = small_config(method, settings)
    simulation = prepare(config, method)
    silos = [hide(silo) if hide else silo for silo in simulation.silos]
    own = {silo.client: silo for silo in silos}
    typed = config.method_config()
    federation = runtime(
        [silo.client for silo in silos],
        lambda client: method.client(
            ClientContext(
                client,
                own[client],
                typed,
                simulation.models[client],
                0,
                "cpu",
                common_model(simulation.models),
            )
        ),
        Ledger(),
    )
    server = method.server(ServerContext(typed, simulation.schema, simulation.models, 0, federation.clients))
    return server, federation, Spy(federation)


class Spy(Federation):
    """Watches another federation, and keeps every request and every reply that a server gets to see.

    Attributes:
        asked, summed: Names of the handlers whose single answers, and whose sums, the server had.
        messages: All of them, and the sums of replies that nobody sends as they are.
        sent: Without these.
    """

    def __init__(self, inner: Federation):
        self.inner, self.clients, self.ledger = inner, inner.clients, inner.ledger
        self.asked: set[str] = set()
        self.summed: set[str] = set()
        self.sent: list[Message] = []
        self.messages: list[Message] = []

    def exchange(self, *arguments: Any) -> Iterator[tuple[ClientId, Any, Mapping[str, Any]]]:
        return self.inner.exchange(*arguments)

    def note_failure(self, failure: Failure) -> None:
        self.inner.note_failure(failure)

    def ask(self, handler: Any, request: Any, **options: Any) -> Any:
        self.asked.add(handler.name)
        self._note(request)
        replies = super().ask(handler, request, **options)
        self._keep([reply for _, reply in replies])
        return replies

    def sum(self, handler: Any, request: Any, **options: Any) -> Any:
        self.summed.add(handler.name)
        self._note(request)
        total = super().sum(handler, request, **options)
        if total.message is not None:
            self.messages.append(total.message)
        return total

    def at(self, phase: Any, round: int) -> None:
        self.inner.at(phase, round)

    def _note(self, request: Any) -> None:
        self._keep([request] if isinstance(request, Message) else list(request.values()))

    def _keep(self, messages: Sequence[Message]) -> None:
        self.sent += messages
        self.messages += messages


def replies_of(method: Method) -> set[type[Message]]:
    """Every message type that the method's clients send."""
    return {step.types()[1] for step in handlers_of(method.client).values()}


def messages_of(method: Method) -> list[type[Message]]:
    """Every message type that the method's handlers receive or send."""
    return list(dict.fromkeys(kind for handler in handlers_of(method.client).values() for kind in handler.types()))


def needs_only_sums(method: Method, settings: Mapping[str, Any] | None = None) -> bool:
    """Whether the server never looked at a single answer, found by running two rounds on small data."""
    server, _, spy = assemble(method, settings or {})
    play(server, spy)
    return not spy.asked


def numbers(tree: Mapping[str, Any]) -> str:
    """A result without what may differ between equal runs: times, memory, environment."""

    def strip(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: strip(item) for key, item in value.items() if key not in COSTS}
        if isinstance(value, list):
            return [strip(item) for item in value]
        return value

    kept = {key: value for key, value in tree.items() if key in ("seeds", "summary", "references", "partition")}
    return json.dumps(strip(kept), sort_keys=True)


COSTS = frozenset(
    (
        "cpu_seconds",
        "server_cpu_seconds",
        "wall_seconds",
        "checkpoint_cpu_seconds",
        "checkpoint_wall_seconds",
        "peak_rss_bytes",
        "process",
    )
)
"""What of a result may differ between equal runs."""


def impoverish(silos: Sequence[Silo]) -> list[Silo]:
    """The same silos: the first with nothing to train on, the second with one class, the third without edges."""
    changed = list(silos)
    links = changed[0].links
    nothing = None if links is None else replace(links, train=links.train[:, :0])
    changed[0] = replace(changed[0], train=changed[0].train[:0], links=nothing)
    if len(changed) > 1:
        labels = changed[1].labels[changed[1].train]
        changed[1] = replace(changed[1], train=changed[1].train[labels == labels[0]] if len(labels) else labels)
    if len(changed) > 2:
        bare = _without_edges(changed[2].graph)
        first = replace(changed[2].seen, graph=bare)
        changed[2] = replace(changed[2], graph=bare, evaluations=(first, *changed[2].evaluations[1:]))
    return changed


def _without_edges(graph: Graph | GraphCollection) -> Graph | GraphCollection:
    if isinstance(graph, GraphCollection):
        return replace(graph, union=graph.union.with_edges(np.zeros((2, 0), dtype=np.int64)))
    return graph.with_edges(np.zeros((2, 0), dtype=np.int64))


def hide_labels(silo: Silo, *, validation: bool = True) -> Silo:
    """The same silo with the labels of everything outside its training (and its validation) items permuted; of links,
    with pairs that are linked taken for pairs that are not."""
    if silo.links is not None:
        links = silo.links
        links = replace(links, test=links.test_negative, test_negative=links.test)
        if validation:
            links = replace(links, val=links.val_negative, val_negative=links.val)
        return replace(silo, links=links)
    graph = silo.graph
    labels = graph.labels.copy()
    kept = silo.train if validation else np.concatenate([silo.train, silo.seen.items["val"]])
    hidden = np.setdiff1d(np.arange(len(labels)), kept)
    labels[hidden] = labels[np.roll(hidden, 1)]
    shuffled = replace(graph, labels=labels)
    evaluations = tuple(
        replace(evaluation, graph=shuffled) if evaluation.graph is graph else evaluation
        for evaluation in silo.evaluations
    )
    return replace(silo, graph=shuffled, evaluations=evaluations)


class _Stopped(Exception):
    pass


class _Stop(Observer):
    """Interrupts a run after a round."""

    def __init__(self, after: int):
        self.after = after

    def on_progress(self, progress: Progress) -> None:
        if progress.round == self.after:
            raise _Stopped


def _require(holds: bool, method: Method, text: str) -> None:
    if not holds:
        raise ConformanceError(f"{method.name}: {text}.")


def _require_finite(method: Method, tree: Mapping[str, Any]) -> None:
    for seed in tree["seeds"]:
        value = seed["test"].get(find_leading(seed["test"]))
        _require(value is not None and 0 <= value < float("inf"), method, f"the test score is {value}")


__all__ = [
    "CHECKS", "COSTS", "ConformanceError", "Spy", "Trial", "assemble", "check_method", "check_offloading",
    "check_settings", "check_workers", "handlers_of", "hide_labels", "messages_of", "needs_only_sums", "numbers",
    "play", "small_config", "traces", "variants",
]  # fmt: skip
