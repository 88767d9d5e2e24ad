"""Clients spread over processes of this machine, one torch thread each. Same numbers as in one process, bit for bit."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphsilo.data.silo import Silo
from graphsilo.data.store import SiloStore
from graphsilo.errors import FederationError, RunError
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.codec import Encoded, decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger, Phase
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime import frames
from graphsilo.runtime.in_process import LocalFederation, bundled
from graphsilo.runtime.parking import Parking, received_states, sent_states
from graphsilo.runtime.placement import balanced, expected_work, graph_bytes
from graphsilo.runtime.remote_sites import StateLost
from graphsilo.runtime.temporary import make_folder, remove_abandoned, remove_folder
from graphsilo.types import ClientId

_MOST_LOSSES = 3
"""Times that worker processes may go without a round in between."""
_LONGEST_END = 20.0
"""Seconds that a process may take to end when it is told to; on a busy machine, Python needs some."""
_MOST_EARLY = 32
"""Answers that may wait in memory for those of clients before them."""


class WorkerLost(StateLost):
    """A worker process has gone, and with it the state of its clients."""

    def __init__(self, index: int, clients: Sequence[ClientId], why: str):
        FederationError.__init__(self, f"the worker process of clients {_names(clients)} {why}.")
        self.site = f"worker {index}"


class WorkerPool:
    """Processes that hold silos for as long as a run lasts; each seed starts its clients anew.

    Args:
        silos: The silos of all clients; written once to a temporary folder that the workers map. Folders that a
            killed process left behind are removed first.
        workers: How many processes; clients are spread over them by expected work.
        resident: Most clients in memory at once, over all processes; None for as many as fit.
        parking: Where the others' states go; None puts them beside the silos.

    Attributes:
        clients_of: Who lives in which process.
    """

    def __init__(
        self, silos: Sequence[Silo], workers: int, *, resident: int | None = None, parking: Parking | None = None
    ):
        remove_abandoned()
        self.folder, self._lock = make_folder()
        self.resident, self.parking = resident, parking or Parking(self.folder)
        self.processes: list[subprocess.Popen] = []
        self.connections: list[socket.socket] = []
        workers = max(1, min(workers, len(silos)))
        self.clients_of = balanced({silo.client: expected_work(silo) for silo in silos}, workers)
        sizes = {silo.client: graph_bytes(silo) for silo in silos}
        self._graph_bytes = [sum(sizes[client] for client in clients) for clients in self.clients_of]
        self._losses, self._reached = 0, (-1, 0)
        try:
            store = SiloStore(self.folder)
            for silo in silos:
                store.write(silo)
            for _ in range(workers):
                self._spawn()
        except OSError as error:
            self.close()
            raise RunError(
                f"{workers} worker processes could not be started ({error}). Free some disk space in "
                f"{tempfile.gettempdir()} or use fewer workers."
            ) from error

    def _spawn(self) -> None:
        mine, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "graphsilo.runtime.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.processes.append(process)
        self.connections.append(mine)

    def federation(
        self,
        method: Method,
        config: MethodConfig,
        models: Mapping[ClientId, ModelSpec],
        seed: int,
        device: str,
        ledger: Ledger | None = None,
    ) -> Workers:
        """Start all clients for one seed.

        Raises:
            WorkerLost: A process has gone.
            FederationError: A process cannot make its clients.
        """
        parked = self.parking.fresh()
        for index, clients in enumerate(self.clients_of):
            header = {
                "do": "start",
                "store": str(self.folder),
                "client_class": [method.client.__module__, method.client.__qualname__],
                "config_class": [type(config).__module__, type(config).__qualname__],
                "config": config.model_dump(mode="json"),
                "clients": list(clients),
                "models": {str(client): models[client].wire() for client in clients},
                "seed": seed,
                "device": device,
                "resident": self.resident,
                "graph_bytes": self._graph_bytes[index],
                "processes": len(self.clients_of),
                "parked": str(parked / str(index)),
            }
            self.send(index, header)
        for index in range(len(self.processes)):
            self.answer(index)
        return Workers(self, seed, ledger)

    def for_reference(self, name: str) -> WorkerPool:
        """A pool keeps nothing between seeds, so that references need no place of their own."""
        return self

    def recovering(self, lost: StateLost) -> None:
        """Start the processes anew, so that the seed can go on from its last checkpoint.

        All of them: the others stand in the middle of a round that begins again.

        Raises:
            FederationError: It has happened too often without a round in between.
        """
        self._losses += 1
        self._end(patience=0.0)
        if self._losses >= _MOST_LOSSES:
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

    def reached(self, seed: int, round: int) -> None:
        """A round begins; one that was not reached before shows that the processes are fit for work."""
        if seed != self._reached[0] or round > self._reached[1]:
            self._losses, self._reached = 0, (seed, round)

    def send(self, index: int, header: dict[str, Any], payloads: Sequence[Any] = ()) -> None:
        try:
            frames.send(self.connections[index], header, payloads)
        except OSError:
            raise self.died(index) from None

    def receive(self, index: int) -> tuple[dict[str, Any], list[Any]]:
        try:
            return frames.receive(self.connections[index])
        except (EOFError, OSError):
            raise self.died(index) from None

    def answer(self, index: int) -> tuple[dict[str, Any], list[Any]]:
        """The reply to anything but a call."""
        header, payloads = self.receive(index)
        self._check(index, header)
        return header, payloads

    def call_answer(self, index: int) -> tuple[dict[str, Any], list[Any]]:
        """The reply of one client to a call."""
        header, payloads = self.receive(index)
        if "client" not in header:
            self._check(index, header)
        return header, payloads

    def _check(self, index: int, header: dict[str, Any]) -> None:
        if header["ok"]:
            return
        text = f"({header['kind']}: {header['text']})"
        if header["kind"] == RunError.__name__:
            raise RunError(header["text"])  # such as a full disk: it says itself what to do
        error = FederationError(
            f"the worker process of clients {_names(self.clients_of[index])} could not go on {text}."
        )
        error.add_note(header["trace"])
        raise error

    def died(self, index: int) -> WorkerLost:
        """What to say of a process that has gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.processes[index].wait(timeout=5)
        code = self.processes[index].returncode
        why = "went away"
        if code is not None and code < 0:
            why = f"was killed by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                why += ", perhaps because memory ran out"
        elif code:
            why = f"ended with exit code {code}"
        return WorkerLost(index, self.clients_of[index], why)

    def close(self) -> None:
        """End the processes and remove the temporary folders."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                frames.send(connection, {"do": "stop"})
        self._end(patience=_LONGEST_END)
        remove_folder(self.folder, self._lock)
        self._lock = None
        self.parking.close()

    def _end(self, patience: float) -> None:
        """Wait for the processes so many seconds, then kill them."""
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes, self.connections = [], []


class Workers(LocalFederation):
    """The federation over a pool, for one seed."""

    def __init__(self, pool: WorkerPool, seed: int, ledger: Ledger | None = None):
        super().__init__([client for clients in pool.clients_of for client in clients], ledger)
        self.pool, self.seed = pool, seed
        self._worker = {client: index for index, clients in enumerate(pool.clients_of) for client in clients}

    def at(self, phase: Phase, round: int) -> None:
        super().at(phase, round)
        if phase == "round":
            self.pool.reached(self.seed, round)

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded], timeout: float | None = None
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        waiting: dict[int, int] = {}
        for index, clients in enumerate(self.pool.clients_of):
            asked = [client for client in clients if client in outgoing]
            if not asked:
                continue
            payloads, to = bundled(asked, outgoing)
            # A worker reads a whole frame before it answers, so sending to all first cannot block for ever.
            self.pool.send(index, {"do": "call", "handler": handler, "round": round, "to": to}, payloads)
            waiting[index] = len(asked)
        yield from self._in_order(handler, sorted(outgoing), waiting)

    def _in_order(
        self, handler: str, order: list[ClientId], waiting: dict[int, int]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        """Answers as they come, handed on by client number: sums are the same as in one process."""
        early: dict[ClientId, Encoded | Failure] = {}
        position = 0
        with selectors.DefaultSelector() as selector:
            for index in waiting:
                selector.register(self.pool.connections[index], selectors.EVENT_READ, index)
            while position < len(order):
                while position < len(order) and order[position] in early:
                    client = order[position]
                    position += 1
                    yield client, early.pop(client)
                if position == len(order):
                    return
                for index in self._ready(selector, order[position], len(early)):
                    header, payloads = self.pool.call_answer(index)
                    self.client_cpu_seconds += header["cpu"]
                    client = header["client"]
                    if "failure" in header:
                        early[client] = Failure(client, handler, *header["failure"])
                    else:
                        sizes = tuple((name, kind, size) for name, kind, size in header["fields"])
                        early[client] = Encoded(payloads[0], header["name"], sizes)
                    waiting[index] -= 1
                    if waiting[index] == 0:
                        selector.unregister(self.pool.connections[index])

    def _ready(self, selector: selectors.BaseSelector, needed: ClientId, early: int) -> list[int]:
        """Processes whose answer is to be read now; only the needed one while many others wait in memory."""
        if early >= _MOST_EARLY:
            return [self._worker[needed]]
        return [key.data for key, _ in selector.select()]

    def _gather(self, operation: str) -> dict[ClientId, Any]:
        found: dict[ClientId, Any] = {}
        for index, clients in enumerate(self.pool.clients_of):
            self.pool.send(index, {"do": operation, "clients": list(clients)})
        for index in range(len(self.pool.clients_of)):
            found.update(received_states(decode_tree(self.pool.answer(index)[1][0])))
        return dict(sorted(found.items()))

    def remember(self) -> None:
        for index in range(len(self.pool.clients_of)):
            self.pool.send(index, {"do": "remember"})
        for index in range(len(self.pool.clients_of)):
            self.pool.answer(index)

    def client_states(self) -> dict[ClientId, Any]:
        return self._gather("states")

    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        for index, clients in enumerate(self.pool.clients_of):
            part = {client: states[client] for client in clients if client in states}
            self.pool.send(index, {"do": "load"}, [encode_tree(sent_states(part))])
        for index in range(len(self.pool.clients_of)):
            self.pool.answer(index)

    def finish(self, *, embeddings: bool, study: bool = False) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        for client in self.clients:
            index = self._worker[client]
            self.pool.send(index, {"do": "finish", "client": client, "embeddings": embeddings, "study": study})
            yield client, decode_tree(self.pool.answer(index)[1][0])

    def peak_rss_bytes(self) -> int:
        peaks = [super().peak_rss_bytes()]
        for index in range(len(self.pool.clients_of)):
            self.pool.send(index, {"do": "memory"})
            peaks.append(self.pool.answer(index)[0]["bytes"])
        return max(peaks)


def _names(clients: Sequence[ClientId]) -> str:
    shown = ", ".join(str(client) for client in clients[:6])
    return shown + (f" and {len(clients) - 6} more" if len(clients) > 6 else "")
