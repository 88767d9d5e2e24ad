"""What every runtime does with the messages of a federation: encode, note, check, decode, sum."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from graphsilo.errors import FederationError, MessageError, UnsupportedError, one_line
from graphsilo.federation.codec import decode_known, encode
from graphsilo.federation.compression import UNCOMPRESSED, Compression
from graphsilo.federation.interface import Check, Failure, Federation, Handler, Reply, Request, Total
from graphsilo.federation.kinds import LARGEST_RATIO, LARGEST_WEIGHT
from graphsilo.federation.ledger import Ledger, Phase
from graphsilo.federation.message import (
    FieldSpec,
    Message,
    check_shapes,
    expected_shapes,
    message_shapes,
    numbers_in,
    tensors_in,
)
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.hosted import NOBODY, Reported
from graphsilo.runtime.machine import peak
from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.runtime.secure import SecureSums

_WEIGHT = "num_samples"


class Witness(Protocol):
    """Sees what the coordinator sees, and changes nothing: for studies of what that says of a silo."""

    def on_answer(self, client: ClientId, handler: Handler[Any, Any], request: Message, answer: Message) -> None:
        """A client answered in plain."""

    def on_sum(
        self, handler: Handler[Any, Any], request: Message | Mapping[ClientId, Message], total: Total[Any]
    ) -> None:
        """A secure sum was opened; single answers were not seen."""


class Exchange(Federation):
    """A federation whose messages are encoded, noted and checked; how they travel is left to ``deliver``."""

    def __init__(self, clients: Sequence[ClientId], ledger: Ledger | None = None):
        self.clients = tuple(sorted(clients))
        self.ledger = ledger or Ledger()
        self.client_cpu_seconds = self.elsewhere_cpu_seconds = 0.0  # of clients' steps; of those in other processes
        self.spent: dict[ClientId, float] = {}  # the same of each client, since ``at`` was last called
        self._answered: set[ClientId] = set()
        self._sent: set[ClientId] = set()
        self.turn = 0  # number of the newest step
        # By client the first step since its last counted answer: what it changed from then on it takes back when asked.
        self.uncounted: dict[ClientId, int] = {}
        self.back: Mapping[ClientId, int] = {}  # the same of clients that are asked now, as it was before
        self.failures: list[Failure] = []
        self.idle: list[str] = []  # whose answers held nothing of their own (``outliers.find_idle``)
        # Between machines: how much a client can weigh at most, from what its silo said of itself.
        self.limits: Mapping[ClientId, float] = {}
        self.degrees: Mapping[ClientId, float] = {}
        self._steady: dict[ClientId, dict[str, float]] = {}  # what each said in fields that are ``steady``
        self.largest_value, self.largest_ratio = LARGEST_WEIGHT, LARGEST_RATIO
        self.compression: Compression = UNCOMPRESSED
        self.secure: SecureSums | None = None
        self.run = ""  # what silos at other machines know the run by
        self.witness: Witness | None = None

    @abstractmethod
    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        """Send each client its bytes and yield the answers in the order of clients."""

    @contextmanager
    def _time_client(self, client: ClientId) -> Iterator[None]:
        """What is done in it, in this process, is a client's step."""
        started = time.process_time()
        yield
        self._note_spent(client, time.process_time() - started)

    def _note_elsewhere(self, client: ClientId, seconds: float) -> None:
        """Another process spent this on a client's step."""
        self._note_spent(client, seconds)
        self.elsewhere_cpu_seconds += seconds

    def _note_spent(self, client: ClientId, seconds: float) -> None:
        self.client_cpu_seconds += seconds
        self.spent[client] = self.spent.get(client, 0.0) + seconds

    def _check_counts(self, client: ClientId, message: Message) -> None:
        """Refuse counts that count nothing, and a client that claims more items than its silo holds: it would outweigh
        everybody.

        Held against the silo are the weights, which are what a field of a sum is declared to be weighted by and, where
        a method weighs answers itself, what is called ``num_samples``; and every tensor of counts without a bound of
        its own.
        """
        if client in self.limits:
            limit, specs = self.limits[client], message.specs()
            weights = {_WEIGHT, *(spec.weighted_by for spec in specs)}
            looked_at = [spec for spec in specs if spec.form == "tensor" or spec.name in weights]
            if found := find_strange_count(message, looked_at, limit):
                raise MessageError(
                    f"client {client} claims to stand for {found}; its silo said before round 1 that it holds "
                    f"{limit:g} at most."
                )
        check_whole(message)

    def _check_steady(self, client: ClientId, message: Message) -> None:
        """Refuse a number that the client has said otherwise before."""
        said = self._steady.setdefault(client, {})
        for spec in message.specs():
            value, known = getattr(message, spec.name), [said[name] for name in spec.steady if name in said]
            if known and value not in known:
                raise MessageError(
                    f"{type(message).__name__}.{spec.name} is {value:g}, and before the client said {known[0]:g}: it "
                    f"counts the same in all of a run. Its data changed meanwhile, or it is not honest."
                )
            if len(spec.steady) == 1:
                said[spec.steady[0]] = value

    def exchange(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None = None,
        check: Check[Reply] | None = None,
    ) -> Iterator[tuple[ClientId, Reply | Failure, Mapping[str, Any]]]:
        """Answers of silos at other machines are held against each other before any is handed on; in one process,
        where nobody lies, each is handed on as it comes."""
        taken = self._decode_answers(handler, request, to, check)
        if not self.limits:
            yield from taken
            return
        from graphsilo.federation.outliers import find_idle, outliers

        each = list(taken)
        failed = [answer for _, answer, _ in each if isinstance(answer, Failure)]
        wrong = [failure.reason for failure in failed if failure.kind == MessageError.__name__]
        if 2 * len(wrong) > len(each) > 1:
            raise FederationError(
                f"{len(wrong)} of {len(each)} silos have no answer to '{handler.name}' that can be used ({wrong[0]}). "
                f"What they were sent may be at fault, and with it any silo that had a share in it: nobody is named. A "
                f"lower learning rate or scaled features help where numbers have grown too large."
            )
        answers = {client: answer for client, answer, _ in each if not isinstance(answer, Failure)}
        strange = outliers(answers, self.limits, self.largest_ratio)
        asked = dict.fromkeys(answers, request) if isinstance(request, Message) else request
        own = {client: answer for client, answer in answers.items() if client not in strange}
        self.idle += [f"client {client} in '{handler.name}' ({text})" for client, text in find_idle(own, asked).items()]
        for client, answer, found in each:
            if client in strange:
                reason = (
                    f"{strange[client]}: more than {self.largest_ratio:g} times as much, its size taken into account, "
                    f"is not taken (run.largest_ratio). Its features or labels may be on another scale than the "
                    f"others', its training may have diverged, or it is not honest."
                )
                yield client, self.note_unusable(client, handler, MessageError(reason)), {}
            else:
                yield client, answer, found

    def _decode_answers(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None,
        check: Check[Reply] | None,
    ) -> Iterator[tuple[ClientId, Reply | Failure, Mapping[str, Any]]]:
        """Each answer, decoded and checked by itself."""
        request_type, reply_type = handler.types()
        carrier = self.compression.find_carrier(request_type, reply_type)
        outgoing, requests = self.prepare(handler, request, to)
        wanted: dict[int, dict[str, Any]] = {}
        for client, encoded in outgoing.items():
            if id(requests[client]) not in wanted:
                wanted[id(requests[client])] = expected_shapes(requests[client], reply_type)
            self.ledger.record(client, "down", handler.name, encoded)
        for client, reply in self.deliver(handler.name, self.ledger.round, outgoing):
            if isinstance(reply, Failure):
                self.note_failure(reply)
                yield client, reply, {}
                continue
            self.ledger.record(client, "up", handler.name, reply)
            answer: Reply | Failure
            found: Mapping[str, Any] = {}
            try:
                with refuse_malformed(reply_type) if client in self.limits else nullcontext():
                    came, found = decode_known(reply.data, carrier, largest_value=self.largest_value)
                    if isinstance(came, reply_type):
                        answer = came
                    else:
                        answer = self.compression.restore(came, requests[client], reply_type, self.largest_value)
                        found = message_shapes(answer)
                    answer.check()
                    self._check_counts(client, answer)
                    check_shapes(reply_type, found, wanted[id(requests[client])])
                    if client in self.limits:
                        asked, degrees = requests[client], self.degrees.get(client, math.inf)
                        answer.check_answer(asked)
                        answer.check_size(asked, self.limits[client], degrees)
                        self._check_steady(client, answer)  # what is not taken is no word to hold a client to
                    if check is not None:
                        check(client, answer)
                if self.witness is not None:
                    self.witness.on_answer(client, handler, requests[client], answer)
                self.note_answer(client, reply_type)
            except MessageError as error:
                answer = self.note_unusable(client, handler, error)
            yield client, answer, found

    def prepare(
        self,
        handler: Handler[Request, Any],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None,
    ) -> tuple[dict[ClientId, Encoded], Mapping[ClientId, Request]]:
        """What each client is sent, as bytes and as a message; a broadcast is encoded once. A step begins, of which no
        answer is counted yet."""
        chosen = self.addressees(request, to)
        self.turn += 1
        self.back = {client: self.uncounted[client] for client in chosen if client in self.uncounted}
        for client in chosen:
            self.uncounted.setdefault(client, self.turn)
        requests = dict.fromkeys(chosen, request) if isinstance(request, Message) else request
        encoded: dict[int, Encoded] = {}
        for client in chosen:
            message = requests[client]
            if id(message) not in encoded:
                _check_request(message)
                encoded[id(message)] = encode(message)
        return {client: encoded[id(requests[client])] for client in chosen}, requests

    # -- secure sums ----------------------------------------------------------------------------------------------

    def sum(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        *,
        to: Sequence[ClientId] | None = None,
    ) -> Total[Reply]:
        if self.secure is None or not handler.types()[1].specs():  # of nothing there is nothing to hide
            return super().sum(handler, request, to=to)
        total = self.secure.sum(self, handler, request, to)
        if self.witness is not None:
            self.witness.on_sum(handler, request, total)
        return total

    def allow_single(self, handler: Handler[Any, Any]) -> None:
        if self.secure is not None and handler.name not in self.secure.singles and handler.types()[1].specs():
            raise UnsupportedError(
                f"'{handler.name}' asks for each client's own answer, and with run.secure_sums only sums are seen. "
                f"Choose a method that needs sums alone (docs/privacy.md lists them), or run.secure_sums=off."
            )

    def note_failure(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.uncounted.setdefault(failure.client, self.turn)
        self._answered.discard(failure.client)
        self._sent.discard(failure.client)

    def note_answer(self, client: ClientId, kind: type[Message]) -> None:
        """A client's answer was one that could be taken."""
        self.uncounted.pop(client, None)
        (self._sent if kind.specs() else self._answered).add(client)

    @property
    def participants(self) -> set[ClientId]:
        """Who sent something since ``at`` was last called; where nobody has anything to send, who answered."""
        return self._sent or self._answered

    def at(self, phase: Phase, round: int) -> None:
        super().at(phase, round)
        self._answered, self._sent = set(), set()
        self.failures, self.idle = [], []
        self.spent = {}

    # -- for the runner, not for methods -------------------------------------------------------------------------

    @abstractmethod
    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        """Have clients keep a copy of their models of a view; None asks everybody."""

    @abstractmethod
    def client_states(self) -> dict[ClientId, Any]:
        """Every client's state; a ``OffloadedState`` where it is in a file."""

    @abstractmethod
    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        """Put every client where it was."""

    @abstractmethod
    def finish(
        self, *, embeddings: bool, study: bool = False, reported: Mapping[ClientId, Reported] = NOBODY
    ) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        """Each client's models worth keeping, its embeddings and its study, one client at a time; use them at once.

        Of clients in ``reported`` also what the model that the run reports answers on their test items.
        """

    def peak_rss_bytes(self) -> int:
        """Most memory any process of the federation has used."""
        return peak()


@contextmanager
def refuse_malformed(kind: type[Message]) -> Iterator[None]:
    """Nothing that stands in an answer from elsewhere ends a run in the middle of looking at it.

    Raises:
        MessageError: It was of shapes or numbers that nobody who wrote a check thought of.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise MessageError(
            f"{kind.__name__} is none that could be looked at ({type(error).__name__}: {one_line(error, 300)})"
        ) from error


def check_whole(message: Message) -> None:
    """Refuse numbers that count nothing: below 0, -0.0, not whole.

    Raises:
        MessageError: A field holds one.
    """
    for spec in message.specs():
        for numbers in numbers_in(getattr(message, spec.name)) if spec.whole else ():
            wrong = torch.signbit(numbers)
            if numbers.is_floating_point():
                wrong |= numbers != numbers.floor()
            if wrong.any():
                raise MessageError(
                    f"{type(message).__name__}.{spec.name} holds {float(numbers[wrong].flatten()[0]):g}, and counts "
                    f"are whole numbers from 0 on."
                )


def find_strange_count(message: Message, specs: Sequence[FieldSpec], limit: float) -> str:
    """Which of some fields counts fewer than none or more than ``limit``, and how many; empty: none does.

    A plain count, a tensor of counts without a bound of its own, and whole numbers among several tensors.
    """
    for spec in specs:
        value = getattr(message, spec.name)
        counts = spec.kind == "counts" or spec.name == _WEIGHT
        edges: list[float] = []
        if isinstance(value, int | float) and counts:
            edges = [value]
        elif value is not None and spec.form != "plain" and counts and spec.largest is None:
            some = (one for one in tensors_in(value) if one.numel())
            some = (one for one in some if spec.form == "tensor" or not one.is_floating_point())
            edges = [float(edge) for one in some for edge in torch.aminmax(one)]
        if edges and not 0 <= min(edges) <= max(edges) <= limit:
            claimed = min(edges) if min(edges) < 0 else max(edges)
            return f"{claimed:g} items ({type(message).__name__}.{spec.name})"
    return ""


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


def bundle(
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
