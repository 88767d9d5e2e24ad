"""Watches a federation: time, bytes and memory of set-up, every round and every evaluation."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from graphsilo.federation.interface import Failure
from graphsilo.federation.wire import Encoded
from graphsilo.planning.plan import Connection, Cost
from graphsilo.runtime.exchange import Exchange
from graphsilo.types import ClientId

Emit = Callable[[dict[str, Any]], None]

_INTERVAL = 0.5
"""CPU seconds after which an unfinished step is reported, so that it is known if the process is ended."""


class TooLong(BaseException):
    """The trial has not come through set-up and two rounds in its time; no method may catch it."""


class Meter:
    """Splits a run into steps and measures each.

    Args:
        emit: Gets each step when it ends.
        limit: CPU seconds of the trial after which it ends if it has not come through two rounds.
        places: For each client, the worker process in which a run would have it.
        line: Joins sites with their coordinator; None measures no federation between machines.
    """

    def __init__(self, emit: Emit, limit: float, places: Mapping[ClientId, int], line: Connection | None = None):
        self.emit, self.limit, self.places, self.line = emit, limit, places, line
        self.began = self._reported = time.process_time()
        self._phase: tuple[str, int] | None = None

    def watch(self, federation: Exchange) -> None:
        """Measure every call of clients and every change of phase of this federation."""
        deliver, at = federation.deliver, federation.at

        def deliver_metered(
            handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
        ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
            if self._phase is None:  # outputs after the last round
                self._open("finish", 0)
            busy: dict[int, float] = defaultdict(float)
            slowest = 0.0
            answers = deliver(handler, round, outgoing)
            before = time.process_time()
            for client, reply in answers:
                spent = time.process_time() - before
                counts = federation.ledger.counts
                up = reply.num_bytes if counts and not isinstance(reply, Failure) else 0
                slowest = max(slowest, self._note(client, spent, up, outgoing[client].num_bytes if counts else 0))
                busy[self.places.get(client, 0)] += spent
                yield client, reply
                before = time.process_time()
            # A call waits for the process with most to do; between machines for the slowest site.
            self._wall += max(busy.values(), default=0.0)
            self._sites += slowest

        def enter_phase(phase: Any, round: int) -> None:
            self.close()
            at(phase, round)
            self._open(phase, round)

        # On the object: the run's own federation is used, whichever it is.
        vars(federation).update(deliver=deliver_metered, at=enter_phase)

    def add_download(self, clients: Mapping[ClientId, int]) -> None:
        """Clients get so many bytes without being asked anything."""
        for client, size in clients.items():
            self._note(client, 0.0, 0, size)

    def close(self) -> None:
        """The current step ends here."""
        if self._phase is not None:
            self.emit(self._measure("step"))
            self._phase = None

    def cpu_seconds(self) -> float:
        """CPU seconds of the trial so far."""
        return time.process_time() - self.began

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
        if now - self._reported > _INTERVAL:
            self._reported = now
            self.emit(self._measure("partial"))
        if now - self.began > self.limit:
            raise TooLong
        return 0.0 if self.line is None else cpu + self.line.seconds(up + down)

    def _measure(self, event: str) -> dict[str, Any]:
        phase, number = self._phase or ("finish", 0)
        cpu = time.process_time() - self._started
        server = max(0.0, cpu - self._clients)
        cost = Cost(
            cpu, server, server + self._wall, server + self._sites if self.line else 0.0,
            sum(self._up.values()), sum(self._down.values()),
            max(self._up.values(), default=0), max(self._down.values(), default=0),
        )  # fmt: skip
        return {
            "event": event, "phase": phase, "round": number, "cost": asdict(cost),
            "moved": {client: (up, self._down[client]) for client, up in self._up.items()},
            "lasted": time.perf_counter() - self._began,
        }  # fmt: skip
