"""Clients spread over processes of this machine, one torch thread each. Same numbers as in one process, bit for bit."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo.data.silo import Silo
from graphsilo.data.store import SiloStore
from graphsilo.errors import FederationError, RunError
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.codec import Encoded, decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime import frames
from graphsilo.runtime.in_process import LocalFederation, bundled
from graphsilo.types import ClientId


class WorkerPool:
    """Processes that hold silos for as long as a run lasts; each seed starts its clients anew.

    Args:
        silos: The silos of all clients; written once to a temporary folder that the workers map. Folders that a
            killed process left behind are removed first.
        workers: How many processes; client k lives in process k mod workers.
    """

    def __init__(self, silos: Sequence[Silo], workers: int):
        remove_abandoned()
        self.folder, self._lock = make_folder()
        self.processes: list[subprocess.Popen] = []
        self.connections: list[socket.socket] = []
        clients = [silo.client for silo in silos]
        workers = max(1, min(workers, len(clients)))
        self.clients_of = [tuple(clients[index::workers]) for index in range(workers)]
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
        """Start all clients for one seed."""
        for index, clients in enumerate(self.clients_of):
            header = {
                "do": "start",
                "store": str(self.folder),
                "client_class": [method.client.__module__, method.client.__qualname__],
                "config_class": [type(config).__module__, type(config).__qualname__],
                "config": config.model_dump(mode="json"),
                "clients": list(clients),
                "models": {str(client): [models[client].name, dict(models[client].settings)] for client in clients},
                "seed": seed,
                "device": device,
            }
            self.send(index, header)
        for index in range(len(self.processes)):
            self.answer(index)
        return Workers(self, ledger)

    def for_reference(self, name: str) -> WorkerPool:
        """A pool keeps nothing between seeds, so that references need no place of their own."""
        return self

    def recovering(self, lost: FederationError) -> None:
        """Workers of a pool are not started again while it runs."""
        raise lost

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
        if not header["ok"]:
            error = FederationError(
                f"the worker process of clients {_names(self.clients_of[index])} could not go on "
                f"({header['kind']}: {header['text']})."
            )
            error.add_note(header["trace"])
            raise error
        return header, payloads

    def died(self, index: int) -> FederationError:
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
        return FederationError(
            f"the worker process of clients {_names(self.clients_of[index])} {why}. Continue from the last checkpoint "
            f"with --resume, with fewer workers if memory is short."
        )

    def close(self) -> None:
        """End the processes and remove the temporary folder."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                frames.send(connection, {"do": "stop"})
            connection.close()
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes, self.connections = [], []
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


_PREFIX = "graphsilo-"
_LOCK = "owner.lock"


def make_folder() -> tuple[Path, int | None]:
    """A new temporary folder, and the lock on it, which holds until it is closed or the process ends.

    None in place of the lock where the file system has no locks; such a folder is never taken for an abandoned one.
    """
    import fcntl  # not on every system; neither are the sockets that worker processes inherit

    fresh = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    handle = os.open(fresh / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    lock: int | None = handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        (fresh / _LOCK).unlink()
        lock = None
    # Only now under the name that others look for: nobody ever sees it before it is locked.
    return fresh.rename(fresh.with_name(fresh.name.removeprefix("."))), lock


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process has gone without doing so (killed, out of memory).

    Whether it has gone is told by the lock, which ends with the process. A process number would not do: it may have
    been given to another, or belong to another container that shares the temporary folder.
    """
    import fcntl

    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # not of this kind, or just removed by another process
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # its process lives
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


class Workers(LocalFederation):
    """The federation over a pool, for one seed."""

    def __init__(self, pool: WorkerPool, ledger: Ledger | None = None):
        super().__init__([client for clients in pool.clients_of for client in clients], ledger)
        self.pool = pool
        self._worker = {client: index for index, clients in enumerate(pool.clients_of) for client in clients}

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
                for key, _ in selector.select():
                    index = key.data
                    header, payloads = self.pool.receive(index)
                    self.client_cpu_seconds += header["cpu"]
                    client = header["client"]
                    if "failure" in header:
                        early[client] = Failure(client, handler, *header["failure"])
                    else:
                        sizes = tuple((name, kind, size) for name, kind, size in header["fields"])
                        early[client] = Encoded(payloads[0], header["name"], sizes)
                    waiting[index] -= 1
                    if waiting[index] == 0:
                        selector.unregister(key.fileobj)

    def _gather(self, operation: str) -> dict[ClientId, Any]:
        found: dict[ClientId, Any] = {}
        for index, clients in enumerate(self.pool.clients_of):
            self.pool.send(index, {"do": operation, "clients": list(clients)})
        for index in range(len(self.pool.clients_of)):
            found.update(decode_tree(self.pool.answer(index)[1][0]))
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
            self.pool.send(index, {"do": "load"}, [encode_tree(part)])
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
