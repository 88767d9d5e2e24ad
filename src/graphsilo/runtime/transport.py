"""What carries bytes between a coordinator and its sites: the one thing an engine between machines must offer.

A *site* is a machine (or account) that holds one or several silos. A transport knows nothing of methods, silos or what
the bytes mean; an engine is one more folder here with one more class like this.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

Body: TypeAlias = "bytes | bytearray | memoryview"
"""What is carried; read, never changed."""


class Broadcast:
    """Bytes that go to several sites: what is computed of them is computed once.

    Args:
        data: Anything with a buffer; nobody may change it any more.
    """

    def __init__(self, data: Any):
        self.view = memoryview(data).cast("B")
        self._lock = threading.Lock()
        self._check: int | None = None
        self._digest: bytes | None = None

    @property
    def check(self) -> int:
        """CRC-32."""
        with self._lock:
            if self._check is None:
                self._check = zlib.crc32(self.view)
            return self._check

    @property
    def digest(self) -> bytes:
        """SHA-256."""
        with self._lock:
            if self._digest is None:
                self._digest = hashlib.sha256(self.view).digest()
            return self._digest


Parts: TypeAlias = "Sequence[Body | Broadcast]"
"""A body in several pieces, one behind the other."""


def views_of(body: Body | Parts) -> list[memoryview]:
    """The pieces of a body."""
    parts = [body] if isinstance(body, bytes | bytearray | memoryview) else body
    return [part.view if isinstance(part, Broadcast) else memoryview(part) for part in parts]


def size_of(body: Body | Parts) -> int:
    """Bytes of a body."""
    return sum(view.nbytes for view in views_of(body))


class Unreachable(Exception):
    """No answer came from a site, and whether it has seen the request is not known. Sending again is safe: sites
    answer a request that they have already carried out with the answer they gave.
    """

    def __init__(self, site: str, reason: str):
        super().__init__(f"site '{site}' gave no answer: {reason}")
        self.site = site
        self.reason = reason


class Transport(ABC):
    """One request to one site, one answer back. Used from several threads at once.

    Attributes:
        sites: Names of all sites that may be reached, in the order of the federation.
    """

    sites: tuple[str, ...]

    @abstractmethod
    def request(self, site: str, body: Body | Parts, *, timeout: float) -> Body:
        """Send bytes to a site and wait for its answer.

        Args:
            site: One of ``sites``.
            body: What is sent, in one piece or in several.
            timeout: Seconds after which nobody waits any more.

        Raises:
            Unreachable: No answer came in time, or the way there is broken just now.
        """

    def close(self) -> None:  # noqa: B027 - many have nothing to let go of
        """Let go of connections and processes. May be called twice."""
