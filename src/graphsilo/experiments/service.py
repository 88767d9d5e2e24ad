"""What a coordinator does for as long as it serves: takes jobs one after the other, and tells how they are.

Everything it must not lose is a file in its kit, so that a coordinator that was killed goes on where it was:

    KIT/jobs/0001-fedavg/   config.yaml, job.json (state), out/ (the run's folder)
    KIT/run/status.json     how things are, rewritten every second or so; what ``federation status`` and the page show
    KIT/run/coordinator.log every event, a line each

A job is submitted by making its folder, whether a coordinator is serving or not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from graphsilo.errors import ConfigError, GraphsiloError, RunError, nearest
from graphsilo.experiments import disk
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.observer import Observer, Progress, Silent
from graphsilo.experiments.remote import check_remote, run_over
from graphsilo.experiments.results import Result
from graphsilo.runtime.remote import RemoteSites
from graphsilo.runtime.transport import Transport
from graphsilo.types import ClientId

JobState: TypeAlias = Literal["queued", "running", "done", "failed", "stopped"]
KEPT_EVENTS = 60
KEPT_ROUNDS = 400
_EVERY = 1.0


class Stopped(RunError):
    """Somebody asked for the job to be stopped."""


@dataclass(frozen=True)
class Job:
    """One job of a coordinator.

    Attributes:
        id: Name of its folder.
        state: How it is.
        submitted, started, finished: Unix times, 0 where not yet.
        method: Which method it runs.
        out: Folder of its results.
        error: Why it failed.
    """

    id: str
    state: JobState
    submitted: float
    method: str
    out: str
    started: float = 0.0
    finished: float = 0.0
    error: str = ""


class Jobs:
    """The jobs in a coordinator's kit.

    Args:
        kit: The kit's folder.
    """

    def __init__(self, kit: Path):
        self.folder = kit / "jobs"

    def submit(self, config: str | Path, *, out: str | Path | None = None, assignments: Sequence[str] = ()) -> Job:
        """Put a configuration in the queue; it is checked now, and kept as it is.

        Raises:
            ConfigError: The configuration is wrong, or asks for what silos apart cannot do.
        """
        import yaml

        checked = load_config(config, assignments=assignments)
        checked.method_config()
        check_remote(checked)
        numbers = [int(job.id.partition("-")[0]) for job in self.all()]
        identity = f"{max(numbers, default=0) + 1:04d}-{re.sub(r'[^a-z0-9]+', '-', checked.method.name.lower())}"
        place = self.folder / identity
        place.mkdir(parents=True, mode=0o700)
        tree = checked.model_dump(mode="json", exclude_unset=True)
        if "checkpoint_every" not in checked.run.model_fields_set:
            # Between machines a crash is no rarity, and a lost round costs everybody's time.
            tree.setdefault("run", {})["checkpoint_every"] = 1
        disk.write_text(place / "config.yaml", yaml.safe_dump(tree, sort_keys=False))
        target = Path(out).absolute() if out is not None else place / "out"
        job = Job(identity, "queued", time.time(), checked.method.name, str(target))
        self.write(job)
        return job

    def all(self) -> list[Job]:
        """All jobs, oldest first. A folder whose job cannot be read is left out."""
        found = []
        for path in sorted(self.folder.glob("[0-9]*-*/job.json")):
            with contextlib.suppress(RunError, TypeError):
                found.append(Job(**disk.read_json(path, "a job")))
        return found

    def get(self, identity: str) -> Job:
        """A job by its id or its number.

        Raises:
            ConfigError: There is none.
        """
        jobs = self.all()
        for job in jobs:
            if identity in (job.id, job.id.partition("-")[0].lstrip("0")):
                return job
        raise ConfigError(f"there is no job '{identity}'; {nearest(identity, [job.id for job in jobs])}")

    def write(self, job: Job) -> None:
        disk.write_json(self.folder / job.id / "job.json", asdict(job))

    def config_path(self, job: Job) -> Path:
        return self.folder / job.id / "config.yaml"

    def ask_stop(self, job: Job) -> None:
        """Have a queued or running job stopped after its current round. It can be continued with ``go_on``."""
        if job.state == "queued":
            self.write(replace(job, state="stopped", finished=time.time()))
        elif job.state == "running":
            disk.write_text(self.folder / job.id / "stop", "")

    def wanted_stop(self, job: Job) -> bool:
        return (self.folder / job.id / "stop").exists()

    def go_on(self, job: Job) -> None:
        """Put a stopped or failed job back in the queue; it continues from its checkpoint."""
        (self.folder / job.id / "stop").unlink(missing_ok=True)
        self.write(replace(job, state="queued", finished=0.0, error=""))

    def next(self) -> Job | None:
        """The job to carry out: one that was running when the coordinator died comes first."""
        jobs = self.all()
        for state in ("running", "queued"):
            for job in jobs:
                if job.state == state:
                    return job
        return None


class Status:
    """How a coordinator is, for whoever looks: kept in memory, written to ``run/status.json``.

    Args:
        kit: The kit's folder.
        federation: Its name.
        silos: Names of the silos by client number.
        engine: Name of the engine.
    """

    def __init__(self, kit: Path, federation: str, silos: Mapping[ClientId, str], engine: str):
        self.path = kit / "run" / "status.json"
        self.log = kit / "run" / "coordinator.log"
        self._lock = threading.Lock()
        self._sites: RemoteSites | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._rounds: deque[dict[str, Any]] = deque(maxlen=KEPT_ROUNDS)
        self._silos = dict(silos)
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
        """Note an event."""
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
            self._rounds.clear()
            self._tree["job"] = None if job is None else asdict(job)
        self.write(force=True)

    def progressed(self, progress: Progress) -> None:
        """A round has ended."""
        row = {
            "seed": progress.seed,
            "round": progress.round,
            "validation": dict(progress.validation or {}),
            "test": dict(progress.test or {}),
        }
        with self._lock:
            self._rounds.append(row)
            if self._tree["job"] is not None:
                self._tree["job"].update(
                    seed=progress.seed,
                    index=progress.index,
                    seeds=progress.seeds,
                    round=progress.round,
                    rounds=progress.rounds,
                    best=list(progress.best) if progress.best else None,
                    upload_bytes=progress.upload_bytes,
                    download_bytes=progress.download_bytes,
                    seconds=progress.seconds,
                )
        self.write()

    def tree(self) -> dict[str, Any]:
        """Everything, as plain values."""
        with self._lock:
            sites = []
            if self._sites is not None:
                for site, status in list(self._sites.status.items()):
                    row = {key: value for key, value in asdict(status).items() if key != "clients"}
                    names = [self._silos.get(client, str(client)) for client in status.clients]
                    sites.append({"site": site, "clients": list(status.clients), "silos": names, **row})
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


def _plain(value: Any) -> Any:
    """The same without NaN, which JSON has no word for."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


class _Watching:
    """Passes progress on, and stops the run when somebody asked for it."""

    def __init__(self, status: Status, inner: Observer, wanted_stop: Callable[[], bool]):
        self.status, self.inner, self.wanted_stop = status, inner, wanted_stop

    def started(self, description: Mapping[str, Any]) -> None:
        self.inner.started(description)

    def progressed(self, progress: Progress) -> None:
        self.status.progressed(progress)
        self.inner.progressed(progress)
        if self.wanted_stop():
            raise Stopped("the job was stopped on request; `graphsilo federation submit --continue` goes on with it.")

    def warned(self, text: str) -> None:
        self.status.say(text)
        self.inner.warned(text)


class Coordinator:
    """Carries out jobs over a transport.

    Args:
        kit: The coordinator's kit.
        name: Of the federation.
        clients: Numbers of the silos at each site.
        transport: Leads to the sites.
        status: Is told everything.
        report: Draws a finished run's page.
    """

    def __init__(
        self,
        kit: Path,
        name: str,
        clients: Mapping[str, Sequence[ClientId]],
        transport: Transport,
        status: Status,
        *,
        report: Callable[[Path], Any] | None = None,
    ):
        self.jobs = Jobs(kit)
        self.name, self.clients, self.transport, self.status, self.report = name, clients, transport, status, report
        self.closed = threading.Event()

    def serve(self, *, observer: Callable[[], Observer] = Silent, until_idle: bool = False) -> list[Job]:
        """Take jobs until ``close`` is called, or until none is left.

        Args:
            observer: Makes who hears of a job's progress.
            until_idle: Return when no job is left.

        Returns:
            The jobs that were carried out.
        """
        done = []
        while not self.closed.is_set():
            job = self.jobs.next()
            if job is None:
                if until_idle:
                    break
                self.status.write()
                self.closed.wait(0.5)
                continue
            done.append(self.carry_out(job, observer()))
        return done

    def carry_out(self, job: Job, observer: Observer) -> Job:
        """Run one job to its end, whatever that is; a job that had begun continues."""
        out = Path(job.out)
        resume = job.started > 0 and out.exists()
        job = replace(job, state="running", started=job.started or time.time())
        self.jobs.write(job)
        self.status.job(job)
        self.status.say(f"job {job.id} {'continues' if resume else 'begins'}")
        beat = _Beat(self.status)
        try:
            config = load_config(self.jobs.config_path(job))
            result = self.run(config, job, resume, observer)
            score = result.accuracy()
            self.status.say(f"job {job.id} is done" + ("" if score is None else f": {100 * score:.1f} %"))
            job = replace(job, state="done", finished=time.time(), error="")
        except Stopped as error:
            job = replace(job, state="stopped", finished=time.time())
            self.status.say(f"job {job.id}: {error}")
        except GraphsiloError as error:
            job = replace(job, state="failed", finished=time.time(), error=str(error))
            self.status.say(f"job {job.id} failed: {error}")
        finally:
            beat.stop()
        try:
            self.jobs.write(job)
        except RunError as error:
            self.status.say(f"the state of job {job.id} could not be written: {error}")
        self.status.job(job)
        return job

    def run(self, config: RunConfig, job: Job, resume: bool, observer: Observer) -> Result:
        """The run of a job."""
        return run_over(
            self.transport,
            config,
            name=self.name,
            clients=self.clients,
            out=job.out,
            resume=resume,
            observer=_Watching(self.status, observer, lambda: self.jobs.wanted_stop(job) or self.closed.is_set()),
            say=self.status.say,
            report=self.report,
            watch=self.status.watch,
        )

    def close(self) -> None:
        """Stop after the current round; the job goes on when somebody serves again."""
        self.closed.set()


class _Beat:
    """Keeps the status file young while a round takes its time."""

    def __init__(self, status: Status):
        self.status = status
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="status")
        self._thread.start()

    def _beat(self) -> None:
        while not self._end.wait(_EVERY):
            self.status.write()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(timeout=5)


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
