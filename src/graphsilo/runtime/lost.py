"""A place has forgotten its clients' state, by which a run goes back to its last checkpoint."""

from __future__ import annotations

from graphsilo.errors import FederationError

MAX_LOSSES = 3
"""Times that a place may lose its state without a round in between."""


class StateLost(FederationError):
    """A site or a worker process has forgotten its clients' state.

    Attributes:
        site: Which.
    """

    def __init__(self, site: str, reason: str):
        super().__init__(f"site '{site}' has lost its clients' state: {reason}")
        self.site = site
