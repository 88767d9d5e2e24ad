"""Independent runs, one after the other or many at a time: here, in processes of this machine, on a Dask cluster.

Where they are carried out changes no number. Every run writes a folder of its own, under the lock that every run
holds: a run that is begun a second time while the first goes on waits for it and finds it done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphsilo.errors import ConfigError, GraphsiloError
from graphsilo.experiments.batch.executors import Executor, executor_of
from graphsilo.experiments.batch.orders import Reply, order_of

__all__ = ["Executor", "Outcome", "Task", "executor_of", "run"]

LOOK_EVERY = 0.2
"""Seconds between two looks at runs elsewhere, where somebody follows them."""


@dataclass(frozen=True)
class Task:
    """A run to make.

    Attributes:
        name: What messages call it; no two in a batch have the same.
        config: Its settings, by section or by dotted name: ``{"data.name": "Cora", "method.mu": 0.1}``.
        out: Its folder, which no other task has.
    """

    name: str
    config: Mapping[str, Any]
    out: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        name, out: Of the task.
        error: Why there is no result, in a paragraph; None where there is one.
        stopped: Whether that is because the folder holds the order to stop; see ``orders``.
    """

    name: str
    out: Path
    error: str | None = None
    stopped: bool = False


def run(
    tasks: Iterable[Task], executor: str | Executor | None = None, *, follow: Callable[[], None] | None = None
) -> Iterator[Outcome]:
    """Carry out tasks, and give what became of each as it ends.

    A folder that holds the finished run of the same settings is left as it is, one with an unfinished run is gone on
    with. A run that fails is an outcome, too, and does not end the others. Whatever ends the batch, calling it again
    goes on.

    Args:
        tasks: The next one is asked for when there is room for it, after what has ended was given.
        executor: As ``executor_of`` takes it; or an executor, which stays open.
        follow: Called after every round of runs in this process, and now and then during others; every run then notes
            its validation scores in its folder and looks there for the order to stop.

    Raises:
        ConfigError: Two tasks share a name or a folder, or there is no such executor.
        RunError: The executor has gone; what ended before is on disk.
    """
    following = follow or (lambda: None)
    with contextlib.ExitStack() as stack:
        if executor is None or isinstance(executor, str):
            executor = stack.enter_context(contextlib.closing(executor_of(executor)))
        if isinstance(tasks, Sequence):  # all are known: refused before anything is run
            tasks = list(_check_distinct(tasks))
        waiting, running = _check_distinct(tasks), dict[Future[Reply], Task]()
        more = True
        while more or running:
            while more and len(running) < executor.slots:
                task = next(waiting, None)
                if task is None:
                    more = False
                    break
                try:
                    order = order_of(task.name, task.config, task.out, followed=follow is not None)
                except GraphsiloError as error:
                    yield Outcome(task.name, Path(task.out), str(error))
                    continue
                running[executor.submit(order, following)] = task
            wait(running, LOOK_EVERY, FIRST_COMPLETED)
            for future in [future for future in running if future.done()]:
                following()
                task, reply = running.pop(future), future.result()
                yield Outcome(task.name, Path(task.out), reply["error"], reply["stopped"])
            following()


def _check_distinct(tasks: Iterable[Task]) -> Iterator[Task]:
    """The tasks, of which no two may share a name or a folder."""
    seen = set()
    for task in tasks:
        for what, value in (("name", task.name), ("folder", Path(task.out).resolve())):
            if (what, value) in seen:
                raise ConfigError(f"every task of a batch has a {what} of its own; '{value}' came twice.")
            seen.add((what, value))
        yield task
