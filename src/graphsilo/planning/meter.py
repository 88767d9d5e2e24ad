"""Watches one seed of a run: CPU time and bytes of every ask, client by client, and the memory of the process."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from graphsilo.errors import RunError
from graphsilo.experiments.seed import SeedRun
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.federation.codec import Encoded, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.registry import Method
from graphsilo.federation.scaling import ScalingClient
from graphsilo.federation.server import ServerBase
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.local.parking import ParkedState
from graphsilo.runtime.local.shared_files import lifted
from graphsilo.runtime.machine import resident
from graphsilo.types import ClientId

Emit = Callable[[dict[str, Any]], None]

BREATH = 0.5
"""CPU seconds after which an unfinished stretch is told, so that it is known if the process is ended."""
ENOUGH_ROUNDS = 10
"""After so many rounds a fifth of the time is enough."""


class Meter:
    """Splits the time of a run into stretches (set-up, each round, each evaluation) and asks.

    Args:
        emit: Told of each stretch when it ends.
        give_up: Called between two clients' answers; ends the process when it has taken too long.
    """

    def __init__(self, emit: Emit, give_up: Callable[[float], None]):
        self.emit, self.give_up = emit, give_up
        self._stretch: dict[str, Any] | None = None
        self._cpu = self._wall = self._told = 0.0
        self._summing = False

    def watch(self, federation: Exchange) -> None:
        """Hear of every ask and every change of phase of this federation."""
        deliver, at, add_up = federation.deliver, federation.at, federation.sum

        def watched(
            handler: str, round: int, outgoing: Mapping[ClientId, Encoded], timeout: float | None = None
        ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
            asked = self._asked(handler, outgoing)
            answers = deliver(handler, round, outgoing, timeout)
            while True:
                before = time.process_time()
                answer = next(answers, None)
                if answer is None:
                    return
                client, reply = answer
                up = 0 if isinstance(reply, Failure) else reply.num_bytes
                self._note(asked, client, time.process_time() - before, up, outgoing[client].num_bytes)
                yield answer

        def summed(handler: Any, request: Any, **options: Any) -> Any:
            self._summing = True
            try:
                return add_up(handler, request, **options)
            finally:
                self._summing = False

        def moved(phase: Any, round: int) -> None:
            self.close()
            at(phase, round)
            self._open(phase, round)

        # On the object: the run's own federation is used, whichever it is.
        vars(federation).update(deliver=watched, at=moved, sum=summed)

    def told(self, handler: str, clients: Iterable[ClientId], size: int) -> None:
        """Clients get a message of so many bytes without being asked anything."""
        asked = self._asked(handler, dict.fromkeys(clients))
        for client in clients:
            self._note(asked, client, 0.0, 0, size)

    def _open(self, phase: str, number: int) -> None:
        self._stretch = {"event": "stretch", "phase": phase, "round": number, "handlers": {}}
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def close(self) -> None:
        """The current stretch ends here."""
        if self._stretch is not None:
            self.emit(self._measured())
            self._stretch = None

    def _measured(self) -> dict[str, Any]:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return {**(self._stretch or {}), "cpu": cpu, "wall": wall, **resident()._asdict()}

    def _asked(self, handler: str, outgoing: Mapping[ClientId, Any]) -> dict[str, Any]:
        if self._stretch is None:  # between stretches, such as outputs after the last round
            self._open("finish", 0)
        handlers: dict[str, Any] = (self._stretch or {})["handlers"]
        found: dict[str, Any] = handlers.setdefault(handler, {"calls": 0, "asked": 0, "clients": {}, "summed": True})
        found["calls"] += 1
        found["asked"] += len(outgoing)
        found["summed"] &= self._summing
        return found

    def _note(self, asked: dict[str, Any], client: ClientId, cpu: float, up: int, down: int) -> None:
        row = asked["clients"].setdefault(client, [0, 0.0, 0, 0])
        row[0] += 1
        row[1] += cpu
        row[2] += up
        row[3] += down
        now = time.process_time()
        if now - self._told > BREATH:
            self._told = now
            self.emit({**self._measured(), "event": "partial"})
        self.give_up(now)


class Weighed(Checkpoints):
    """Checkpoints that are written as in a run, weighed, and removed."""

    def __init__(self, folder: Path, meter: Meter):
        super().__init__(folder, "0" * 64)
        self.meter = meter

    def save(self, seed: int, tree: Mapping[str, Any], rows: Mapping[str, list[Any]]) -> None:
        """Weigh it; a disk that has no room for it ends the trial's checkpoints, not the trial."""
        self.meter.close()
        started = time.process_time()
        final = "server" not in tree
        told = {"event": "checkpoint", "final": final, "round": 0 if final else tree["progress"]["round"]}
        try:
            super().save(seed, tree, rows)
        except RunError:
            self.meter.emit({**told, "bytes": None, "server": 0, "shared": 0, "cpu": 0.0})
            return
        cpu = time.process_time() - started
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".history":  # which the next one adds to
                path.unlink()
        server = 0 if final else encode_tree(tree["server"]).nbytes
        shared = 0 if final else _shared_bytes(tree["clients"])
        self.meter.emit({**told, "bytes": size, "server": server, "shared": shared, "cpu": cpu})


class Trial(SeedRun):
    """One seed that ends by itself after a few rounds.

    Attributes:
        meter: Watches it.
        seconds: CPU seconds after which it ends, once it has done its fewest rounds.
    """

    meter: Meter
    seconds: float

    def federation(self, ledger: Ledger) -> Exchange:
        """The run's own federation, watched."""
        started = time.process_time()
        found = super().federation(ledger)
        self.meter.emit({"event": "created", "cpu": time.process_time() - started})
        self.meter.watch(found)
        return found

    def _clients(self, method: Method, ledger: Ledger) -> Exchange:
        found = super()._clients(method, ledger)
        if method.client is ScalingClient:
            self.meter.watch(found)
        return found

    def _hand_out(self, scale: Encoded, federation: Exchange) -> None:
        super()._hand_out(scale, federation)
        self.meter.told("scale", federation.clients, scale.num_bytes)
        self.meter.close()

    def _set_up(self, server: ServerBase, federation: Exchange, ledger: Ledger, clock: Any) -> None:
        self.meter.emit({"event": "rounds", "rounds": server.rounds})
        super()._set_up(server, federation, ledger, clock)
        self.meter.close()

    def _round(self, number: int, server: ServerBase, federation: Exchange, ledger: Ledger, clock: Any) -> None:
        super()._round(number, server, federation, ledger, clock)
        self.meter.close()
        spent = time.process_time()
        enough = spent >= self.seconds or (number >= ENOUGH_ROUNDS and spent >= self.seconds / 5)
        self.progress.stopped = number >= 2 and enough
        run = self.config.run
        # Clients that make room for others leave their states on disk, in checkpoints or not: they are weighed, too.
        weighed = run.checkpoint_every != 0 or run.resident_clients is not None
        if weighed and number < server.rounds and (number == 1 or self.progress.stopped):
            self._save(server, federation, ledger, clock)
        if number == server.rounds or self.progress.stopped:
            self.meter.emit({"event": "ledger", "round": number, **_weight(ledger)})


def _shared_bytes(states: Mapping[ClientId, Any]) -> int:
    """Of what clients share: it stands in a checkpoint once, however many there are."""
    files = {
        state.path.with_name(name)
        for state in states.values()
        if isinstance(state, ParkedState) and state.path is not None
        for name in state.shared
    }
    _, held = lifted([state for state in states.values() if not isinstance(state, ParkedState)])
    in_memory = sum(tensor.nbytes for tensors in held.values() for tensor in tensors.values())
    return in_memory + sum({path.name: path.stat().st_size for path in files}.values())


def _weight(ledger: Ledger) -> dict[str, Any]:
    """Entries of a ledger by phase, and what one takes in memory and as a row of a table."""
    entries = ledger._entries
    seen: set[int] = set()
    some = list(islice(entries.items(), 500))
    size = sum(_deep(item, seen) for item in some)
    rows = sum(len(entry[2]) + 1 for _, entry in some)
    number = max(1, len(some))
    return {"entries": len(entries), "entry_bytes": size / number, "entry_rows": rows / number}


def _deep(item: Any, seen: set[int]) -> int:
    """Bytes of an object and what it holds; what several hold counts once."""
    if id(item) in seen:
        return 0
    seen.add(id(item))
    inside = sum(_deep(part, seen) for part in item) if isinstance(item, tuple | list) else 0
    return sys.getsizeof(item) + inside
