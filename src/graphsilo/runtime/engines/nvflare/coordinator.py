"""The coordinator's end: requests to sites, from the runner's process."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any

from graphsilo.errors import RunError
from graphsilo.runtime import pipe
from graphsilo.runtime.engines.nvflare.keeper import Keeper, tail
from graphsilo.runtime.engines.nvflare.kit import COORDINATOR, read_kit
from graphsilo.runtime.engines.nvflare.signing import Signer
from graphsilo.runtime.engines.nvflare.workspace import OUT, socket_path
from graphsilo.runtime.transport import Body, Parts, Transport, Unreachable, views_of

_MARGIN_SECONDS = 2.0
_HEALTH_TIMEOUT = 5.0
_POLL_SECONDS = 0.2
_PORT_SECONDS = 5.0
_START_SECONDS = 60.0


class NvflareTransport(Transport):
    """Sends requests to the sites of a federation through NVIDIA FLARE.

    Args:
        kit: Folder of the coordinator's kit.
        signed: Sign every request, as a site's supervisor wants it; False hands bodies on as they are.

    Raises:
        RunError: It is no coordinator's kit.
    """

    def __init__(self, kit: str | Path, *, signed: bool = True):
        self._kit = read_kit(kit)
        if self._kit.role != COORDINATOR:
            raise RunError(f"{kit} is the kit of site '{self._kit.party}'; the coordinator's is wanted here.")
        self._signer = Signer(self._kit.folder) if signed else None
        self.sites = self._kit.federation.sites
        self._keeper = Keeper(self._kit)
        self._path = socket_path(self._kit)
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the engine's process."""
        return self._keeper.pid

    def start(self) -> None:
        """Start the engine and wait until it listens; sites may join then and later.

        Raises:
            RunError: The kit is not in order, the port is taken, or the engine does not start.
        """
        _refuse_taken_port(self._kit.federation.coordinator.port)
        self._path.unlink(missing_ok=True)
        self._keeper.start()
        end = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError, EOFError):
                self._exchange({"do": "health"}, b"", timeout=_HEALTH_TIMEOUT)
                return
            if time.monotonic() > end or self._keeper.starts > 2:
                self.close()
                raise RunError(
                    f"the engine did not start; what it said last: {tail(self._kit.run / OUT) or 'nothing'} "
                    f"(more in {self._kit.run})."
                )
            time.sleep(_POLL_SECONDS)

    def request(self, site: str, body: Body | Parts, *, timeout: float) -> Body:
        """Send bytes to a site and wait for its answer; see ``Transport``."""
        if site not in self.sites:
            raise Unreachable(site, f"no such site in federation '{self._kit.federation.name}'")
        if self._closed:
            raise Unreachable(site, "the transport is closed")
        if self._signer is not None:
            body = self._signer.sign(site, body)
        try:
            head, content = self._exchange(
                {"do": "ask", "site": site, "timeout": timeout}, body, timeout=timeout + _MARGIN_SECONDS
            )
        except TimeoutError:
            raise Unreachable(site, f"no answer within {timeout:g} s") from None
        except (OSError, EOFError):
            raise Unreachable(site, "the coordinator's engine has ended and is being started again") from None
        if "problem" in head:
            raise Unreachable(site, str(head["problem"]))
        return content

    def close(self) -> None:
        """End the engine. May be called twice."""
        self._closed = True
        self._keeper.close()
        self._path.unlink(missing_ok=True)

    def _exchange(self, head: dict[str, Any], body: Body | Parts, *, timeout: float) -> tuple[dict[str, Any], Body]:
        with pipe.connect(self._path, timeout=timeout) as connection:
            pipe.send(connection, json.dumps(head).encode("utf-8"))
            pipe.send(connection, *views_of(body))
            return json.loads(bytes(pipe.receive(connection))), pipe.receive(connection)


def _refuse_taken_port(port: int) -> None:
    end = time.monotonic() + _PORT_SECONDS  # an engine whose runner was killed lets go within a second
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise RunError(
                        f"port {port} cannot be listened at ({error.strerror}): does another coordinator run here?"
                    ) from None
        time.sleep(_POLL_SECONDS)
