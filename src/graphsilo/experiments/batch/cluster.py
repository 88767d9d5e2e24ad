"""Dask as a place for runs: ``dask scheduler`` and ``dask worker`` on machines that share the folder of the runs.

Dask moves orders and replies, which are plain values, and gives a lost worker's orders to another one. It may do so
while the first still lives; the lock of the run's folder, which must hold between machines, lets only one of them go
on. Dask itself names the function to call by a pickle: who reaches the scheduler can run code on its workers.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from graphsilo.__about__ import __version__
from graphsilo.errors import ConfigError, RunError, library, one_line
from graphsilo.experiments.batch.orders import Order, Reply, carry_out, other_version

CONNECT_SECONDS = 8.0
WORKERS_SECONDS = 5.0
"""How long to wait for the scheduler, and for its first worker."""


class Dask:
    """The workers of a Dask scheduler, with a run at a time each.

    Args:
        address: ``host:port`` of the scheduler.
        secured: Whether it is reached by TLS, with the keys that Dask's own configuration names.

    Raises:
        UnsupportedError: Dask is not installed.
        ConfigError: The scheduler does not answer, has no workers, or workers that cannot be used.
    """

    def __init__(self, address: str, *, secured: bool = False):
        distributed = library("distributed", "cluster")
        self._address = address
        self._kept: set[Any] = set()  # of what nobody holds, Dask forgets the order
        self._checked: set[Path] = set()
        with _quiet():
            try:
                self._client = distributed.Client(
                    f"{'tls' if secured else 'tcp'}://{address}", timeout=CONNECT_SECONDS, set_as_default=False
                )
            except (OSError, ValueError, TimeoutError) as error:
                raise ConfigError(
                    f"no Dask scheduler answers at {address} ({one_line(error, 200)}). Start one there with `dask "
                    f"scheduler`, and on every machine that is to work `dask worker {address} --nthreads 1`."
                ) from None
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> int:
        """Workers now; while all are away, orders wait for the first to come back."""
        return max(1, len(self._threads()))

    def submit(self, order: Order, after_round: Callable[[], None]) -> Future[Reply]:
        self._check_folder(Path(order["out"]).parent)
        reply = Future[Reply]()

        def tell(ended: Any) -> None:
            self._kept.discard(ended)
            try:
                reply.set_result(self._reply(ended))
            except BaseException as error:
                reply.set_exception(error)

        with self._explain_loss():  # another batch's order is another one, though its run be the same: not pure
            future = self._client.submit(carry_out, order, pure=False)
        self._kept.add(future)
        future.add_done_callback(tell)
        return reply

    def close(self) -> None:
        with _quiet(), contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def _reply(self, future: Any) -> Reply:
        if future.status == "finished":
            return dict(future.result())
        if future.status != "error":
            raise self._gone()
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            text = "the workers that it was given to died one by one. Called again, the batch goes on with it."
        else:
            text = one_line(f"{type(error).__name__}: {error}")
        return {"error": text, "stopped": False}

    @contextlib.contextmanager
    def _explain_loss(self) -> Any:
        try:
            yield
        except OSError:
            raise self._gone() from None

    def _gone(self) -> RunError:
        return RunError(
            f"the Dask scheduler at {self._address} has gone. What was finished is on disk, and the same command goes "
            f"on with the rest."
        )

    def _threads(self) -> dict[str, int]:
        with self._explain_loss():
            return dict(self._client.nthreads())

    def _check_workers(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._client.wait_for_workers(1, timeout=WORKERS_SECONDS)
        threads = self._threads()
        if not threads:
            raise ConfigError(
                f"the Dask scheduler at {self._address} has no workers: start them with `dask worker {self._address} "
                f"--nthreads 1`, on as many machines as are to work."
            )
        if max(threads.values()) > 1:
            raise ConfigError(
                f"the Dask workers at {self._address} have up to {max(threads.values())} threads; a run takes a "
                f"process of one thread, or what it costs would not be its own. Start them with `dask worker "
                f"{self._address} --nthreads 1`, and with --nworkers N for N runs at a time on a machine."
            )
        try:
            versions = set(self._client.run(version).values())
        except ImportError as error:
            raise ConfigError(
                f"a Dask worker at {self._address} cannot import graphsilo ({one_line(error, 200)}): install the same "
                f"version, {__version__}, in the environment of every worker."
            ) from None
        for found in sorted(versions - {__version__}):
            raise ConfigError(f"of the Dask workers at {self._address}: {other_version(__version__, found)}")

    def _check_folder(self, folder: Path) -> None:
        """See that all workers share the folder, and its locks."""
        if folder in self._checked:
            return
        from graphsilo.experiments.storage import disk

        self._checked.add(folder)
        place = folder / f".shared-{uuid.uuid4().hex}"
        try:
            with disk.hold_folder(place), self._explain_loss():
                seen = self._client.run(look_at, str(place))
        finally:
            with contextlib.suppress(OSError):
                (place / ".lock").unlink(missing_ok=True)
                place.rmdir()
        strangers = sorted(worker for worker, found in seen.items() if found == "absent")
        unlocked = sorted(worker for worker, found in seen.items() if found == "unlocked")
        if strangers:
            raise ConfigError(
                f"the Dask worker {strangers[0]} does not see {folder}: runs are written to a folder that all machines "
                f"share under the same path. Choose another one with --out."
            )
        if unlocked:
            raise ConfigError(
                f"the Dask worker {unlocked[0]} sees {folder}, but not that a file in it is locked: its file system "
                f"keeps locks to one machine, so that two could write one run. Mount it with locks, as NFS 4 has "
                f"them, or choose another --out."
            )


def version() -> str:
    """The version of graphsilo, of a worker."""
    return __version__


def look_at(place: str) -> str:
    """What a worker sees of a folder that the batch's leader has locked: ``locked``, ``unlocked`` or ``absent``."""
    from graphsilo.experiments.storage import disk

    if not (Path(place) / ".lock").exists():
        return "absent"
    try:
        with disk.hold_folder(Path(place)):
            return "unlocked"
    except disk.BusyError:
        return "locked"


@contextlib.contextmanager
def _quiet() -> Any:
    """Dask says much of connections that it will not get."""
    loggers = [logging.getLogger(name) for name in ("distributed.client", "distributed.comm", "distributed.core")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
