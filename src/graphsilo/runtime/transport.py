"""What carries bytes between a coordinator and its sites: the one thing an engine between machines must offer.

A *site* is a machine (or account) that holds one or several silos. A transport knows nothing of methods, silos or what
the bytes mean; an engine is one more folder here with one more class like this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

Body: TypeAlias = "bytes | bytearray | memoryview"
"""What is carried; read, never changed."""


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
    def request(self, site: str, body: Body, *, timeout: float) -> bytearray:
        """Send bytes to a site and wait for its answer.

        Args:
            site: One of ``sites``.
            body: What is sent.
            timeout: Seconds after which nobody waits any more.

        Raises:
            Unreachable: No answer came in time, or the way there is broken just now.
        """

    def close(self) -> None:  # noqa: B027 - many have nothing to let go of
        """Let go of connections and processes. May be called twice."""
