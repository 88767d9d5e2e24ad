"""All clients in this process, one after the other. Messages are encoded and decoded as between machines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from graphsilo.federation.client import ClientBase
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.dispatch import Inbox
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.hosted import NOBODY, Reported
from graphsilo.runtime.local.clients import ClientCache
from graphsilo.runtime.local.placement import MemoryBudget
from graphsilo.types import ClientId


class InProcess(Exchange):
    """Serial execution in this process."""

    def __init__(
        self,
        clients: Sequence[ClientId],
        make_client: Callable[[ClientId], ClientBase[Any]],
        ledger: Ledger | None = None,
        budget: MemoryBudget | None = None,
    ):
        super().__init__(clients, ledger)
        self.cache = ClientCache.within(self.clients, make_client, budget)

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        inboxes: dict[int, Inbox] = {}
        for client, encoded in outgoing.items():
            inbox = inboxes.setdefault(id(encoded), Inbox(encoded.data))
            with self._time_client(client):
                answer = self.cache.call(client, handler, round, inbox, (self.turn, self.back.get(client)))
            yield client, answer

    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        self.cache.remember(clients, view)

    def client_states(self) -> dict[ClientId, Any]:
        return self.cache.states(self.uncounted)

    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        self.cache.load(states)

    def finish(
        self, *, embeddings: bool, study: bool = False, reported: Mapping[ClientId, Reported] = NOBODY
    ) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        for client in self.clients:
            yield client, self.cache.finish(client, embeddings, study, reported.get(client))

    def client(self, client: ClientId) -> ClientBase[Any]:
        """A client itself: for prediction after a run and for tests; methods cannot reach it."""
        return self.cache.get(client).client
