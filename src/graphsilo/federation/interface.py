"""The only thing a server sees of its clients: ask them, or have their answers summed."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import torch
from torch import Tensor

from graphsilo.errors import FederationError, MessageError, one_line
from graphsilo.federation.accumulator import Accumulator, RowAccumulator
from graphsilo.federation.ledger import Ledger, Phase
from graphsilo.federation.message import Message
from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.federation.robust import Robust

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Check = Callable[[ClientId, Reply], None]
"""Raises ``MessageError`` where an answer cannot be used."""
_LONGEST_TEXT = 2000


class Handler(Generic[Request, Reply]):
    """A named step of a client, found by its name and typed by its request and reply.

    On the class it is what a server asks for (``federation.ask(Client.train, ...)``); on an instance it is the method.
    """

    def __init__(self, function: Callable[[Any, Request], Reply]):
        self.function = function
        self.name = function.__name__
        self._types: tuple[type[Request], type[Reply]] | None = None
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Handler[Request, Reply]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[[Request], Reply]: ...
    def __get__(self, instance: object | None, owner: type) -> Handler[Request, Reply] | Callable[[Request], Reply]:
        return self if instance is None else self.function.__get__(instance, owner)

    def types(self) -> tuple[type[Request], type[Reply]]:
        """Request and reply type, read once from the function's annotations.

        Raises:
            MessageError: The function is not annotated with message types.
        """
        if self._types is not None:
            return self._types
        signature = inspect.signature(self.function, eval_str=True)
        parameters = list(signature.parameters.values())
        kinds = [parameters[1].annotation if len(parameters) == 2 else None, signature.return_annotation]
        if not all(isinstance(kind, type) and issubclass(kind, Message) for kind in kinds):
            raise MessageError(
                f"handler '{self.name}' must be written as `def {self.name}(self, request: SomeMessage) -> "
                f"OtherMessage`; its signature is {signature}."
            )
        self._types = kinds[0], kinds[1]
        return self._types


def handler(function: Callable[[Any, Request], Reply]) -> Handler[Request, Reply]:
    """Mark a client's method as a step that a server may ask for."""
    return Handler(function)


def handlers_of(client: type) -> dict[str, Handler[Any, Any]]:
    """A client's steps by name."""
    parts = {name: getattr(client, name, None) for name in dir(client)}
    return {name: part for name, part in parts.items() if isinstance(part, Handler)}


def answers_of(client: type) -> dict[str, type[Message]]:
    """The type of every step's answer by the step's name, but for the base of all messages."""
    kinds = {name: step.types()[1] for name, step in handlers_of(client).items()}
    return {name: kind for name, kind in kinds.items() if kind is not Message}


STAYS_AT_THE_SILO = "what went wrong stands in the log at the silo"
"""The reason of a failure whose own words might quote the silo's data."""


@dataclass(frozen=True)
class Failure:
    """Why a client did not answer.

    Attributes:
        client: Who.
        handler: What it was asked.
        kind: Class name of the error at the client.
        reason: The error's text.
        trace: The client's traceback, for ``--debug``; stays in this process.
        peer: The other client whose part of a secure sum it refuses; None: there is none.
        follows: Whether it only follows from another client's, as no secure sum was opened then.
    """

    client: ClientId
    handler: str
    kind: str
    reason: str
    trace: str = ""
    peer: ClientId | None = None
    follows: bool = False

    def __str__(self) -> str:
        return f"client {self.client} failed in '{self.handler}' ({self.kind}: {self.reason})"


def suggest_fewer(wanted: int, minimum: int | None) -> str:
    """What else helps where so many had to answer, by ``method.min_clients``; one is the least that it can be."""
    if wanted <= 1:
        return ""
    return ", or allow fewer answers with method.min_clients" if minimum is None else ", or lower method.min_clients"


class _Answered:
    clients: tuple[ClientId, ...]
    failures: Mapping[ClientId, Failure]

    def _require(self, minimum: int | None) -> None:
        wanted = len(self.clients) + len(self.failures) if minimum is None else minimum
        if len(self.clients) < wanted:
            # Who only follows is not to blame, whatever its number.
            first = min(self.failures.values(), key=lambda failure: failure.follows, default=None)
            tail = f" First failure: {first}." if first else ""
            error = FederationError(
                f"{wanted} clients had to answer, {len(self.clients)} did.{tail} Mend that"
                f"{suggest_fewer(wanted, minimum)}."
            )
            if first and first.trace:
                error.add_note(f"\n{first.trace}")
            raise error


class _Single(_Answered):
    def require(self, minimum: int | None = None) -> Self:
        """Itself, if at least ``minimum`` clients answered (None: all that were asked).

        Raises:
            FederationError: Too few did; the text names the first failure.
        """
        self._require(minimum)
        return self


@dataclass(frozen=True)
class Replies(_Single, Generic[Reply]):
    """Answers sorted by client, with failures beside them."""

    answers: Mapping[ClientId, Reply]
    failures: Mapping[ClientId, Failure] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[ClientId, ...]:  # type: ignore[override]
        return tuple(self.answers)

    def __iter__(self) -> Iterator[tuple[ClientId, Reply]]:
        return iter(self.answers.items())

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, client: ClientId) -> Reply:
        return self.answers[client]


@dataclass(frozen=True)
class Total(_Answered, Generic[Reply]):
    """The sum of the clients' additive messages: all a server gets to see of them.

    Attributes:
        message: Each number and tensor summed (floats in float64); a field declared ``weighted_by`` is the sum of
            weight · value. None when nobody answered.
        clients: Who contributed.
        failures: Who did not, and why.
    """

    message: Reply | None
    clients: tuple[ClientId, ...]
    failures: Mapping[ClientId, Failure] = field(default_factory=dict)

    def require(self, minimum: int | None = None) -> Reply:
        """The sum, if at least ``minimum`` clients contributed (None: all that were asked).

        Raises:
            FederationError: Too few did; the text names the first failure.
        """
        self._require(max(1, minimum) if minimum is not None else None)
        if self.message is None:
            raise FederationError("nobody was asked: the sum of no messages has no shape.")
        return self.message


@dataclass(frozen=True)
class RowTotal(_Single):
    """Rows of all clients, added up by what they are called.

    Attributes:
        ids: [m] int64, ascending.
        rows: [m, d] float64 sums.
        clients: Who contributed.
        failures: Who did not, and why.
    """

    ids: Tensor
    rows: Tensor
    clients: tuple[ClientId, ...]
    failures: Mapping[ClientId, Failure] = field(default_factory=dict)

    def of(self, ids: Tensor) -> Tensor:
        """[k, d] float32 sums of these rows, in this order; zeros where nobody sent one."""
        place = torch.searchsorted(self.ids, ids).clamp_(max=max(len(self.ids) - 1, 0))
        if not len(self.ids):
            return self.rows.new_zeros(len(ids), self.rows.shape[1]).float()
        return torch.where((self.ids[place] == ids)[:, None], self.rows[place], 0.0).float()


class Federation(ABC):
    """What a server may do: ask, or have answers summed. Nothing else leads to a client.

    Attributes:
        clients: Ids of all clients, ascending.
        ledger: Where every byte is noted.
        robust: How averages are made; None: as plain ones.
        limits: How many items each silo elsewhere said that it holds.
    """

    clients: tuple[ClientId, ...]
    ledger: Ledger
    robust: Robust | None = None
    limits: Mapping[ClientId, float] = MappingProxyType({})

    @abstractmethod
    def exchange(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None = None,
        check: Check[Reply] | None = None,
    ) -> Iterator[tuple[ClientId, Reply | Failure, Mapping[str, Any]]]:
        """Who answered what, by client, and the names and shapes of the answer's tensors; for runtimes to say."""

    @abstractmethod
    def note_failure(self, failure: Failure) -> None:
        """An answer that could be read cannot be used."""

    def ask(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        *,
        to: Sequence[ClientId] | None = None,
        check: Check[Reply] | None = None,
    ) -> Replies[Reply]:
        """Send a request and collect the answers.

        An answer's field that the request has, too, must hold tensors of the same names and shapes: a client that
        sends others has failed.

        Args:
            handler: The client's step, e.g. ``Client.train``.
            request: One message for all, or one per client.
            to: Whom to ask; None means everyone (or the keys of ``request``).
            check: Looks at each answer and raises ``MessageError`` where it cannot be used: its client has failed.
        """
        self.allow_single(handler)
        answers: dict[ClientId, Reply] = {}
        failures: dict[ClientId, Failure] = {}
        for client, reply, _ in self.exchange(handler, request, to, check):
            if isinstance(reply, Failure):
                failures[client] = reply
            else:
                answers[client] = reply
        return Replies(answers, failures)

    def sum(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        *,
        to: Sequence[ClientId] | None = None,
    ) -> Total[Reply]:
        """Send a request and receive only the sum of the answers.

        Fields that the request has, too, are compared with it as by ``ask``. Beyond that the answers that are summed
        are those with the names and shapes that most have; the others have failed, all of them where none is in the
        majority. Averages among them are made by ``robust``.
        """
        kind = handler.types()[1]
        total = Accumulator(kind, None if self.robust is None else self.robust.rule(kind, request))
        failures = self._add(total.add, handler, request, to)
        for client, text in total.find_outvoted().items():
            failures[client] = self.note_unusable(client, handler, MessageError(text))
        return Total(total.message(), tuple(total.clients), dict(sorted(failures.items())))

    def sum_rows(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        *,
        width: int,
        to: Sequence[ClientId] | None = None,
    ) -> RowTotal:
        """Send a request and receive only the sums of the answers' rows: those with the same id are added.

        Each answer is added as it comes, so that memory holds the sums and one answer.

        Args:
            handler: The client's step; its answer has the fields ``ids`` [n] int64, ascending, and ``rows`` [n, d] of
                floats.
            request, to: As for ``ask``.
            width: d. An answer with other rows is none.
        """
        self.allow_single(handler)
        total = RowAccumulator(width)
        failures = self._add(total.add, handler, request, to)
        return RowTotal(*total.sums(), tuple(total.clients), failures)

    def _add(
        self,
        add: Callable[[ClientId, Reply, Mapping[str, Any]], None],
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        to: Sequence[ClientId] | None,
    ) -> dict[ClientId, Failure]:
        """Add each answer as it comes; those that could not be."""
        failures: dict[ClientId, Failure] = {}
        for client, reply, shapes in self.exchange(handler, request, to):
            if not isinstance(reply, Failure):
                try:
                    add(client, reply, shapes)
                except MessageError as error:
                    reply = self.note_unusable(client, handler, error)
            if isinstance(reply, Failure):
                failures[client] = reply
        return failures

    def note_unusable(self, client: ClientId, handler: Handler[Any, Any], error: MessageError) -> Failure:
        """An answer that cannot be taken, as a failure of who sent it."""
        # Names of tensors come from who sent them: no line of a log or a terminal may be made of these.
        failure = Failure(client, handler.name, type(error).__name__, one_line(error, _LONGEST_TEXT))
        self.note_failure(failure)
        return failure

    def allow_single(self, handler: Handler[Any, Any]) -> None:  # noqa: B027
        """Each client's own answer to a step is about to be seen; a runtime that shows sums alone refuses.

        Raises:
            UnsupportedError: It does.
        """

    def at(self, phase: Phase, round: int) -> None:
        """Say which phase and round the next calls belong to."""
        self.ledger.at(phase, round)

    def addressees(
        self, request: Message | Mapping[ClientId, Message], to: Sequence[ClientId] | None
    ) -> tuple[ClientId, ...]:
        """Who is asked, ascending.

        Raises:
            FederationError: Somebody is asked who does not take part, or for whom there is no request.
        """
        everyone = self.clients if isinstance(request, Message) else tuple(request)
        chosen = tuple(sorted(everyone if to is None else set(to)))
        strangers = () if chosen == self.clients else sorted(set(chosen).difference(self.clients))
        if strangers:
            raise FederationError(f"client {strangers[0]} takes no part; there are {len(self.clients)} clients.")
        if not isinstance(request, Message):
            missing = [client for client in chosen if client not in request]
            if missing:
                raise FederationError(f"there is no request for client {missing[0]}.")
        return chosen
