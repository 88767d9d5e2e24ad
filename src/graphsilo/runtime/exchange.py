"""What every runtime does with the messages of a federation: encode, note, check, decode, sum."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import FederationError, MessageError
from graphsilo.federation.codec import decode_known, encode
from graphsilo.federation.interface import Check, Failure, Federation, Handler, Reply, Request
from graphsilo.federation.kinds import LARGEST_WEIGHT
from graphsilo.federation.ledger import Ledger, Phase
from graphsilo.federation.message import Message, differing, shapes_of, tensors_in
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.machine import peak
from graphsilo.types import ClientId

_WEIGHT = "num_samples"


class Exchange(Federation):
    """A federation whose messages are encoded, noted and checked; how they travel is left to ``deliver``."""

    def __init__(self, clients: Sequence[ClientId], ledger: Ledger | None = None):
        self.clients = tuple(sorted(clients))
        self.ledger = ledger or Ledger()
        self.client_cpu_seconds = self.elsewhere_cpu_seconds = 0.0  # of clients' steps; of those in other processes
        self.participants: set[ClientId] = set()
        self.failures: list[Failure] = []
        # Between machines: how much a client can weigh at most, from what its silo said of itself.
        self.limits: Mapping[ClientId, float] = {}
        self.largest_value = LARGEST_WEIGHT

    @abstractmethod
    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        """Send each client its bytes and yield the answers in the order of clients."""

    @contextmanager
    def _client_works(self) -> Iterator[None]:
        """What is done in it, in this process, is a client's step."""
        started = time.process_time()
        yield
        self.client_cpu_seconds += time.process_time() - started

    def _client_worked(self, seconds: float) -> None:
        """Another process spent this on clients' steps."""
        self.client_cpu_seconds += seconds
        self.elsewhere_cpu_seconds += seconds

    def _check_counts(self, client: ClientId, message: Message) -> None:
        """Refuse a client that claims more items than its silo holds: it would outweigh everybody.

        Looked at are the weights, which are what a field of a sum is declared to be weighted by and, where a method
        weighs answers itself, what is called ``num_samples``; and every tensor of counts without a bound of its own.
        """
        limit = self.limits.get(client)
        if limit is None:
            return
        specs = message.specs()
        weights = {_WEIGHT, *(spec.weighted_by for spec in specs)}
        for spec in specs:
            value = getattr(message, spec.name)
            low = high = 0.0
            if spec.name in weights and isinstance(value, int | float):
                low = high = value
            elif isinstance(value, Tensor) and value.numel() and spec.kind == "counts" and spec.largest is None:
                low, high = (float(edge) for edge in torch.aminmax(value))
            if not 0 <= low <= high <= limit:
                claimed = low if low < 0 else high
                raise MessageError(
                    f"client {client} claims to stand for {claimed:g} items ({type(message).__name__}.{spec.name}); "
                    f"its silo said before round 1 that it holds {limit:g} at most."
                )

    def exchange(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None = None,
        check: Check[Reply] | None = None,
    ) -> Iterator[tuple[ClientId, Reply | Failure, Mapping[str, Any]]]:
        chosen = self.addressees(request, to)
        _, reply_type = handler.types()
        requests = dict.fromkeys(chosen, request) if isinstance(request, Message) else request
        encoded: dict[int, Encoded] = {}  # a broadcast is encoded once
        wanted: dict[int, dict[str, Any]] = {}
        for client in chosen:
            message = requests[client]
            if id(message) not in encoded:
                _check_request(message)
                encoded[id(message)] = encode(message)
                wanted[id(message)] = _expected(message, reply_type)
        outgoing = {client: encoded[id(requests[client])] for client in chosen}
        for client in chosen:
            self.ledger.record(client, "down", handler.name, outgoing[client])
        for client, reply in self.deliver(handler.name, self.ledger.round, outgoing):
            self.participants.add(client)
            if isinstance(reply, Failure):
                self.failures.append(reply)
                yield client, reply, {}
                continue
            self.ledger.record(client, "up", handler.name, reply)
            answer: Reply | Failure
            found: Mapping[str, Any] = {}
            try:
                answer, found = decode_known(reply.data, reply_type, largest_value=self.largest_value)
                answer.check()
                self._check_counts(client, answer)
                _check_shapes(reply_type, found, wanted[id(requests[client])])
                if client in self.limits:
                    answer.check_answer(requests[client])
                if check is not None:
                    check(client, answer)
            except MessageError as error:
                answer = self.unusable(client, handler, error)
            yield client, answer, found

    def note_failure(self, failure: Failure) -> None:
        self.failures.append(failure)

    def at(self, phase: Phase, round: int) -> None:
        super().at(phase, round)
        self.participants = set()
        self.failures = []

    # -- for the runner, not for methods -------------------------------------------------------------------------

    @abstractmethod
    def remember(self, clients: Collection[ClientId] | None = None) -> None:
        """Have clients keep a copy of their models; None asks everybody."""

    @abstractmethod
    def client_states(self) -> dict[ClientId, Any]:
        """Every client's state; a ``OffloadedState`` where it is in a file."""

    @abstractmethod
    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        """Put every client where it was."""

    @abstractmethod
    def finish(self, *, embeddings: bool, study: bool = False) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        """Each client's models worth keeping, its embeddings and its study, one client at a time; use them at once."""

    def peak_rss_bytes(self) -> int:
        """Most memory any process of the federation has used."""
        return peak()


def _check_request(request: Message) -> None:
    """Make sure that what is sent to clients is finite: else each of them would fail, and an honest one be named.

    Raises:
        FederationError: It is not.
    """
    for spec in request.specs():
        value = getattr(request, spec.name)
        if spec.allow_nan or value is None or spec.form == "plain":
            continue
        for tensor in tensors_in(value):
            if tensor.is_floating_point() and not math.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
                raise FederationError(
                    f"{type(request).__name__}.{spec.name}, which the server made of the clients' answers, contains "
                    f"NaN or infinity, although every answer by itself was one that can be taken. Lower the learning "
                    f"rate, that of the server's own steps too where it has one, or scale the features; "
                    f"run.largest_value says how large a client's weights may be."
                )


def _expected(request: Message, kind: type[Message]) -> dict[str, Any]:
    """Names and shapes of an answer's fields, as far as the request says them."""
    sent = {spec.name: spec.form for spec in request.specs() if spec.form != "plain"}
    fields = [
        (spec.name, spec.like or spec.name) for spec in kind.specs() if sent.get(spec.like or spec.name) == spec.form
    ]
    known = [(name, getattr(request, like)) for name, like in fields]
    return {name: shapes_of(value) for name, value in known if value is not None}


def _check_shapes(kind: type[Message], found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse an answer whose tensors are not those of the request's field of the same name."""
    for name, wanted in expected.items():
        mine = found[name]
        if mine is not None and mine != wanted:
            raise MessageError(
                f"{kind.__name__}.{name} has {differing(mine, wanted)}; what it was asked with has "
                f"{differing(wanted, mine)}. All clients must run the same model and settings; an answer that is "
                f"meant to hold other tensors than the request needs a field of another name."
            )


def bundled(
    asked: Sequence[ClientId], outgoing: Mapping[ClientId, Encoded]
) -> tuple[list[NDArray[np.uint8]], list[list[int]]]:
    """What goes to several clients at one place: each message once, however many it is for.

    Args:
        asked: The clients there.
        outgoing: What each client is sent; a broadcast is one object for all.

    Returns:
        The distinct messages, and for each client its number and the place of its message among them.
    """
    payloads: list[NDArray[np.uint8]] = []
    places: dict[int, int] = {}
    to = []
    for client in asked:
        encoded = outgoing[client]
        if id(encoded) not in places:
            places[id(encoded)] = len(payloads)
            payloads.append(encoded.data)
        to.append([client, places[id(encoded)]])
    return payloads, to
