"""Clients of one process, of whom only some are in memory: the others are offloaded on disk until they are asked.

A client that nobody has asked yet is nowhere: it is made from its silo when its turn comes, with the same numbers as
at the start. One that was asked leaves its state in a file when it has to make room, in the format of
checkpoints, and is made again from its silo and that file. What many clients hold stands in a file of its own, once.
What a client derived from its graphs is dropped with it, unless another client in memory uses the same graph. That this
changes no number is what the promise of state says.
"""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from graphsilo.errors import RunError
from graphsilo.federation.client import ClientBase
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.secure import CALL, STEPS
from graphsilo.federation.wire import Encoded
from graphsilo.models.view import forget_tensors
from graphsilo.runtime.dispatch import Inbox
from graphsilo.runtime.hosted import READS_ONLY, HostedClient, Numbering, Reported, Turn
from graphsilo.runtime.local.clients import ClientCache
from graphsilo.runtime.local.placement import graphs_of
from graphsilo.runtime.local.shared_files import join_shared, read_shared, share_received, split_shared, write_shared
from graphsilo.types import ClientId


@dataclass(frozen=True)
class OffloadedState:
    """A client's state that is in a file, or nowhere because it is that of a fresh client.

    Attributes:
        path: Holds the client's state, without what is shared, as ``encode_tree`` writes it; None for a fresh client.
        remember: Views whose models are those of their best round.
        shared: Files beside it that hold what it shares with others.
    """

    path: Path | None
    remember: tuple[str, ...]
    shared: tuple[str, ...] = ()

    def restore(self, held: HostedClient) -> None:
        """Put a client in memory where it was.

        Raises:
            RunError: The file cannot be read.
        """
        if self.path is not None:
            held.load_state(_read(self.path, held.client.id))
        for view in self.remember:
            held.remember(view)


class OffloadingCache(ClientCache):
    """The clients of one process, of whom so many stay in memory, and one more while it works.

    Args:
        clients, make: As of those that are all in memory.
        limit: Most in memory at rest.
        folder: Where the others go.
        first: The first client, made already.
    """

    def __init__(
        self,
        clients: Sequence[ClientId],
        make: Callable[[ClientId], ClientBase[Any]],
        limit: int,
        folder: Path,
        first: HostedClient,
    ):
        super().__init__(clients, make)
        self.limit: int = limit
        self._folder = folder
        self._files: dict[ClientId, tuple[Path, tuple[str, ...]]] = {}  # with those beside it that it refers to
        self._shared: Counter[str] = Counter()  # how many of them refer to a file
        self._changed: set[ClientId] = set()
        self._to_remember: dict[ClientId, tuple[str, ...]] = {}  # offloaded while validation by these views was best
        self._numbers: dict[ClientId, tuple[Numbering, tuple[int, int]]] = {}
        self._graphs: Counter[int] = Counter()
        self._undead: list[weakref.ref[ClientBase[Any]]] = []
        self._written = 0
        self._take(first)

    def get(self, client: ClientId) -> HostedClient:
        """A client, made again if it has to be. It stays until others need its place.

        Raises:
            RunError: Its offloaded state cannot be read.
        """
        if client in self._here:
            self._here.move_to_end(client)
            return self._here[client]
        held = HostedClient(self._make(client))
        path, shared = self._files.get(client, (None, ()))
        OffloadedState(path, self._to_remember.get(client, ()), shared).restore(held)
        if client in self._numbers:
            held.numbering, held.turn = self._numbers[client]
        self._take(held)
        return held

    def _take(self, held: HostedClient) -> None:
        self._here[held.client.id] = held
        self._graphs.update(graphs_of(held.client.silo).keys())

    def call(
        self, client: ClientId, handler: str, round_number: int, inbox: Inbox, turn: Turn | None = None
    ) -> Encoded | Failure:
        """Run a client's handler, and offload whoever is too many then.

        Raises:
            RunError: A state cannot be offloaded, or read again.
        """
        if handler not in STEPS and ((turn and turn[1]) or handler.removeprefix(CALL) not in READS_ONLY):
            self._changed.add(client)
        # While it works the one before stays: what both share is not made twice.
        reply = super().call(client, handler, round_number, inbox, turn)
        self._shrink()
        return reply

    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        """Have clients keep a copy of their models of a view; who is offloaded does so when it is back."""
        wanted = set(self.clients) if clients is None else set(self.clients).intersection(clients)
        super().remember(wanted, view)
        self._changed |= wanted & self._here.keys()
        for client in wanted - self._here.keys():
            self._to_remember[client] = tuple(sorted({*self._to_remember.get(client, ()), view}))

    def states(self, uncounted: Mapping[ClientId, int] = MappingProxyType({})) -> dict[ClientId, Any]:
        """Every client's state, without what was not counted, as a file.

        Args:
            uncounted: From which step on a client takes back what it changed.

        Raises:
            RunError: A state cannot be offloaded.
        """
        for client in self._here.keys() | uncounted.keys() & self._files.keys():
            self.get(client).settle(uncounted.get(client))
            if client in uncounted:
                self._changed.add(client)
        for client in [*self._here]:
            self._write(client)
        found = {}
        for client in self.clients:
            path, shared = self._files.get(client, (None, ()))
            found[client] = OffloadedState(path, self._to_remember.get(client, ()), shared)
        return found

    def load(self, states: Mapping[ClientId, Any]) -> None:
        """Put every client where it was.

        Raises:
            RunError: A file cannot be read, or a state cannot be offloaded.
        """
        for client, state in states.items():
            if isinstance(state, OffloadedState):
                self._forget(client)
                if state.path is not None:
                    self._keep(client, self._adopt_files(state.path, state.shared, client), state.shared)
                if state.remember:
                    self._to_remember[client] = state.remember
            else:
                super().load({client: state})
                self._to_remember.pop(client, None)
                self._changed.add(client)
                self._shrink()

    def finish(
        self, client: ClientId, embeddings: bool, study: bool, reported: Reported | None = None
    ) -> dict[str, Any]:
        """A client's models, embeddings, study and answers at the end of a run."""
        found = super().finish(client, embeddings, study, reported)
        self._shrink()
        return found

    # -- within ---------------------------------------------------------------------------------------------------

    def _shrink(self) -> None:
        """Park the longest unused clients; whoever is between two steps that belong together stays."""
        for client in [*self._here][: max(0, len(self._here) - self.limit)]:
            if self._here[client].client.can_be_offloaded:
                self._offload(client)

    def _offload(self, client: ClientId) -> None:
        self._write(client)
        self._numbers[client] = self._here[client].numbering, self._here[client].turn
        self._drop(client)

    def _write(self, client: ClientId) -> None:
        """Write a client's state, if there is anything new in it."""
        if client not in self._changed:
            return
        state, shared = split_shared(self._here[client].state())
        data = encode_tree(state)
        self._written += 1
        # Never over the old file: a checkpoint may be a link to it.
        path = self._folder / f"client-{client}.{self._written}"
        try:
            for digest, tensors in shared.items():
                write_shared(self._folder / digest, tensors)
            with path.open("wb") as file:
                file.write(data.data)
        except OSError as error:
            path.unlink(missing_ok=True)
            size = len(data) + sum(tensor.nbytes for tensors in shared.values() for tensor in tensors.values())
            raise RunError(
                f"client {client} had to make room for others, and its state ({size / 1e6:.1f} MB) could not be "
                f"written to {self._folder} ({error.strerror}). Free some space there, then continue with "
                f"--resume; run.resident_clients says how many clients stay in memory."
            ) from error
        self._keep(client, path, tuple(shared))
        self._changed.discard(client)
        self._to_remember.pop(client, None)

    def _adopt_files(self, path: Path, shared: Sequence[str], client: ClientId) -> Path:
        """The files of a checkpoint, under names of our own."""
        self._written += 1
        own = self._folder / f"client-{client}.{self._written}"
        for each, target in [(path, own), *((path.with_name(name), self._folder / name) for name in shared)]:
            link_or_copy(each, target)
        return own

    def _keep(self, client: ClientId, path: Path, shared: Sequence[str]) -> None:
        """This is a client's file from now on; the one before goes, and what nobody refers to any more."""
        self._shared.update(shared)
        self._unlink(client)
        self._files[client] = path, tuple(shared)

    def _unlink(self, client: ClientId) -> None:
        """Remove a client's file, if there is one, and what only it referred to."""
        if client not in self._files:
            return
        path, shared = self._files.pop(client)
        path.unlink(missing_ok=True)
        self._shared.subtract(shared)
        for name in shared:
            if not self._shared[name]:
                del self._shared[name]
                (self._folder / name).unlink(missing_ok=True)

    def _forget(self, client: ClientId) -> None:
        if client in self._here:
            self._drop(client)
        self._changed.discard(client)
        self._to_remember.pop(client, None)
        self._numbers.pop(client, None)
        self._unlink(client)

    def _drop(self, client: ClientId) -> None:
        """Let go of a client and of what only it derived from its graphs."""
        held = self._here.pop(client).client
        graphs = graphs_of(held.silo)
        self._graphs.subtract(graphs.keys())
        for number, graph in graphs.items():
            if self._graphs[number] <= 0:
                del self._graphs[number]
                forget_tensors(graph)
        held.release()
        if len(self._undead) >= max(16, self.limit):
            if any(gone() is not None for gone in self._undead):
                # Clients of this method hold themselves: only the collector, which is slow, finds them.
                gc.collect()
            self._undead = []
        self._undead.append(weakref.ref(held))


def pack_states(states: Mapping[ClientId, Any]) -> dict[str, Any]:
    """States as plain values and tensors, for another process of this machine; ``unpack_states`` takes them."""
    clients, shared = split_shared(
        {
            client: {
                "offloaded": state.path and str(state.path),
                "remember": list(state.remember),
                "shared": state.shared,
            }
            if isinstance(state, OffloadedState)
            else state
            for client, state in states.items()
        }
    )
    return {"clients": clients, "shared": {digest: dict(tensors) for digest, tensors in shared.items()}}


def unpack_states(tree: Mapping[str, Any]) -> dict[ClientId, Any]:
    """What ``pack_states`` was given; what this process holds already is not held twice."""
    shared = {digest: share_received(digest, tensors) for digest, tensors in tree["shared"].items()}
    return {
        client: OffloadedState(
            state["offloaded"] and Path(state["offloaded"]), tuple(state["remember"]), tuple(state["shared"])
        )
        if "offloaded" in state
        else join_shared(state, shared.__getitem__)
        for client, state in tree["clients"].items()
    }


def link_or_copy(path: Path, target: Path) -> None:
    """Another name for a file that is never written to again; a copy where the file system has no such names.

    Raises:
        RunError: The disk is full or cannot be written.
    """
    partial = target.with_name(f"{target.name}.part")
    try:
        try:
            os.link(path, target)
        except FileExistsError:
            return
        except OSError:
            shutil.copyfile(path, partial)
            partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunError(f"{path} could not be copied to {target} ({error.strerror}). Free some space there.") from error


def _read(path: Path, client: ClientId) -> Any:
    try:
        state = decode_tree(np.fromfile(path, dtype=np.uint8))
    except OSError as error:
        raise RunError(
            f"the offloaded state of client {client} at {path} cannot be read ({error.strerror}). Continue "
            f"with --resume."
        ) from error
    return join_shared(state, lambda digest: read_shared(path.with_name(digest)))
