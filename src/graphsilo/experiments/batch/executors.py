"""Where the runs of a batch are carried out: one interface, and the two places of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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

    def submit(self, order: Order, after_round: Callable[[], None]) -> Future[Reply]:
        """Begin an order; ``after_round`` is called after each of its rounds if it is carried out in this process."""

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

    def submit(self, order: Order, after_round: Callable[[], None]) -> Future[Reply]:
        done = Future[Reply]()
        done.set_result(carry_out(order, after_round))
        return done

    def close(self) -> None:
        pass


class Processes:
    """Processes of this machine, one torch thread each; a run whose process dies goes on in another."""

    def __init__(self, slots: int):
        self.slots = slots
        self._threads = ThreadPoolExecutor(slots)  # each waits for a process
        self._children: list[subprocess.Popen[str]] = []
        self._idle: list[subprocess.Popen[str]] = []
        self._closed = False

    def submit(self, order: Order, after_round: Callable[[], None]) -> Future[Reply]:
        return self._threads.submit(self._carry_out, order)

    def _carry_out(self, order: Order) -> Reply:
        """Give an order to a process, and to another one where that goes away, until that seems to be of no use."""
        from graphsilo.runtime.lost import describe_end

        why = "was ended"
        for _ in range(MAX_LOSSES):
            try:
                child = self._idle.pop()
            except IndexError:
                child = self._begin()
            if reply := _answer(child, order):
                self._idle.append(child)
                return dict(json.loads(reply))
            why = describe_end(child.wait())
            if self._closed:
                break
        error = f"its process {why}, {MAX_LOSSES} times. Called again, the batch goes on with it."
        return {"error": error, "stopped": False}

    def _begin(self) -> subprocess.Popen[str]:
        # In a session of its own, Ctrl-C reaches only whoever leads the batch.
        child = subprocess.Popen(
            [sys.executable, *loading.command("graphsilo.experiments.batch.child")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        self._children.append(child)
        if self._closed:
            child.terminate()
        return child

    def close(self) -> None:
        self._closed = True
        for child in self._children:
            child.terminate()  # what a run keeps is whole at any moment
        for child in self._children:
            try:
                child.wait(_LONGEST_END)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._threads.shutdown(cancel_futures=True)


def _answer(child: subprocess.Popen[str], order: Order) -> str:
    """A process's reply to an order; empty where there is nobody any more to take or to answer it."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
    except OSError:
        return ""
    return child.stdout.readline()
