"""Sites on this machine, reached without an engine: straight to each supervisor's unix socket.

For trying a federation before there are machines, and for tests of everything that is not an engine's.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from graphsilo.runtime import pipe
from graphsilo.runtime.transport import Body, Transport, Unreachable


class SameMachine(Transport):
    """Leads to supervisors on this machine.

    Args:
        sockets: Path of each site's socket.
    """

    def __init__(self, sockets: Mapping[str, Path]):
        self.sockets = dict(sockets)
        self.sites = tuple(sockets)
        self._idle: dict[str, list[socket.socket]] = {site: [] for site in sockets}
        self._lock = threading.Lock()

    def request(self, site: str, body: Body, *, timeout: float) -> bytearray:
        with self._lock:
            connection = self._idle[site].pop() if self._idle[site] else None
        try:
            if connection is None:
                connection = pipe.connect(self.sockets[site], timeout=timeout)
            connection.settimeout(timeout)
            pipe.send(connection, body)
            answer = pipe.receive(connection)
        except (OSError, EOFError) as error:
            if connection is not None:
                connection.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise Unreachable(site, reason) from None
        with self._lock:
            self._idle[site].append(connection)
        return answer

    def close(self) -> None:
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.close()
                connections.clear()
