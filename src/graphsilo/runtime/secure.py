"""The coordinator's side of secure sums, over any runtime: steps travel as calls do, by ``deliver``.

A step is a call of its own name, so that every runtime carries it as it carries the calls of methods. The first one is
the method's own, which makes the answer (``secure call NAME``); the client keeps that and offers it. Then come four
short exchanges. What a client is asked is decided by ``federation.secure``; here it is sent, noted and collected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from graphsilo.errors import DisclosureError, FederationError, GraphsiloError, MessageError, one_line
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import Failure, Handler, Reply, Request, Total
from graphsilo.federation.message import Message, tensors_in
from graphsilo.federation.secure import AGAIN, CALL, CONFIRM, MASK, MIN_PARTIES, OPEN, SHARE
from graphsilo.federation.secure.coordinator import SecureSum, SecureSumFailed
from graphsilo.federation.secure.fixed import LARGEST_WEIGHTED
from graphsilo.federation.secure.messages import Again, Confirmation, Letters, Masked, Offer, Opening
from graphsilo.federation.secure.party import Directory, Purpose, Unproved
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.exchange import Exchange, check_whole, find_strange_count, refuse_malformed
from graphsilo.types import ClientId

Answer = TypeVar("Answer", bound=Message)

_ROUNDING = 1e-6
"""Of a sum, beside what is added up."""


class SecureSums:
    """Sums of which this coordinator sees nothing else.

    Args:
        seed, run: Of the calls.
        directory: Who is who.
        singles: Steps whose single answers may be asked for all the same.
        minimum: With how many answers the run goes on; None: with all. A sum of fewer is not opened, as silos keep to
            those with whom they opened one.
    """

    def __init__(
        self, seed: int, run: str = "", directory: Directory | None = None, singles: Collection[str] = ("evaluate",),
        minimum: int | None = 1,
    ):  # fmt: skip
        self.singles, self.minimum = frozenset(singles), minimum
        self.seed, self.run = seed, run
        self.directory = directory or Unproved()

    def sum(
        self,
        exchange: Exchange,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None,
    ) -> Total[Reply]:
        """The sum of the answers of those who had one, or of nobody's.

        A client that drops out before its masked answer has come has failed, and the others' sum is opened without it.
        Where too few are left the sum is begun again with fresh keys and the answers that clients have: nobody trains
        again. If it cannot be opened at all, all have failed.

        Raises:
            FederationError: The sum cannot be one of answers, or most clients cannot answer what was made of sums
                before: whose fault that is nobody knows.
        """
        outgoing, _ = exchange.prepare(handler, request, to)
        kind = handler.types()[1]
        purpose = Purpose(self.run, self.seed, exchange.ledger.round, handler.name)
        failures: dict[ClientId, Failure] = {}
        offers: dict[ClientId, Offer] = {}
        for client, offer in self.answers(exchange, handler, CALL + handler.name, outgoing, Offer):
            _keep(client, offer, offers, failures)
        wrong = [failure.reason for failure in failures.values() if failure.kind == MessageError.__name__]
        if 2 * len(wrong) > len(outgoing):  # an honest client would be named for what it was sent
            text = f"{len(wrong)} of {len(outgoing)} silos have no answer ({wrong[0]})"
            raise impossible_total(handler, len(outgoing), MessageError(text))
        wanted = max(MIN_PARTIES, len(outgoing) if self.minimum is None else self.minimum)
        total: Reply | None = None
        counted: tuple[ClientId, ...] = ()
        while True:  # each time with fewer
            one = Attempt(self, exchange, handler, offers, failures, wanted)
            try:
                total = one.open(kind, purpose)
                counted = one.counted
                break
            except MessageError as error:
                raise impossible_total(handler, len(offers), error) from None
            except SecureSumFailed as error:
                left = {client: offer for client, offer in offers.items() if client not in failures}
                if one.opening or len(left) == len(offers) or len(left) < wanted:
                    first = next((str(failure) for failure in failures.values()), "")
                    text = f"{error} First failure: {first}." if first else str(error)
                    for client in left:
                        name = type(error).__name__
                        failures[client] = Failure(client, handler.name, name, text, follows=bool(first))
                    break
                again = dict.fromkeys(left, encode(Again()))
                offers = {}
                for client, offer in self.answers(exchange, handler, AGAIN, again, Offer):
                    _keep(client, offer, offers, failures)
        for failure in failures.values():
            exchange.note_failure(failure)
        for client in counted:
            exchange.note_answer(client, kind)
        failures = {client: failure for client, failure in failures.items() if client not in counted}
        if total is not None:
            asked = request if isinstance(request, Message) else next(iter(request.values()))
            _check_total(exchange, handler, asked, total, counted)
        return Total(total, counted, _put_in_order(failures))

    def answers(
        self,
        exchange: Exchange,
        handler: Handler[Any, Any],
        step: str,
        outgoing: Mapping[ClientId, Encoded],
        kind: type[Answer],
    ) -> Iterator[tuple[ClientId, Answer | Failure]]:
        """Send one step, and read what comes back."""
        for client, encoded in outgoing.items():
            exchange.ledger.record(client, "down", handler.name, encoded)
        for client, answer in exchange.deliver(step, exchange.ledger.round, outgoing):
            if isinstance(answer, Failure):
                yield client, replace(answer, handler=handler.name)
                continue
            exchange.ledger.record(client, "up", handler.name, answer)
            try:
                yield client, decode(answer.data, kind)
            except MessageError as error:
                yield client, _failure(client, handler, error)


@dataclass
class Attempt:
    """One try to open a sum.

    Attributes:
        wanted: Of how many at least.
        opening: Whether somebody was asked to open it: from then on no other sum of the same answers can be.
        counted: Whose answers are in the sum, once it is opened.
    """

    sums: SecureSums
    exchange: Exchange
    handler: Handler[Any, Any]
    offers: Mapping[ClientId, Offer]
    failures: dict[ClientId, Failure]
    wanted: int = MIN_PARTIES
    opening: bool = False
    counted: tuple[ClientId, ...] = ()

    def open(self, kind: type[Reply], purpose: Purpose) -> Reply:
        """The sum.

        Raises:
            SecureSumFailed: It could not be opened.
        """
        made: SecureSum[Reply] = SecureSum(kind, purpose, self.offers, self.sums.directory, self.wanted)
        for client, text in made.unlike.items():
            self.failures[client] = _failure(client, self.handler, MessageError(text))
        made.require()
        self._step(SHARE, dict.fromkeys(made.clients, made.roster()), Letters, made.take_letters)
        self._settle(made.clients)
        self._step(MASK, made.make_posts(), Masked, made.add)
        self._settle(made.clients)
        came = made.close_answers()
        self._step(CONFIRM, dict.fromkeys(came.clients, came), Confirmation, made.confirm)
        confirmed = made.close_confirmations()
        self.opening = True
        self._step(OPEN, dict.fromkeys(made.confirming, confirmed), Opening, made.take_opening)
        total = made.result()
        self.counted = tuple(came.clients)
        return total

    def _step(
        self,
        step: str,
        messages: Mapping[ClientId, Message],
        kind: type[Answer],
        take: Callable[[ClientId, Answer], None],
    ) -> None:
        """Send each client its message, and take the answers as they come; who has none has failed."""
        encoded = {id(message): encode(message) for message in {id(one): one for one in messages.values()}.values()}
        outgoing = {client: encoded[id(message)] for client, message in messages.items()}
        for client, answer in self.sums.answers(self.exchange, self.handler, step, outgoing, kind):
            failed = answer if isinstance(answer, Failure) else None
            if not isinstance(answer, Failure):
                try:
                    take(client, answer)
                except GraphsiloError as error:
                    failed = _failure(client, self.handler, error)
            if failed is not None:
                self.failures[client] = failed

    def _settle(self, clients: Collection[ClientId]) -> None:
        """Where clients refuse what others sent, leave out who is at fault, or may be.

        Whom half of all or more contradict is at fault, where fewer than half lie, and is left out first. Of any other
        two nobody can say which is right: both are left out, and what else was said of them or by them counts no more.
        So with each honest one that is left out goes one that lies, whatever that one says, or gives reason to say.

        Raises:
            SecureSumFailed: Somebody was.
        """
        said: dict[ClientId, tuple[ClientId, str]] = {}
        for client in clients:
            failure = self.failures.get(client)
            peer = None if failure is None else failure.peer
            if failure is not None and peer is not None and peer in clients and peer != client:
                said[client] = peer, failure.reason.rstrip(".")
                del self.failures[client]
        if not said:
            return
        pairs = {frozenset((client, peer)) for client, (peer, _) in said.items()}
        times = Counter(client for pair in pairs for client in pair)
        out: dict[ClientId, str] = {}
        for peer, reason in said.values():
            if 2 * times[peer] >= len(clients):
                out.setdefault(peer, f"{times[peer]} of {len(clients)} silos contradict it: {reason}.")
        for client, (peer, reason) in () if out else said.items():
            if client not in out and peer not in out:
                text = (
                    f"clients {client} and {peer} contradict each other, and nobody can say which is right: {reason}."
                )
                out |= {client: text, peer: text}
        self.failures |= {client: _failure(client, self.handler, MessageError(text)) for client, text in out.items()}
        raise SecureSumFailed("silos contradict each other, and nothing of the sum was opened.")


def _check_total(
    exchange: Exchange, handler: Handler[Any, Any], request: Message, message: Message, clients: Sequence[ClientId]
) -> None:
    """Refuse a secure sum that cannot be one: nobody saw the answers, and nobody knows whose fault it is.

    Raises:
        FederationError: It cannot be.
    """
    count = len(clients)
    limit = sum(exchange.limits.get(client, math.inf) for client in clients)
    try:
        if found := find_strange_count(message, message.specs(), limit):
            held = f"; {count} silos said before round 1 that they hold {limit:g} at most" if limit < math.inf else ""
            raise MessageError(f"it stands for {found}{held}.")
        check_whole(message)
        _check_means(message)
        with refuse_malformed(type(message)):
            message.check_total(request, count)
            message.check_size(request, limit, sum(exchange.degrees.get(client, math.inf) for client in clients))
    except MessageError as error:
        raise impossible_total(handler, count, error) from None


def _check_means(message: Message) -> None:
    """Refuse sums of weighted numbers that are larger than what each client holds its own against.

    Raises:
        MessageError: They are.
    """
    for spec in message.specs():
        if spec.weighted_by is None:
            continue
        weight = float(getattr(message, spec.weighted_by))
        some = [torch.aminmax(tensor) for tensor in tensors_in(getattr(message, spec.name)) if tensor.numel()]
        size = max((max(-float(low), float(high)) for low, high in some), default=0.0)
        if size > LARGEST_WEIGHTED * weight * (1 + _ROUNDING) + _ROUNDING:
            raise MessageError(
                f"{type(message).__name__}.{spec.name} comes to {size:.3g} with weights of {weight:g} in all, and none "
                f"of its numbers may be larger than {LARGEST_WEIGHTED:g}."
            )


def impossible_total(handler: Handler[Any, Any], clients: int, error: MessageError) -> FederationError:
    """What to say of a sum that no answers come to, where nobody has seen the answers."""
    return FederationError(
        f"what {clients} silos sent in '{handler.name}', or in a step before it, cannot be: {str(error).rstrip('.')}. "
        f"Some silo, or what it holds, is at fault, and secure sums hide which: nobody is named. With "
        f"run.secure_sums=false every answer is looked at by itself; a lower learning rate or scaled features help "
        f"where numbers have grown too large."
    )


def _put_in_order(failures: dict[ClientId, Failure]) -> dict[ClientId, Failure]:
    """By client, but those first for whom others refused a sum, with what these said."""
    refused = {client: each for client, each in failures.items() if each.kind == DisclosureError.__name__}
    first = next((client for client in failures if client not in refused), None)
    if refused and first is not None:
        said = next(iter(refused.values())).reason
        mine = failures[first]
        failures[first] = replace(mine, reason=f"{mine.reason.rstrip('.')}; others refuse a sum without it: {said}")
    return {client: failures[client] for client in sorted(failures, key=lambda client: (client in refused, client))}


def _failure(client: ClientId, handler: Handler[Any, Any], error: GraphsiloError) -> Failure:
    return Failure(client, handler.name, type(error).__name__, one_line(error, 2000))


def _keep(
    client: ClientId, offer: Offer | Failure, offers: dict[ClientId, Offer], failures: dict[ClientId, Failure]
) -> None:
    if isinstance(offer, Failure):
        failures[client] = offer
    else:
        offers[client] = offer
