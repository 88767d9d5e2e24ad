"""A place has forgotten its clients' state, by which a run goes back to its last checkpoint."""

from __future__ import annotations

import signal

from graphsilo.errors import FederationError

MAX_LOSSES = 3
"""Times that a place may lose its state without a round in between."""


class StateLost(FederationError):
    """A site or a worker process has forgotten its clients' state."""

    def __init__(self, site: str, reason: str):
        super().__init__(f"site '{site}' has lost its clients' state: {reason}")
        self.site = site


def describe_end(code: int) -> str:
    """A process that has gone, by its exit code: ``the worker process ...``."""
    if code >= 0:
        return f"ended with exit code {code}"
    more = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{more}"
