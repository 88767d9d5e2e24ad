"""The only thing a server sees of its clients: ask them, or have their answers summed."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from graphsilo.errors import FederationError, MessageError
from graphsilo.federation.codec import aligned_bytes
from graphsilo.federation.ledger import Ledger, Phase
from graphsilo.federation.message import FieldSpec, Message
from graphsilo.types import ClientId

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


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

    def types_cached(self) -> tuple[type[Request], type[Reply]]:
        """Request and reply type, read once."""
        if self._types is None:
            self._types = self.types()
        return self._types

    def types(self) -> tuple[type[Request], type[Reply]]:
        """Request and reply type, read from the function's annotations.

        Raises:
            MessageError: The function is not annotated with message types.
        """
        signature = inspect.signature(self.function, eval_str=True)
        parameters = list(signature.parameters.values())
        kinds = [parameters[1].annotation if len(parameters) == 2 else None, signature.return_annotation]
        if not all(isinstance(kind, type) and issubclass(kind, Message) for kind in kinds):
            raise MessageError(
                f"handler '{self.name}' must be written as `def {self.name}(self, request: SomeMessage) -> "
                f"OtherMessage`; its signature is {signature}."
            )
        return kinds[0], kinds[1]


def handler(function: Callable[[Any, Request], Reply]) -> Handler[Request, Reply]:
    """Mark a client's method as a step that a server may ask for."""
    return Handler(function)


@dataclass(frozen=True)
class Failure:
    """Why a client did not answer.

    Attributes:
        client: Who.
        handler: What it was asked.
        kind: Class name of the error at the client.
        reason: The error's text.
        trace: The client's traceback, for ``--debug``; stays in this process.
    """

    client: ClientId
    handler: str
    kind: str
    reason: str
    trace: str = ""

    def __str__(self) -> str:
        return f"client {self.client} failed in '{self.handler}' ({self.kind}: {self.reason})"


class _Answered:
    clients: tuple[ClientId, ...]
    failures: Mapping[ClientId, Failure]

    def _require(self, minimum: int | None) -> None:
        wanted = len(self.clients) + len(self.failures) if minimum is None else minimum
        if len(self.clients) < wanted:
            first = next(iter(self.failures.values()), None)
            tail = f" First failure: {first}." if first else ""
            trace = f"\n{first.trace}" if first and first.trace else ""
            error = FederationError(
                f"{wanted} clients had to answer, {len(self.clients)} did.{tail} Mend the client, or allow fewer "
                f"answers with method.min_clients."
            )
            if trace:
                error.add_note(trace)
            raise error


@dataclass(frozen=True)
class Replies(_Answered, Generic[Reply]):
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

    def require(self, minimum: int | None = None) -> Replies[Reply]:
        """Itself, if at least ``minimum`` clients answered (None: all of them).

        Raises:
            FederationError: Too few answered; the text names the first failure.
        """
        self._require(minimum)
        return self


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


_BLOCK = 1 << 18
"""Entries of a large tensor that are widened at once to be added."""


class Accumulator(Generic[Reply]):
    """Adds up additive messages one by one, in the order given, without keeping them.

    Floats are summed in float64: a weight of at most 2^29 times a float32 number is exact there, so that the weighted
    mean of equal models is that model, bit for bit.
    """

    def __init__(self, kind: type[Reply]):
        self.kind = kind
        self.specs = kind.specs()
        self.values: dict[str, Any] = {}
        self.clients: list[ClientId] = []
        names = {spec.name: spec for spec in self.specs}
        for spec in self.specs:
            additive = spec.form != "plain" or spec.plain_type in (int, float)
            weight = names.get(spec.weighted_by) if spec.weighted_by is not None else spec
            if not additive or weight is None or (spec.weighted_by and weight.plain_type not in (int, float)):
                raise MessageError(
                    f"{kind.__name__}.{spec.name} cannot be summed: only numbers and tensors can, and `weighted_by` "
                    f"must name a number in the same message."
                )

    def add(self, client: ClientId, message: Reply) -> None:
        """Add one client's message.

        Raises:
            MessageError: Its shapes or names differ from the ones before.
        """
        updates = []
        for spec in self.specs:
            weight = 1.0
            if spec.weighted_by is not None:
                given = getattr(message, spec.weighted_by)
                weight = -1.0 if given is None else float(given)
                if not 0 <= weight < math.inf:
                    raise MessageError(
                        f"client {client}: {self.kind.__name__}.{spec.weighted_by} is a weight and must be at least 0; "
                        f"{given} came."
                    )
            updates.append((spec, getattr(message, spec.name), weight))
            self._check(client, spec, updates[-1][1], weight)
        # Everything was checked before anything is added: a bad message leaves the sum as it was.
        for spec, value, weight in updates:
            if spec.form == "tensors":
                into = self.values.setdefault(spec.name, {})
                for key, tensor in value.items():
                    into[key] = _add(into.get(key), tensor, weight)
            elif spec.form == "tensor_list":
                old = self.values.get(spec.name) or [None] * len(value)
                self.values[spec.name] = [_add(*pair, weight) for pair in zip(old, value, strict=True)]
            elif spec.form == "tensor":
                self.values[spec.name] = _add(self.values.get(spec.name), value, weight)
            else:
                share = int(weight) if isinstance(value, int) and weight == int(weight) else weight
                self.values[spec.name] = self.values.get(spec.name, 0) + value * share
        self.clients.append(client)

    def _check(self, client: ClientId, spec: FieldSpec, value: Any, weight: float) -> None:
        if value is None:
            raise MessageError(f"client {client}: {self.kind.__name__}.{spec.name} is missing from a sum.")
        if spec.form != "plain" and weight != int(weight) and not all(map(torch.is_floating_point, _tensors(value))):
            raise MessageError(
                f"client {client}: {self.kind.__name__}.{spec.name} holds whole numbers, which the weight {weight} "
                f"would make fractions; send them as floats."
            )
        known = self.values.get(spec.name)
        if known is None or spec.form == "plain":
            return
        if spec.form == "tensors":
            same = known.keys() == value.keys() and all(
                value[key].shape == old.shape and value[key].is_floating_point() == old.is_floating_point()
                for key, old in known.items()
            )
        else:
            same = _shapes(known) == _shapes(value)
        if not same:
            raise MessageError(
                f"client {client}: {self.kind.__name__}.{spec.name} has shapes {_shapes(value)}, the other clients' "
                f"have {_shapes(known)}. All clients must run the same model and settings to be summed."
            )

    def message(self) -> Reply | None:
        return self.kind(**self.values) if self.clients else None


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        return (value,)
    return value.values() if isinstance(value, Mapping) else value


def _shapes(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _shape(value)
    if isinstance(value, Mapping):
        return {key: _shape(tensor) for key, tensor in value.items()}
    return [_shape(tensor) for tensor in value]


def _shape(tensor: Tensor) -> tuple[int | str, ...]:
    """Sizes, and whether the entries are whole numbers: those are summed in another type."""
    return tuple(tensor.shape) if tensor.is_floating_point() else (*tensor.shape, "whole numbers")


def _add(total: Tensor | None, tensor: Tensor, weight: float) -> Tensor:
    if total is None:
        wide = torch.float64 if tensor.is_floating_point() else torch.int64
        if tensor.numel() > _BLOCK and tensor.is_cpu and tensor.is_contiguous():
            memory = torch.from_numpy(aligned_bytes(tensor.numel() * wide.itemsize))
            total = memory.view(wide).view(tensor.shape).copy_(tensor)
        else:
            total = tensor.to(wide, copy=True)
        return total.mul_(weight if tensor.is_floating_point() else int(weight)) if weight != 1.0 else total
    if not tensor.is_floating_point():
        return total.add_(tensor.to(torch.int64), alpha=int(weight))
    if tensor.numel() <= _BLOCK or not (total.is_contiguous() and tensor.is_contiguous()):
        return total.add_(tensor, alpha=weight)
    # torch widens a whole tensor before it adds it; a block at a time needs half the time, and less memory.
    widened = total.new_empty(_BLOCK)
    for into, part in zip(total.view(-1).split(_BLOCK), tensor.view(-1).split(_BLOCK), strict=True):
        into.add_(widened[: len(part)].copy_(part), alpha=weight)
    return total


class Federation(ABC):
    """What a server may do. Every runtime implements these two calls; nothing else leads to a client.

    Attributes:
        clients: Ids of all clients, ascending.
        ledger: Where every byte is noted.
    """

    clients: tuple[ClientId, ...]
    ledger: Ledger

    @abstractmethod
    def ask(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        *,
        to: Sequence[ClientId] | None = None,
        timeout: float | None = None,
    ) -> Replies[Reply]:
        """Send a request and collect the answers.

        Args:
            handler: The client's step, e.g. ``Client.train``.
            request: One message for all, or one per client.
            to: Whom to ask; None means everyone (or the keys of ``request``).
            timeout: Seconds to wait for an answer, where the runtime can wait.
        """

    @abstractmethod
    def sum(
        self,
        handler: Handler[Request, Reply],
        request: Request | Mapping[ClientId, Request],
        *,
        to: Sequence[ClientId] | None = None,
        timeout: float | None = None,
    ) -> Total[Reply]:
        """Send a request and receive only the sum of the answers."""

    def at(self, phase: Phase, round: int) -> None:
        """Say which phase and round the next calls belong to."""
        self.ledger.at(phase, round)

    def note_failure(self, failure: Failure) -> None:  # noqa: B027 - many keep no list
        """Hear of an answer that could be read, and cannot be."""

    def addressees(
        self, request: Message | Mapping[ClientId, Message], to: Sequence[ClientId] | None
    ) -> tuple[ClientId, ...]:
        """Who is asked, ascending.

        Raises:
            FederationError: Somebody is asked who does not take part, or for whom there is no request.
        """
        everyone = self.clients if isinstance(request, Message) else tuple(request)
        chosen = tuple(sorted(everyone if to is None else set(to)))
        strangers = [client for client in chosen if client not in self._known]
        if strangers:
            raise FederationError(f"client {strangers[0]} takes no part; there are {len(self.clients)} clients.")
        if not isinstance(request, Message):
            missing = [client for client in chosen if client not in request]
            if missing:
                raise FederationError(f"there is no request for client {missing[0]}.")
        return chosen

    @property
    def _known(self) -> frozenset[ClientId]:
        return frozenset(self.clients)


class CountingFederation(Federation):
    """Watches another federation and notes whether it was ever asked for single answers.

    Whether a method needs only sums is found by running it, not by claiming it.
    """

    def __init__(self, inner: Federation):
        self.inner = inner
        self.clients, self.ledger = inner.clients, inner.ledger
        self.asked: set[str] = set()
        self.summed: set[str] = set()

    def ask(self, handler: Handler[Request, Reply], request: Any, **options: Any) -> Replies[Reply]:
        self.asked.add(handler.name)
        return self.inner.ask(handler, request, **options)

    def sum(self, handler: Handler[Request, Reply], request: Any, **options: Any) -> Total[Reply]:
        self.summed.add(handler.name)
        return self.inner.sum(handler, request, **options)


__all__ = [
    "Accumulator", "CountingFederation", "Failure", "Federation", "Handler", "Replies", "Total", "handler",
]  # fmt: skip
