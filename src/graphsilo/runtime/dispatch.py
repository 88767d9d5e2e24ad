"""One call at one client, the same in every runtime: bytes in, bytes or a failure out."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import GraphsiloError, MessageError, nearest
from graphsilo.federation.client import ClientBase
from graphsilo.federation.codec import Encoded, decode, encode
from graphsilo.federation.interface import Failure, Handler
from graphsilo.federation.message import Message
from graphsilo.training.together import Driver
from graphsilo.types import ClientId


@dataclass
class Inbox:
    """Received bytes and their decoded form, shared by the clients of a process that get the same broadcast."""

    data: NDArray[np.uint8]
    message: Message | None = None


def call(client: ClientBase, name: str, round_number: int, inbox: Inbox) -> Encoded | Failure:
    """Run a client's handler on a received message.

    The decoded tensors are views of the received bytes, perhaps shared with other clients; a handler that writes into
    them is a bug that would leak between clients, and is refused.
    """
    try:
        found = handler_of(type(client), name)
        request_type, reply_type = found.types_cached()
        if inbox.message is None or type(inbox.message) is not request_type:
            inbox.message = decode(inbox.data, request_type)
        request = inbox.message
        client.round = round_number
        reply = found.function(client, request)
        written = _written_field(request)
        if written:
            raise MessageError(
                f"handler '{name}' wrote into the received field '{written}'. Received tensors are shared and "
                f"read-only: copy before changing (load_weights does)."
            )
        if type(reply) is not reply_type:
            raise MessageError(f"handler '{name}' must return {reply_type.__name__}; {type(reply).__name__} came.")
        return encode(reply)
    except Exception as error:
        trace = "" if isinstance(error, GraphsiloError) else traceback.format_exc()
        return Failure(client.id, name, type(error).__name__, str(error) or repr(error), trace)


def handler_of(kind: type[ClientBase], name: str) -> Handler:
    """The handler of that name.

    Raises:
        MessageError: The class has none.
    """
    found = getattr(kind, name, None)
    if not isinstance(found, Handler):
        known = [key for key in dir(kind) if isinstance(getattr(kind, key, None), Handler)]
        raise MessageError(f"clients of this method have no handler '{name}'; {nearest(name, known)}")
    return found


def _written_field(message: Message) -> str | None:
    for spec in message.specs():
        value = getattr(message, spec.name)
        if value is None or spec.form == "plain":
            continue
        tensors = (value,) if spec.form == "tensor" else value.values() if spec.form == "tensors" else value
        for tensor in tensors:
            if tensor._version:
                return spec.name
    return None


class Group:
    """The clients of one process, some of them run side by side so that small ones can train together."""

    SIDE_BY_SIDE = 32
    """Most handlers under way at once: each holds its reply in memory."""
    WORKING_SET = 6 * 1024**2
    """Most bytes that they may touch in every step. A client alone keeps its weights in the processor's cache from one
    local epoch to the next; a group that does not fit loses more by that than it gains."""
    REMEMBERED = 64

    def __init__(self) -> None:
        self._drivers: dict[tuple[int, ...], Driver] = {}

    def call(
        self, name: str, round_number: int, addressed: Sequence[tuple[ClientBase, Inbox]]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        """Run a handler at several clients; the answers in the order given."""
        for start, stop in self._parts([client for client, _ in addressed]):
            part = addressed[start:stop]
            calls = [partial(call, client, name, round_number, inbox) for client, inbox in part]
            answers = iter([calls[0]()]) if len(calls) == 1 else self._driver(part).run(calls)
            for (client, _), answer in zip(part, answers, strict=True):
                yield client.id, answer

    def _parts(self, clients: Sequence[ClientBase]) -> list[tuple[int, int]]:
        """Bounds of neighbours that run side by side, about equally many in each part."""
        if not clients:
            return []
        needed = sum(client.working_set for client in clients)
        count = max(-(-needed // self.WORKING_SET), -(-len(clients) // self.SIDE_BY_SIDE))
        bounds = np.linspace(0, len(clients), min(count, len(clients)) + 1).round().astype(int).tolist()
        return list(pairwise(bounds))

    def _driver(self, part: Sequence[tuple[ClientBase, Inbox]]) -> Driver:
        key = tuple(client.id for client, _ in part)
        if key not in self._drivers:
            if len(self._drivers) >= self.REMEMBERED:
                del self._drivers[next(iter(self._drivers))]
            self._drivers[key] = Driver()
        return self._drivers[key]
