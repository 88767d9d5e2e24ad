"""The jobs of a coordinator: folders in its kit, so that nothing is lost when it is killed.

    KIT/jobs/0001-fedavg/   config.yaml, job.json (state), out/ (the run's folder)

A job is submitted by making its folder, whether a coordinator is serving or not.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from graphsilo import documents
from graphsilo.errors import ConfigError, RunError, nearest
from graphsilo.experiments.check_answers import BY_SETTINGS, check_parties, check_robust
from graphsilo.experiments.check_remote import check_remote
from graphsilo.experiments.checks import check_models
from graphsilo.experiments.client_names import find_left_out
from graphsilo.experiments.config import load_config
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.references import with_alone
from graphsilo.experiments.storage import disk
from graphsilo.federation import registry
from graphsilo.types import ClientId

JobState: TypeAlias = Literal["queued", "running", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Job:
    """One job of a coordinator."""

    id: str
    state: JobState
    submitted: float
    method: str
    out: str
    started: float = 0.0
    finished: float = 0.0
    error: str = ""


class Jobs:
    """The jobs in a coordinator's kit."""

    def __init__(self, kit: Path):
        self.folder = kit / "jobs"

    def submit(
        self,
        config: str | Path,
        *,
        out: str | Path | None = None,
        assignments: Sequence[str] = (),
        names: Mapping[str, ClientId] | None = None,
    ) -> Job:
        """Put a configuration in the queue; it is checked now, and kept as it is.

        Args:
            config: File of the configuration.
            out: Folder for the results; else inside the kit.
            assignments: As in ``--set``.
            names: Numbers of the federation's silos; None checks not whether those left out are among them.

        Raises:
            ConfigError: The configuration is wrong, or asks for what silos apart cannot do.
        """
        method, text = _check(config, assignments, names)
        # Of all folders: one whose job was never written down has its number, too.
        taken = (path.name.partition("-")[0] for path in self.folder.glob("[0-9]*-*"))
        numbers = [int(number) for number in taken if number.isdecimal()]
        identity = f"{max(numbers, default=0) + 1:04d}-{re.sub(r'[^a-z0-9]+', '-', method.lower())}"
        place = self.folder / identity
        place.mkdir(parents=True, mode=0o700)
        disk.write_text(place / "config.yaml", text)
        target = Path(out).absolute() if out is not None else place / "out"
        job = Job(identity, "queued", time.time(), method, str(target))
        self.write(job)
        return job

    def take_up(
        self,
        config: str | Path,
        *,
        out: str | Path | None = None,
        assignments: Sequence[str] = (),
        names: Mapping[str, ClientId] | None = None,
    ) -> Job:
        """The job of a command that is given again after it was interrupted, else a new one.

        It is the same job if it has the same settings and results folder: then it goes on, and one that is done stays
        done. Without ``out`` a job that is done is not meant: its folder was its own.

        Raises:
            ConfigError: As ``submit``.
        """
        _, text = _check(config, assignments, names)
        for job in reversed(self.all()):
            own = self.folder / job.id / "out"
            if str(own if out is None else Path(out).absolute()) != job.out:
                continue
            with contextlib.suppress(OSError):
                if self.config_path(job).read_text(encoding="utf-8") != text:
                    continue
                if job.state in ("stopped", "failed"):
                    self.go_on(job)
                if job.state != "done" or out is not None:
                    return self.get(job.id)
        return self.submit(config, out=out, assignments=assignments, names=names)

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

    def trace_path(self, job: Job) -> Path:
        """Where it stands what an error was that nobody expected."""
        return self.folder / job.id / "traceback.txt"

    def ask_stop(self, job: Job) -> None:
        """Have a queued or running job stopped after its current round. It can be continued with ``go_on``."""
        if job.state == "queued":
            self.write(replace(job, state="stopped", finished=time.time()))
        elif job.state == "running":
            disk.write_text(self.folder / job.id / "stop", "")

    def is_stop_wanted(self, job: Job) -> bool:
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


def _check(
    config: str | Path, assignments: Sequence[str], names: Mapping[str, ClientId] | None = None
) -> tuple[str, str]:
    """The method of a configuration that silos apart can carry out, and the configuration as it is kept."""
    checked = with_alone(drop_idle(load_config(config, assignments=assignments), remote=True))
    method, settings = registry.load(checked.method.name), checked.method_config()
    check_remote(checked)
    check_models(checked, method, settings)
    for check in BY_SETTINGS:
        check(checked, method, settings)
    if names is not None:
        without = find_left_out(checked.run.without, len(names), {client: name for name, client in names.items()})
        clients = sorted(set(names.values()) - set(without))
        check_parties(checked, settings.count_asked(len(clients)), clients, apart=True)
        check_robust(checked, method, settings, settings.count_asked(len(clients)))
    tree = checked.model_dump(mode="json", exclude_unset=True)
    if not checked.is_given("run.checkpoint_every"):
        # Between machines a crash is no rarity, and a lost round costs everybody's time.
        tree.setdefault("run", {})["checkpoint_every"] = 1
    return checked.method.name, documents.write(tree)
