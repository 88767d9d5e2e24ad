"""Watches one seed of a run: time, bytes and memory of set-up, every round and every evaluation."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphsilo.errors import RunError
from graphsilo.experiments.seed import SeedRun
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.registry import Method
from graphsilo.federation.scaling import ScalingClient
from graphsilo.federation.server import ServerBase
from graphsilo.federation.wire import Encoded
from graphsilo.planning.connection import Connection
from graphsilo.planning.plan import Cost
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.machine import memory_use
from graphsilo.types import ClientId

Emit = Callable[[dict[str, Any]], None]

BREATH = 0.5
"""CPU seconds after which an unfinished step is reported, so that it is known if the process is ended."""
ENOUGH_ROUNDS = 10
"""After so many rounds a fifth of the time is enough."""


class Meter:
    """Splits a run into steps and measures each.

    Args:
        emit: Gets each step when it ends.
        give_up: Called between two clients' answers with the CPU seconds so far; ends the process that takes too long.
        places: For each client, the worker process in which a run would have it.
        line: Joins sites with their coordinator; None measures no federation between machines.
    """

    def __init__(
        self,
        emit: Emit,
        give_up: Callable[[float], None],
        places: Mapping[ClientId, int],
        line: Connection | None = None,
    ):
        self.emit, self.give_up, self.places, self.line = emit, give_up, places, line
        self._phase: tuple[str, int] | None = None
        self._reported = 0.0

    def watch(self, federation: Exchange) -> None:
        """Measure every call of clients and every change of phase of this federation."""
        deliver, at = federation.deliver, federation.at

        def watched(
            handler: str, round: int, outgoing: Mapping[ClientId, Encoded], timeout: float | None = None
        ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
            if self._phase is None:  # outputs after the last round
                self._open("finish", 0)
            busy: dict[int, float] = defaultdict(float)
            slowest = 0.0
            answers = deliver(handler, round, outgoing, timeout)
            before = time.process_time()
            for client, reply in answers:
                spent = time.process_time() - before
                up = 0 if isinstance(reply, Failure) else reply.num_bytes
                slowest = max(slowest, self._note(client, spent, up, outgoing[client].num_bytes))
                busy[self.places.get(client, 0)] += spent
                yield client, reply
                before = time.process_time()
            # A call waits for the process with most to do; between machines for the slowest site.
            self._wall += max(busy.values(), default=0.0)
            self._sites += slowest

        def moved(phase: Any, round: int) -> None:
            self.close()
            at(phase, round)
            self._open(phase, round)

        # On the object: the run's own federation is used, whichever it is.
        vars(federation).update(deliver=watched, at=moved)

    def sent(self, clients: Mapping[ClientId, int]) -> None:
        """Clients get so many bytes without being asked anything."""
        for client, size in clients.items():
            self._note(client, 0.0, 0, size)

    def close(self) -> None:
        """The current step ends here."""
        if self._phase is not None:
            self.emit(self._measured("step"))
            self._phase = None

    def _open(self, phase: str, number: int) -> None:
        self._phase = phase, number
        self._started, self._began = time.process_time(), time.perf_counter()
        self._clients = self._wall = self._sites = 0.0
        self._up: dict[ClientId, int] = defaultdict(int)
        self._down: dict[ClientId, int] = defaultdict(int)

    def _note(self, client: ClientId, cpu: float, up: int, down: int) -> float:
        """Count an answer; the seconds that a site would need for it."""
        self._clients += cpu
        self._up[client] += up
        self._down[client] += down
        now = time.process_time()
        if now - self._reported > BREATH:
            self._reported = now
            self.emit(self._measured("partial"))
        self.give_up(now)
        return 0.0 if self.line is None else cpu + (up + down) / self.line.bandwidth + 2 * self.line.latency

    def _measured(self, event: str) -> dict[str, Any]:
        phase, number = self._phase or ("finish", 0)
        cpu = time.process_time() - self._started
        server = max(0.0, cpu - self._clients)
        cost = Cost(
            cpu, server, server + self._wall, server + self._sites if self.line else 0.0,
            sum(self._up.values()), sum(self._down.values()),
            max(self._up.values(), default=0), max(self._down.values(), default=0),
        )  # fmt: skip
        lasted = time.perf_counter() - self._began
        return {
            "event": event, "phase": phase, "round": number, "cost": asdict(cost), "lasted": lasted,
            **memory_use()._asdict(),
        }  # fmt: skip


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
        known = {"event": "checkpoint", "final": final, "round": 0 if final else tree["progress"]["round"]}
        try:
            super().save(seed, tree, rows)
        except RunError:
            self.meter.emit({**known, "bytes": None, "cpu": 0.0})
            return
        cpu = time.process_time() - started
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".history":  # which the next one adds to
                path.unlink()
        self.meter.emit({**known, "bytes": size, "cpu": cpu})


class MeteredRun(SeedRun):
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
        self.meter.sent(dict.fromkeys(federation.clients, scale.num_bytes))
        self.meter.close()

    def _set_up(self, server: ServerBase[Any], federation: Exchange, ledger: Ledger, clock: Any) -> None:
        self.meter.emit({"event": "rounds", "rounds": server.rounds})
        super()._set_up(server, federation, ledger, clock)
        self.meter.close()

    def _round(self, number: int, server: ServerBase[Any], federation: Exchange, ledger: Ledger, clock: Any) -> None:
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
