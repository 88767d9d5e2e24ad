"""How a coordinator is, for whoever looks: the terminal, the status page, ``graphsilo federation status``. No torch.

KIT/run/status.json      rewritten every second or so
KIT/run/coordinator.log  every event, a line each
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from graphsilo.errors import RunError, one_line
from graphsilo.experiments.observer import Progress, RunStarted, Working
from graphsilo.experiments.service.jobs import Job
from graphsilo.experiments.storage import disk
from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.runtime.remote.sites import RemoteSites

KEPT_EVENTS = 60
KEPT_ROUNDS = 400
_SHOWN = ("seed", "index", "seeds", "round", "rounds", "best", "upload_bytes", "download_bytes", "seconds")
_EVERY = 1.0


class Status:
    """How a coordinator is, for whoever looks: kept in memory, written to ``run/status.json``."""

    def __init__(
        self,
        kit: Path,
        federation: str,
        silos: Mapping[ClientId, str],
        engine: str,
        sites: Mapping[str, Sequence[ClientId]],
    ):
        self.path = kit / "run" / "status.json"
        self.log = kit / "run" / "coordinator.log"
        self._lock = threading.Lock()
        self._sites: RemoteSites | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._rounds: deque[dict[str, Any]] = deque(maxlen=KEPT_ROUNDS)
        self._silos = dict(silos)
        self._places = {site: tuple(clients) for site, clients in sites.items()}
        self._tree: dict[str, Any] = {
            "federation": federation,
            "engine": engine,
            "pid": os.getpid(),
            "since": time.time(),
            "job": None,
        }
        self._written = 0.0
        self.listeners: list[Callable[[str], None]] = []

    def say(self, text: str) -> None:
        """Note an event, on one line: names and texts of silos are part of some, and must not pass for other lines."""
        text = one_line(text, 4000)
        with self._lock:
            self._events.append({"at": time.time(), "text": text})
            with contextlib.suppress(OSError):  # a log that cannot be written stops nothing
                self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        for listener in self.listeners:
            listener(text)

    def watch(self, sites: RemoteSites) -> None:
        """Show these sites from now on."""
        self._sites = sites

    def job(self, job: Job | None) -> None:
        """Show this job from now on."""
        with self._lock:
            old = self._tree["job"]
            if job is None or old is None or old["id"] != job.id:
                self._rounds.clear()
                self._tree["job"] = None if job is None else asdict(job)
            else:  # the curve of a job that has ended is still worth seeing
                old.update(asdict(job))
        self.write(force=True)

    def on_start(self, run: RunStarted) -> None:
        """A run begins, whose rounds are chosen by one of its scores."""
        with self._lock:
            if self._tree["job"] is not None and not run.label:
                self._tree["job"]["metric"] = run.config["evaluation"]["select_by"]

    def on_progress(self, progress: Progress) -> None:
        """A round has ended."""
        if progress.label:  # a reference row after the run itself, whose curve stays as it is
            self._working(f"for comparison, '{progress.label}': round {progress.round} of {progress.rounds}")
            return
        known = {name: getattr(progress, name) for name in _SHOWN}
        scores = {"validation": dict(progress.validation or {}), "test": dict(progress.test or {})}
        with self._lock:
            self._rounds.append({**{name: known[name] for name in ("seed", "round", "seconds")}, **scores})
            if self._tree["job"] is not None:
                self._tree["job"].update(known, work=None)
        self.write()

    def on_work(self, working: Working) -> None:
        """A step of a long piece of the server's work has ended."""
        self._working(str(working))

    def _working(self, text: str) -> None:
        with self._lock:
            if self._tree["job"] is not None:
                self._tree["job"]["work"] = text
        self.write()

    def tree(self) -> dict[str, Any]:
        """Everything, as plain values."""
        with self._lock:
            sites = []
            known = {} if self._sites is None else dict(self._sites.status)
            for site, clients in self._places.items():
                row: dict[str, Any] = {"state": "waiting", "since": self._tree["since"], "seconds": 0.0, "sent": 0}
                row.update(received=0, losses=0, note="")
                if site in known:
                    row = {key: value for key, value in asdict(known[site]).items() if key != "clients"}
                names = [self._silos.get(client, str(client)) for client in clients]
                sites.append({"site": site, "clients": list(clients), "silos": names, **row})
            return {
                **self._tree,
                "at": time.time(),
                "sites": sites,
                "rounds": list(self._rounds),
                "events": list(self._events),
            }

    def write(self, *, force: bool = False) -> None:
        """Rewrite the file, at most once a second."""
        now = time.monotonic()
        if not force and now - self._written < _EVERY:
            return
        self._written = now
        with contextlib.suppress(RunError, OSError):  # a full disk must not stop a run because of its status
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            disk.write_json(self.path, _plain(self.tree()))

    @contextlib.contextmanager
    def keep_fresh(self) -> Iterator[None]:
        """Keep the file young while a job takes its time."""
        end = threading.Event()

        def beat() -> None:
            while not end.wait(_EVERY):
                self.write()

        thread = threading.Thread(target=beat, daemon=True, name="status")
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(timeout=5)


def _plain(value: Any) -> Any:
    """The same without NaN, which JSON has no word for: msgspec writes null."""
    return msgspec.json.decode(msgspec.json.encode(value))


def read_status(kit: Path) -> dict[str, Any] | None:
    """What a coordinator last said of itself; None where nobody ever served this kit.

    Raises:
        RunError: The file cannot be read.
    """
    path = kit / "run" / "status.json"
    return dict(disk.read_json(path, "the coordinator's status")) if path.exists() else None


def json_text(tree: Mapping[str, Any]) -> str:
    """For the page and for ``--json``."""
    return json.dumps(_plain(dict(tree)), allow_nan=False)
