"""Clients spread over processes of this machine, one torch thread each. Same numbers as in one process, bit for bit.

The process that coordinates is one of them: it holds clients as well, fewer for what else it has to do. A process of
its own for coordinating would need a core of its own, or take turns with a worker at every answer.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo import loading
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.store import SiloStore
from graphsilo.errors import FederationError, RunError, several
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger, Phase
from graphsilo.federation.model_files import scale_tensors
from graphsilo.federation.own import Own, address_of
from graphsilo.federation.trust import list_allowed
from graphsilo.federation.wire import Encoded
from graphsilo.runtime.alone import classes_of
from graphsilo.runtime.dispatch import Inbox
from graphsilo.runtime.exchange import Exchange, bundle
from graphsilo.runtime.hosted import NOBODY, Reported
from graphsilo.runtime.local.clients import ClientCache
from graphsilo.runtime.local.frames import Channel, Ring
from graphsilo.runtime.local.offload_folder import OffloadFolder
from graphsilo.runtime.local.offloading import pack_states, unpack_states
from graphsilo.runtime.local.placement import MemoryBudget, graph_bytes
from graphsilo.runtime.local.spread import expected_work, spread_clients
from graphsilo.runtime.local.temporary import make_folder, remove_abandoned, remove_folder
from graphsilo.runtime.lost import MAX_LOSSES, StateLost, describe_end
from graphsilo.runtime.setup import ClientSetup
from graphsilo.types import ClientId

_LONGEST_END = 20.0
"""Seconds that a process may take to end when it is asked to; on a busy machine, Python needs some."""
MAX_EARLY = 32
"""Answers that may wait in memory for those of clients before them."""
MAX_EARLY_BYTES = 256 << 20
"""Bytes of them, and one more answer of each process."""


class WorkerLost(StateLost):
    """A worker process has gone, and with it the state of its clients."""

    def __init__(self, index: int, clients: Sequence[ClientId], why: str):
        FederationError.__init__(self, f"the worker process of clients {several(clients, 6)} {why}.")
        self.site = f"worker {index}"


class WorkerPool:
    """Processes that hold silos for as long as a run lasts; each seed starts its clients again.

    Args:
        silos: The silos of all clients; those of other processes are written once to a temporary folder that they map.
            Folders that a killed process left behind are removed first.
        workers: How many processes, this one included; clients are spread over them by expected work.
        resident: Most clients in memory at once, over all processes; None for as many as fit.
        offload_folder: Where the others' states go; None puts them beside the silos.
        own: Models that a person brought along, by name: every process must know them.

    Attributes:
        here: Who lives in this process.
        clients_of: Who lives in which of the others.
    """

    def __init__(
        self,
        silos: Sequence[Silo],
        workers: int,
        *,
        resident: int | None = None,
        offload_folder: OffloadFolder | None = None,
        own: Mapping[str, Own] | None = None,
    ):
        self.own = own or {}
        remove_abandoned()
        self.folder, self._lock = make_folder()
        self.resident, self.offload_folder = resident, offload_folder or OffloadFolder(self.folder)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.channels: list[Channel] = []
        workers = max(1, min(workers, len(silos)))
        self.here, *self.clients_of = spread_clients({silo.client: expected_work(silo) for silo in silos}, workers)
        self._silos = {silo.client: silo for silo in silos if silo.client in self.here}
        sizes = {silo.client: graph_bytes(silo) for silo in silos}
        self._graph_bytes = [sum(sizes[client] for client in clients) for clients in (self.here, *self.clients_of)]
        self._losses, self._reached = 0, (-1, 0)
        try:
            store = SiloStore(self.folder)
            for silo in silos:
                if silo.client not in self.here:
                    store.write(silo)
            for _ in self.clients_of:
                self._spawn()
        except OSError as error:
            self.close()
            raise RunError(
                f"{workers} worker processes could not be started ({error}). Free some disk space in "
                f"{tempfile.gettempdir()} or use fewer workers."
            ) from error

    def _spawn(self) -> None:
        mine, theirs = socket.socketpair()
        down, up = Ring.make(), Ring.make()
        descriptors = [theirs.fileno(), *(-1 if ring is None else ring.descriptor for ring in (down, up))]
        # What can be imported here can be there: a package beside the script that was started, too.
        path = os.pathsep.join(sys.path)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": path}
        process = subprocess.Popen(
            [sys.executable, *loading.command("graphsilo.runtime.local.worker", *map(str, descriptors))],
            pass_fds=[descriptor for descriptor in descriptors if descriptor >= 0],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.processes.append(process)
        self.channels.append(Channel(mine, down, up))

    def federation(self, setup: ClientSetup, ledger: Ledger | None = None) -> Workers:
        """Start all clients for one seed.

        Raises:
            WorkerLost: A process has gone.
            FederationError: A process cannot make its clients.
        """
        offloaded, processes = self.offload_folder.make_empty(), 1 + len(self.clients_of)
        for index, clients in enumerate(self.clients_of):
            header = {
                "do": "start",
                "store": str(self.folder),
                "own": [[name, *own] for name, own in self.own.items()],
                "client_class": [address_of(kind) for kind in classes_of(setup.method.client)],
                "config_class": address_of(type(setup.config)),
                "clients": list(clients),
                "models": {str(client): setup.models[client].wire() for client in clients},
                "resident": self.resident,
                "graph_bytes": self._graph_bytes[1 + index],
                "processes": processes,
                "offloaded": str(offloaded / str(1 + index)),
                "allowed": list_allowed(),
                "beside": None if setup.beside is None else str(setup.beside),
                **setup.tree(),
            }
            self.send(index, header, [] if setup.scale is None else [encode_tree(scale_tensors(setup.scale))])

        def folder() -> Path:
            place = offloaded / "0"
            place.mkdir(exist_ok=True)
            return place

        here = ClientCache.within(
            self.here,
            lambda client: setup.client(self._silos[client]),
            MemoryBudget(self.resident, self._graph_bytes[0], folder, processes),
        )
        self.answers()
        return Workers(self, here, setup.seed, ledger)

    def for_reference(self, name: str) -> WorkerPool:
        """A pool keeps nothing between seeds, so that references need no place of their own."""
        return self

    def recover(self, lost: StateLost) -> None:
        """Start the processes again, so that the seed can go on from its last checkpoint.

        All of them: the others stand in the middle of a round that begins again.

        Raises:
            FederationError: It has happened too often without a round in between.
        """
        self._losses += 1
        self._end(patience=0.0)
        if self._losses >= MAX_LOSSES:
            raise FederationError(
                f"{str(lost).removesuffix('.')}, {self._losses} times without a round in between. Continue from the "
                f"last checkpoint with --resume; if memory is short, with fewer workers or a smaller "
                f"run.resident_clients."
            ) from lost
        try:
            for _ in self.clients_of:
                self._spawn()
        except OSError as error:
            raise RunError(f"{str(lost).removesuffix('.')}, and no other could be started ({error}).") from error

    def note_round(self, seed: int, round: int) -> None:
        """A round begins; one that was not reached before shows that the processes are fit for work."""
        if seed != self._reached[0] or round > self._reached[1]:
            self._losses, self._reached = 0, (seed, round)

    def send(self, index: int, header: dict[str, Any], payloads: Sequence[Any] = ()) -> None:
        try:
            self.channels[index].send(header, payloads)
        except OSError:
            raise self.explain_end(index) from None

    def answer(self, index: int) -> tuple[Mapping[str, Any], list[Any]]:
        """The next reply of a process: one client's to a call, or the process's to anything else."""
        try:
            header, payloads = self.channels[index].receive()
        except (EOFError, OSError):
            raise self.explain_end(index) from None
        if "client" in header or header["ok"]:
            return header, payloads
        text = f"({header['kind']}: {header['text']})"
        if header["kind"] == RunError.__name__:
            raise RunError(header["text"])  # such as a full disk: it says itself what to do
        error = FederationError(
            f"the worker process of clients {several(self.clients_of[index], 6)} could not go on {text}."
        )
        error.add_note(header["trace"])
        raise error

    def send_all(self, header: dict[str, Any]) -> None:
        for index in range(len(self.channels)):
            self.send(index, header)

    def answers(self) -> list[tuple[Mapping[str, Any], list[Any]]]:
        """The reply of every process to what it was sent before."""
        return [self.answer(index) for index in range(len(self.channels))]

    def explain_end(self, index: int) -> WorkerLost:
        """What to say of a process that has gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.processes[index].wait(timeout=5)
        code = self.processes[index].returncode
        return WorkerLost(index, self.clients_of[index], describe_end(code) if code else "went away")

    def close(self) -> None:
        """End the processes and remove the temporary folders."""
        for channel in self.channels:
            with contextlib.suppress(OSError):
                channel.send({"do": "stop"})
        self._end(patience=_LONGEST_END)
        remove_folder(self.folder, self._lock)
        self._lock = None
        self.offload_folder.close()

    def _end(self, patience: float) -> None:
        """Wait for the processes so many seconds, then kill them."""
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes, self.channels = [], []


class Workers(Exchange):
    """The federation over a pool, for one seed.

    Args:
        pool: The other processes.
        here: The clients of this one.
        seed: The seed.
        ledger: Where bytes are noted.
    """

    def __init__(self, pool: WorkerPool, here: ClientCache, seed: int, ledger: Ledger | None = None):
        super().__init__([*here.clients, *(client for clients in pool.clients_of for client in clients)], ledger)
        self.pool, self.here, self.seed = pool, here, seed
        self._worker = {client: index for index, clients in enumerate(pool.clients_of) for client in clients}

    def at(self, phase: Phase, round: int) -> None:
        super().at(phase, round)
        if phase == "round":
            self.pool.note_round(self.seed, round)

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        waiting: dict[int, int] = {}
        for index, clients in enumerate(self.pool.clients_of):
            asked = [client for client in clients if client in outgoing]
            if not asked:
                continue
            payloads, to = bundle(asked, outgoing)
            # A worker reads a whole frame before it answers, so sending to all first cannot block for ever.
            header = {"do": "call", "handler": handler, "round": round, "to": to, "step": self.turn}
            self.pool.send(index, {**header, "back": list(self.back.items())}, payloads)
            waiting[index] = len(asked)
        inboxes: dict[int, Inbox] = {}

        def call(client: ClientId) -> Encoded | Failure:
            encoded = outgoing[client]
            with self._time_client(client):
                inbox = inboxes.setdefault(id(encoded), Inbox(encoded.data))
                return self.here.call(client, handler, round, inbox, (self.turn, self.back.get(client)))

        yield from self._yield_in_order(handler, sorted(outgoing), waiting, call)

    def _yield_in_order(
        self,
        handler: str,
        order: list[ClientId],
        waiting: dict[int, int],
        call: Callable[[ClientId], Encoded | Failure],
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        """Answers handed on by client number, so that sums are the same as in one process.

        While an answer of another process is not there yet, clients of this one are called; what comes before its turn
        waits in memory, up to a limit.
        """
        early: dict[ClientId, Encoded | Failure] = {}
        own = deque(client for client in order if client not in self._worker)
        with selectors.DefaultSelector() as selector:
            for index in waiting:
                selector.register(self.pool.channels[index], selectors.EVENT_READ, index)
            for needed in order:
                while needed not in early:
                    full = len(early) >= MAX_EARLY or _size(early) >= MAX_EARLY_BYTES
                    at_home = needed not in self._worker
                    if full and not at_home:  # only the one that is needed, whoever else is ready
                        self._read(handler, self._worker[needed], early, waiting, selector)
                        continue
                    if not full and waiting:
                        ready = selector.select(0 if own else None)
                        for key, _ in ready:
                            self._read(handler, key.data, early, waiting, selector)
                    if needed not in early and own:
                        # The needed one is the first of them where it is at home: both are in order.
                        client = own.popleft()
                        early[client] = call(client)
                yield needed, early.pop(needed)

    def _read(
        self,
        handler: str,
        index: int,
        early: dict[ClientId, Encoded | Failure],
        waiting: dict[int, int],
        selector: selectors.BaseSelector,
    ) -> None:
        """Take one answer of a process."""
        header, payloads = self.pool.answer(index)
        client = header["client"]
        self._note_elsewhere(client, header["cpu"])
        if "failure" in header:
            early[client] = Failure(client, handler, *header["failure"])
        else:
            sizes = tuple((name, kind, size) for name, kind, size in header["fields"])
            early[client] = Encoded(payloads[0], header["name"], sizes)
        waiting[index] -= 1
        if waiting[index] == 0:
            del waiting[index]
            selector.unregister(self.pool.channels[index])

    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        whose = None if clients is None else sorted(clients)
        self.pool.send_all({"do": "remember", "clients": whose, "view": view})
        self.here.remember(clients, view)
        self.pool.answers()

    def client_states(self) -> dict[ClientId, Any]:
        self.pool.send_all({"do": "states", "back": list(self.uncounted.items())})
        found = dict(self.here.states(self.uncounted))
        for _, payloads in self.pool.answers():
            found.update(unpack_states(decode_tree(payloads[0])))
        return dict(sorted(found.items()))

    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        for index, clients in enumerate(self.pool.clients_of):
            part = {client: states[client] for client in clients if client in states}
            self.pool.send(index, {"do": "load"}, [encode_tree(pack_states(part))])
        self.here.load({client: states[client] for client in self.here.clients if client in states})
        self.pool.answers()

    def finish(
        self, *, embeddings: bool, study: bool = False, reported: Mapping[ClientId, Reported] = NOBODY
    ) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        for client in self.clients:
            if client not in self._worker:
                yield client, self.here.finish(client, embeddings, study, reported.get(client))
                continue
            index = self._worker[client]
            asked = {"client": client, "embeddings": embeddings, "study": study, "reported": reported.get(client)}
            self.pool.send(index, {"do": "finish"}, [encode_tree(asked)])
            yield client, decode_tree(self.pool.answer(index)[1][0])

    def peak_rss_bytes(self) -> int:
        self.pool.send_all({"do": "memory"})
        return max([super().peak_rss_bytes(), *(int(header["bytes"]) for header, _ in self.pool.answers())])


def _size(answers: Mapping[ClientId, Encoded | Failure]) -> int:
    return sum(answer.num_bytes for answer in answers.values() if isinstance(answer, Encoded))
