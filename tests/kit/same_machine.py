"""Sites on this machine, reached without an engine: straight to each supervisor's unix socket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphsilo.runtime import pipe
from graphsilo.runtime.transport import Body, Parts, Transport, Unreachable, views_of


class SameMachine(Transport):
    """Leads to supervisors on this machine.

    Args:
        sockets: Path of each site's socket.
    """

    def __init__(self, sockets: Mapping[str, Path]):
        self.sites = tuple(sockets)
        self._sockets = dict(sockets)

    def request(self, site: str, body: Body | Parts, *, timeout: float) -> Body:
        try:
            with pipe.connect(self._sockets[site], timeout=timeout) as connection:
                pipe.send(connection, *views_of(body))
                return pipe.receive(connection)
        except (OSError, EOFError) as error:
            raise Unreachable(site, "no answer in time" if isinstance(error, TimeoutError) else str(error)) from None
