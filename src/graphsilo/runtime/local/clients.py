"""The clients of one process, all of them in memory if there is room for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from graphsilo.federation.client import ClientBase
from graphsilo.federation.codec import encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.secure import CALL, STEPS
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.dispatch import Inbox, call
from graphsilo.runtime.hosted import HostedClient, Reported, Turn
from graphsilo.runtime.local.placement import MemoryBudget
from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.runtime.parties import Parties


class ClientCache:
    """The clients of one process.

    Args:
        clients: Their numbers.
        make: Makes a client, with the same numbers every time.

    Attributes:
        limit: Most clients in memory at rest; None for all.
    """

    limit: int | None = None

    def __init__(self, clients: Sequence[ClientId], make: Callable[[ClientId], ClientBase[Any]]):
        self.clients = tuple(sorted(clients))
        self._make = make
        self._here: OrderedDict[ClientId, HostedClient] = OrderedDict()  # the longest unused first

    @classmethod
    def within(
        cls,
        clients: Sequence[ClientId],
        make: Callable[[ClientId], ClientBase[Any]],
        budget: MemoryBudget | None = None,
    ) -> ClientCache:
        """All clients, or as many as a budget has room for: the others are made when they are asked, and offloaded."""
        cache = cls(clients, make)
        if budget is not None and cache.clients:
            first = cache.get(cache.clients[0])
            limit = budget.limit(len(cache.clients), int(encode_tree(first.client.state()).nbytes))
            if limit is not None:
                from graphsilo.runtime.local.offloading import OffloadingCache

                return OffloadingCache(clients, make, limit, budget.folder(), first)
        for client in cache.clients:
            cache.get(client)
        return cache

    @cached_property
    def parties(self) -> Parties:
        """The clients in secure sums; answers that wait for one stay in memory."""
        from graphsilo.runtime.parties import Parties

        return Parties()

    def get(self, client: ClientId) -> HostedClient:
        """A client."""
        if client not in self._here:
            self._here[client] = HostedClient(self._make(client))
        return self._here[client]

    def call(
        self, client: ClientId, handler: str, round_number: int, inbox: Inbox, turn: Turn | None = None
    ) -> Encoded | Failure:
        """Run a client's handler."""
        if handler in STEPS:  # it has its answer, and need not be in memory itself
            return self.parties.answer(client, handler, inbox.data)
        held = self.get(client)
        if handler.startswith(CALL):
            held.parties = self.parties
        return call(held, handler, round_number, inbox, None, turn)

    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        """Have clients keep a copy of their models of a view; None asks everybody."""
        for client in self._here.keys() & set(self.clients if clients is None else clients):
            self._here[client].remember(view)

    def states(self, uncounted: Mapping[ClientId, int] = MappingProxyType({})) -> dict[ClientId, Any]:
        """Every client's state, without what was not counted.

        Args:
            uncounted: From which step on a client takes back what it changed.
        """
        for client, held in self._here.items():
            held.settle(uncounted.get(client))
        return {client: held.state() for client, held in self._here.items()}

    def load(self, states: Mapping[ClientId, Any]) -> None:
        """Put every client where it was; states may be offloaded ones, of a process with less room."""
        for client, state in states.items():
            held = self.get(client)
            held.load_state(state) if isinstance(state, Mapping) else state.restore(held)

    def finish(
        self, client: ClientId, embeddings: bool, study: bool, reported: Reported | None = None
    ) -> dict[str, Any]:
        """A client's models, embeddings, study and answers at the end of a run."""
        return self.get(client).finish(embeddings=embeddings, study=study, reported=reported)
