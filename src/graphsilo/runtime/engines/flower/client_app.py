"""The site's end in Flower: hands a request to the site's supervisor, and its answer back.

Flower starts this in a process of its own for each message, so it imports no torch and keeps nothing.
"""

from __future__ import annotations

import os
import time

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.runtime import pipe
from graphsilo.runtime.engines.flower.envelope import pack, unpack
from graphsilo.runtime.engines.flower.site import SOCKET_KEY, SOCKET_VARIABLE
from graphsilo.runtime.transport import Body

MARGIN = 2.0
"""Seconds before a message expires at which a site that is still working is given up: an answer after that is thrown
away, and the SuperNode, which carries one message at a time, must be free for the next one."""


def relay(message: Message, context: Context) -> Message:
    """Carry one request to the supervisor; whatever goes wrong comes back as an error in words."""
    try:
        return Message(pack(_ask(message, context)), reply_to=message)
    except Exception as error:
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, _describe(error)), reply_to=message)


app = ClientApp()
app.query()(relay)


def _ask(message: Message, context: Context) -> Body:
    path = socket_path(context)
    body = unpack(message.content)
    # By the clocks of both machines, as Flower itself reckons: a message is good until created_at + ttl.
    end = time.monotonic() + message.metadata.created_at + message.metadata.ttl - time.time() - MARGIN
    try:
        connection = pipe.connect(path, timeout=_seconds_left(end))
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise ConnectionError(
            f"nobody listens at {path}: start the site with 'graphsilo join', or correct {SOCKET_KEY}."
        ) from error
    with connection:
        connection.settimeout(_seconds_left(end))
        pipe.send(connection, body)
        connection.settimeout(_seconds_left(end))
        return pipe.receive(connection)


def socket_path(context: Context) -> str:
    """The supervisor's unix socket.

    Raises:
        ConfigError: Neither the node's configuration nor the environment names it.
    """
    path = str(context.node_config.get(SOCKET_KEY) or os.environ.get(SOCKET_VARIABLE) or "")
    if not path:
        raise ConfigError(
            f"this SuperNode does not say where the site listens: start it with --node-config "
            f"'{SOCKET_KEY}=\"KIT/run/site.sock\"', or set {SOCKET_VARIABLE}."
        )
    return path


def _seconds_left(end: float) -> float:
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _describe(error: Exception) -> str:
    """What went wrong, for the coordinator; nothing of the site's data is in it."""
    if isinstance(error, TimeoutError):
        return "the site was still working when the message expired"
    if isinstance(error, EOFError):
        return f"the site's supervisor gave no answer ({error})"
    if isinstance(error, GraphsiloError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"
