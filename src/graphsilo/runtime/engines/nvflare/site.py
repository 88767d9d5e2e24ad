"""A site's end: the engine that connects to the coordinator and hands requests to the supervisor's socket."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from pathlib import Path

from graphsilo.errors import RunError
from graphsilo.runtime.engines.nvflare.keeper import Keeper
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, COORDINATOR, KEY, ROOT, Kit, read_kit
from graphsilo.runtime.engines.nvflare.workspace import SEEN, socket_path

_UP_SECONDS = 20.0
_LOOK_SECONDS = 5.0
_NOT_GREETED = (
    "the connection is good, but the coordinator does not greet this site: it may have to be started again with this "
    "site in its kit, or another process is connected with a copy of this one"
)
_PROBE_TIMEOUT = 10.0

log = logging.getLogger(__name__)


class NvflareSite:
    """Keeps a site connected to its coordinator.

    The supervisor must listen at ``socket_path`` (``pipe.listen``); it is asked over several connections at once.

    Raises:
        RunError: It is no site's kit.
    """

    def __init__(self, kit: str | Path):
        self._kit = read_kit(kit)
        if self._kit.role == COORDINATOR:
            raise RunError(f"{kit} is the coordinator's kit; a site's is wanted here.")
        self.name = self._kit.party
        self.socket_path = socket_path(self._kit)
        self._keeper = Keeper(self._kit)
        self._seen = self._kit.run / SEEN
        self._state = "never seen"
        self._problem = "the engine is being started"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Of the engine's process."""
        return self._keeper.pid

    def start(self) -> None:
        """Start the engine; it connects as soon as the coordinator can be reached, and again whenever it is lost.

        Raises:
            RunError: The kit is not in order.
        """
        self._seen.unlink(missing_ok=True)
        self._keeper.start()
        self._thread = threading.Thread(target=self._look, name=f"site-{self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the engine. May be called twice."""
        self._stop.set()
        self._keeper.close()

    def _update(self) -> None:
        heard = 0.0
        with contextlib.suppress(OSError):
            heard = self._seen.stat().st_mtime
        state = "up" if time.time() - heard < _UP_SECONDS else "lost" if heard else "never seen"
        if state != self._state:
            self._state = state
            if state == "up":
                log.info("site '%s' is connected", self.name)
            else:
                self._problem = "the coordinator has fallen silent"

    def _look(self) -> None:
        """While there is no connection, find out why, in words; FLARE's own are a stack of frames."""
        reported, patient = "", True
        while not self._stop.wait(_LOOK_SECONDS):
            self._update()
            if self._state == "up":
                reported, patient = "", True
                continue
            found = probe(self._kit)
            self._problem = found or _NOT_GREETED
            if not found and patient:  # a greeting takes a moment, and is worth a word only when that lasts
                patient = False
            elif self._problem != reported:
                reported = self._problem
                log.warning("site '%s' is not connected: %s", self.name, reported)


def probe(kit: Kit) -> str:
    """Why a site cannot connect to its coordinator.

    Returns:
        Words; empty if it can.
    """
    where = kit.federation.coordinator
    address = f"{where.hosts[0]}:{where.port}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(kit.folder / ROOT)
        context.load_cert_chain(kit.folder / CERTIFICATE, kit.folder / KEY)
    except (OSError, ssl.SSLError) as error:
        return f"the certificate or key in {kit.folder} cannot be used ({error})"
    try:
        plain = socket.create_connection((where.hosts[0], where.port), timeout=_PROBE_TIMEOUT)
    except OSError as error:
        return (
            f"the coordinator cannot be reached at {address} ({error.strerror or error}): it may not be running, or a "
            f"firewall is in the way"
        )
    try:
        with plain, context.wrap_socket(plain, server_hostname=COORDINATOR) as secure:
            # A refused certificate shows only when something is read: the engine says nothing by itself at first.
            secure.settimeout(2.0)
            with contextlib.suppress(TimeoutError):
                secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        if "not yet valid" in str(error) or "expired" in str(error):
            return f"the coordinator's certificate is not valid by this machine's clock ({error.verify_message})"
        return (
            f"who answers at {address} was not certified by the root of federation '{kit.federation.name}' "
            f"({error.verify_message}): it is another federation's coordinator, or this kit is out of date"
        )
    except ssl.SSLError as error:
        return f"the coordinator at {address} refuses this kit's certificate ({error.reason or error})"
    except OSError as error:
        return (
            f"the connection to {address} was broken off ({error.strerror or error}): is it a coordinator that answers?"
        )
    return ""
