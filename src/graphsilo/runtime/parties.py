"""The clients of a process in secure sums: what they keep between the steps of one."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from graphsilo.errors import DisclosureError, GraphsiloError, MessageError, RequestError
from graphsilo.federation.client import ClientBase
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import STAYS_AT_THE_SILO, Failure
from graphsilo.federation.kinds import MASKED
from graphsilo.federation.message import Message, check_shapes, expected_shapes, message_shapes
from graphsilo.federation.secure import AGAIN, CONFIRM, MASK, OPEN, SHARE
from graphsilo.federation.secure.messages import Again, Came, Confirmed, Post, Roster
from graphsilo.federation.secure.opened import OpenedSums
from graphsilo.federation.secure.party import Identity, Party, Purpose, Unproved
from graphsilo.federation.wire import Encoded
from graphsilo.types import ClientId


def make_unproved(client: ClientId) -> Party:
    """A client within one machine: it has made up who it is, and its record ends with the process."""
    return Party(client, Identity.generate(), Unproved(), OpenedSums())


class Parties:
    """The clients of one process.

    Args:
        make: Makes a client's part in sums, when it is first needed.
        run: Name of the run.
    """

    def __init__(self, make: Callable[[ClientId], Party] = make_unproved, run: str = ""):
        self.make, self.run = make, run
        self._parties: dict[ClientId, Party] = {}

    def begin(
        self, client: ClientBase[Any], handler: str, request: Message, reply: Message, asked: bytes = b""
    ) -> Encoded:
        """Keep a client's answer for a sum, and offer it.

        Args:
            client: Whose.
            handler: The step that was asked for.
            request, reply: What it was asked with, and the answer.
            asked: What tells of that, and of all before; empty in one process, where nobody is deceived.

        What a coordinator looks at where it sees single answers, the client looks at itself.

        Raises:
            MessageError: The answer cannot be summed.
        """
        purpose = Purpose(self.run, client.context.seed, client.round, handler)
        reply.check()
        check_shapes(type(reply), message_shapes(reply), expected_shapes(request, type(reply)))
        party = self._party(client.id)
        return encode(party.begin(purpose, reply, encode(reply).data, hashlib.sha256(asked).digest()))

    def withhold(self, client: ClientBase[Any], kind: type[Message], error: Exception) -> Exception:
        """What a coordinator may know of an error where only sums are seen: that there is one, and no more often than
        offers are made."""
        if isinstance(error, DisclosureError) and not error.of_answer:  # settings and cards say it already
            return error
        try:
            self._party(client.id).record.offer(os.urandom(32))  # a fresh one each time
        except DisclosureError as refused:
            return refused
        if isinstance(error, RequestError):
            return error
        public = MessageError(
            f"its {kind.__name__} is none that can be summed; why stands in the silo's log. Mostly numbers are too "
            f"large or not finite then: try a smaller learning rate, or scaled features."
        )
        public.add_note("".join(traceback.format_exception(error)))
        return public

    def _party(self, client: ClientId) -> Party:
        if client not in self._parties:
            self._parties[client] = self.make(client)
        return self._parties[client]

    def of(self, client: ClientId) -> Party:
        """A client that has masked its answer."""
        return self._parties[client]

    def answer(self, client: ClientId, step: str, data: Any) -> Encoded | Failure:
        """One of the later steps."""
        try:
            if client not in self._parties:
                raise DisclosureError(f"client {client} takes part in no sum.")
            return _STEPS[step](self._parties[client], data)
        except Exception as error:
            if isinstance(error, GraphsiloError):
                peer = getattr(error, "peer", None)
                return Failure(client, step, type(error).__name__, str(error), peer=peer)
            # What nobody has worded may quote the answer.
            return Failure(client, step, type(error).__name__, STAYS_AT_THE_SILO, traceback.format_exc())


def _mask(party: Party, data: Any) -> Encoded:
    """The masked answer, which says of every field how many bytes of it there are."""
    message, layout = encode(party.current.mask(decode(data, Post))), party.kept.layout
    return Encoded(message.data, layout.kind.wire_name() + MASKED, layout.fields)


_STEPS: Mapping[str, Callable[[Party, Any], Encoded]] = {
    AGAIN: lambda party, data: encode(decode(data, Again) and party.offer_again()),
    SHARE: lambda party, data: encode(party.current.share(decode(data, Roster))),
    MASK: _mask,
    CONFIRM: lambda party, data: encode(party.current.confirm(decode(data, Came))),
    OPEN: lambda party, data: encode(party.current.open(decode(data, Confirmed))),
}
