"""Where the runs of a batch are carried out: one interface, and the two places of this machine."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from graphsilo import loading
from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.batch.orders import Order, Reply, carry_out

MAX_LOSSES = 3
"""Processes that may go away under one run before it counts as failed."""
_LONGEST_END = 10.0
"""Seconds that a process may take to end when it is asked to."""


class Executor(Protocol):
    """A place that carries out orders.

    Attributes:
        slots: How many at a time, from now on.
    """

    @property
    def slots(self) -> int: ...

    def submit(self, order: Order, after_round: Callable[[], None]) -> None:
        """Begin an order; ``after_round`` is called after each of its rounds if it is carried out in this process."""

    def ended(self, seconds: float) -> list[Reply]:
        """Replies to the orders that have ended since; waits so long at most for the first."""

    def close(self) -> None:
        """End what is going on; it can be gone on with."""


def executor_of(text: str | None) -> Executor:
    """The place that a text names: nothing is this process, ``processes:4``, ``dask://host:8786``.

    Raises:
        ConfigError: There is no such place, or it cannot be reached.
        UnsupportedError: It needs an extra that is not installed.
    """
    if not text:
        return InProcess()
    kind, _, rest = text.partition(":")
    if kind == "processes" and (not rest or (rest.isdecimal() and int(rest) > 0)):
        return Processes(int(rest) if rest else os.cpu_count() or 1)
    if kind in ("dask", "dask+tls") and urlsplit(text).netloc:
        from graphsilo.experiments.batch.cluster import Dask

        return Dask(urlsplit(text).netloc, secured=kind == "dask+tls")
    raise ConfigError(
        f"an executor is processes:N or dask://HOST:PORT; got '{text}'; {nearest(kind, ('processes', 'dask'))}"
    )


class InProcess:
    """One after the other, here."""

    slots = 1

    def __init__(self) -> None:
        self._replies: list[Reply] = []

    def submit(self, order: Order, after_round: Callable[[], None]) -> None:
        self._replies.append(carry_out(order, after_round))

    def ended(self, seconds: float) -> list[Reply]:
        found, self._replies = self._replies, []
        return found

    def close(self) -> None:
        pass


class Processes:
    """Processes of this machine, one torch thread each; a run whose process dies goes on in another."""

    def __init__(self, slots: int):
        self.slots = slots
        self._lines: queue.Queue[tuple[_Child, str]] = queue.Queue()
        self._children: list[_Child] = []
        self._losses: dict[str, int] = {}

    def submit(self, order: Order, after_round: Callable[[], None]) -> None:
        while True:
            child = next((child for child in self._children if child.order is None), None)
            if child is None:
                child = _Child(self._lines)
                self._children.append(child)
            if child.begin(order):
                return
            self._children.remove(child)  # it went away while nothing was asked of it

    def ended(self, seconds: float) -> list[Reply]:
        found: list[Reply] = []
        while True:
            try:
                child, line = self._lines.get(timeout=0 if found else seconds)
            except queue.Empty:
                return found
            if line:
                child.order = None
                found.append(json.loads(line))
            elif reply := self._lost(child):
                found.append(reply)

    def _lost(self, child: _Child) -> Reply | None:
        """A process has gone: its run is given to another one, until that seems to be of no use."""
        from graphsilo.runtime.lost import how_it_ended

        why, order = how_it_ended(child.process.wait()), child.order
        if child not in self._children or order is None:
            return None
        self._children.remove(child)
        name = order["name"]
        self._losses[name] = self._losses.get(name, 0) + 1
        if self._losses[name] < MAX_LOSSES:
            self.submit(order, lambda: None)
            return None
        return {
            "name": name,
            "error": f"its process {why}, {MAX_LOSSES} times. Called again, the batch goes on with it.",
            "stopped": False,
        }

    def close(self) -> None:
        for child in self._children:
            child.process.terminate()  # what a run keeps is whole at any moment
        for child in self._children:
            try:
                child.process.wait(_LONGEST_END)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._children.clear()


class _Child:
    """A process that carries out orders from its standard input, one by one."""

    def __init__(self, lines: queue.Queue[tuple[_Child, str]]):
        self.order: Order | None = None
        # In a session of its own, Ctrl-C reaches only whoever leads the batch.
        self.process = subprocess.Popen(
            [sys.executable, *loading.command("graphsilo.experiments.batch.child")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()

    def begin(self, order: Order) -> bool:
        """Send an order; says whether there is still somebody to take it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except OSError:
            return False
        self.order = order
        return True

    def _listen(self, lines: queue.Queue[tuple[_Child, str]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.put((self, line))
        lines.put((self, ""))
