"""One call at one client, the same in every runtime: bytes in, bytes or a failure out."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import DisclosureError, GraphsiloError, MessageError, nearest
from graphsilo.federation.client import ClientBase
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import STAYS_AT_THE_SILO, Failure, Handler, handlers_of
from graphsilo.federation.message import Message, tensors_in
from graphsilo.federation.secure import CALL
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.hosted import HostedClient, Turn

if TYPE_CHECKING:
    from graphsilo.federation.policy import Gate


@dataclass
class Inbox:
    """Received bytes and their decoded form, shared by the clients of a process that get the same broadcast."""

    data: NDArray[np.uint8]
    message: Message | None = None


def call(
    held: HostedClient, name: str, round_number: int, inbox: Inbox, gate: Gate | None = None, turn: Turn | None = None
) -> Encoded | Failure:
    """Run a client's handler on a received message.

    A name that begins with ``CALL`` asks for the answer to be kept for a secure sum, and what is returned is its offer.

    The decoded tensors are views of the received bytes, perhaps shared with other clients; a handler that writes into
    them is a bug that would leak between clients, and is refused.

    With a gate, an answer that the silo's policy does not allow is never encoded: the call fails with the kind
    ``DisclosureError``. The handler has run by then; what it changed of what is kept is taken back in the next turn, as
    with every answer that was not counted. A call that is refused for its round, or whose answer would be seen by
    itself where only sums are, does not run the handler at all. The text of an unexpected error stays in
    ``Failure.trace``, unless the policy lets it out. Where only sums are seen no failure says why: that there is none
    of an answer tells of rows, and is counted as an offer of one.
    """
    client = held.client
    secure, name = name.startswith(CALL), name.removeprefix(CALL)
    try:
        found = handler_of(type(client), name)
        request_type, reply_type = found.types()
        if gate is not None:
            gate.admit(round_number)
            if not secure:
                gate.check_single(name, reply_type)
        if turn is not None:
            held.take_turn(name, turn)
        if inbox.message is None or type(inbox.message) is not request_type:
            inbox.message = decode(inbox.data, request_type)
        request = inbox.message
        # What is seen of single clients anyway, some may be asked and others not.
        of_all = gate is not None and name not in (gate.singles or ())
        held.begin(name, round_number, inbox.data if of_all else None)
    except Exception as error:
        return _failure(held, name, error, gate)
    try:
        reply = found.function(client, request)
        written = _find_written_field(request)
        if written:
            raise MessageError(
                f"handler '{name}' wrote into the received field '{written}'. Received tensors are shared and "
                f"read-only: copy before changing (load_weights does)."
            )
        if type(reply) is not reply_type:
            raise MessageError(f"handler '{name}' must return {reply_type.__name__}; {type(reply).__name__} came.")
        if not secure and reply.honest_silos() > 1:
            raise DisclosureError(
                f"{reply_type.__name__} holds a share of the noise that its sum needs, and leaves in a secure sum or "
                f"not at all. Run with run.secure_sums=true, or with method.noise=silo."
            )
        if gate is not None:
            gate.check(name, reply)
        if not secure:
            return encode(held.pack_answer(name, request, reply))
        if held.parties is None:
            raise MessageError("no secure sums are made here.")
        return held.parties.begin(client, name, request, reply, held.settled + held.asked)
    except Exception as error:
        if gate is None or held.parties is None or not gate.explain_only_sums(name):
            return _failure(held, name, error, gate)
        return _failure(held, name, held.parties.withhold(client, reply_type, error), gate)


def _failure(held: HostedClient, name: str, error: Exception, gate: Gate | None) -> Failure:
    """What leaves of an error, and what stays."""
    from graphsilo.federation.own import locate_error

    kind, reason = type(error).__name__, str(error) or repr(error)
    ours = isinstance(error, GraphsiloError)
    trace = "\n".join(getattr(error, "__notes__", [])) if ours else traceback.format_exc()
    if gate is not None and not gate.may_report(error):
        reason, trace = STAYS_AT_THE_SILO, traceback.format_exc()
    elif not ours and (place := locate_error(error)):
        reason = f"{reason.removesuffix('.')}; in your own code, {place}"
    return Failure(held.client.id, name, kind, reason, trace)


def handler_of(kind: type[ClientBase[Any]], name: str) -> Handler[Any, Any]:
    """The handler of that name.

    Raises:
        MessageError: The class has none.
    """
    found = getattr(kind, name, None)
    if not isinstance(found, Handler):
        raise MessageError(f"clients of this method have no handler '{name}'; {nearest(name, handlers_of(kind))}")
    return found


def _find_written_field(message: Message) -> str | None:
    for spec in message.specs():
        value = getattr(message, spec.name)
        if value is not None and spec.form != "plain" and any(tensor._version for tensor in tensors_in(value)):
            return spec.name
    return None
