"""What a coordinator does for as long as it serves: it takes jobs one after the other, and reports their state."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from graphsilo.errors import GraphsiloError, RunError, add_names, without_secrets
from graphsilo.evaluate.metrics import METRICS, find_leading
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.observer import Observer, Progress, RunStarted, Several, Working
from graphsilo.experiments.service.jobs import Job, Jobs
from graphsilo.experiments.service.run_over import run_over
from graphsilo.experiments.service.watch import Status
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.results import Result
from graphsilo.runtime.transport import Transport
from graphsilo.types import ClientId

_PAUSE = 10.0
"""Seconds until a job is tried again whose state could not be written."""


class Stopped(RunError):
    """Somebody asked for the job to be stopped."""


class _Watching(Several):
    """Passes progress on, and stops the run when somebody asked for it."""

    def __init__(self, job: str, status: Status, inner: Observer, is_stop_wanted: Callable[[], bool]):
        super().__init__(inner)
        self.job = job
        self.status, self.is_stop_wanted = status, is_stop_wanted

    def on_start(self, run: RunStarted) -> None:
        self.status.on_start(run)
        super().on_start(run)

    def on_progress(self, progress: Progress) -> None:
        self.status.on_progress(progress)
        super().on_progress(progress)
        self.check()

    def on_work(self, working: Working) -> None:
        self.status.on_work(working)
        super().on_work(working)
        self.check()

    def check(self) -> None:
        """Stop the run if somebody asked for it."""
        if self.is_stop_wanted():
            how = f"graphsilo federation submit --continue {self.job}"
            raise Stopped(f"the job was stopped on request; `{how}` goes on with it.")

    def on_warning(self, text: str) -> None:
        self.status.say(text)
        super().on_warning(text)


class Coordinator:
    """Carries out jobs over a transport.

    Args:
        kit: The coordinator's kit.
        name: Of the federation.
        clients: Numbers of the silos at each site.
        transport: Leads to the sites.
        status: Receives everything.
        report: Draws a finished run's page.
        max_items: Most nodes or graphs that a silo may say it holds.
        names: Of the silos, by number.
        check: Called again and again; may raise to end the service.
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
        max_items: Mapping[ClientId, int] | None = None,
        names: Mapping[ClientId, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ):
        self.jobs, self.names = Jobs(kit), names or {}
        self.transport, self.status, self.check = transport, status, check
        self._run_over = partial(
            run_over, name=name, clients=clients, report=report, max_items=max_items, names=names,
            say=status.say, watch=status.watch,
        )  # fmt: skip
        self.closed = threading.Event()
        self._unwritten = ""  # a job whose end could not be written down: it would begin again at once

    def serve(self, *, observer: Callable[[], Observer] = Observer, until_idle: bool = False) -> list[Job]:
        """Take jobs until ``close`` is called, or until none is left.

        Args:
            observer: Makes the observer of a job's progress.
            until_idle: Return when no job is left.

        Returns:
            The jobs that were carried out.
        """
        done: list[Job] = []
        while not self.closed.is_set():
            self.check()
            job = self.jobs.next()
            if job is None:
                if until_idle:
                    break
                self.status.write()
                self.closed.wait(0.5)
                continue
            if done and job.id == self._unwritten:
                if until_idle:
                    break
                self.closed.wait(_PAUSE)
            with self.status.keep_fresh():
                done.append(self.carry_out(job, observer()))
        return done

    def carry_out(self, job: Job, observer: Observer) -> Job:
        """Run one job to its end, whatever that is; a job that had begun continues."""
        out = Path(job.out)
        resume = job.started > 0 and out.exists()
        job = replace(job, state="running", started=job.started or time.time())
        self.status.job(job)
        self.status.say(f"job {job.id} {'continues' if resume else 'begins'}")
        try:
            self.jobs.write(job)
            config = load_config(self.jobs.config_path(job))
            result = self.run(config, job, resume, observer)
            self.status.say(f"job {job.id} is done{_say_score(result)}")
            job = replace(job, state="done", finished=time.time(), error="")
        except Stopped as error:
            job = replace(job, state="stopped", finished=time.time())
            self.status.say(f"job {job.id}: {error}")
        except GraphsiloError as error:
            text = add_names(str(error), self.names)
            job = replace(job, state="failed", finished=time.time(), error=text)
            self.status.say(f"job {job.id} failed: {text}")
        except Exception as error:  # whatever it is, the jobs behind it are carried out
            text = f"an error that graphsilo does not know ({type(error).__name__}: {error})"
            job = replace(job, state="failed", finished=time.time(), error=text)
            self.status.say(f"job {job.id} failed: {text}; see {self.jobs.trace_path(job)}")
            with contextlib.suppress(RunError):
                disk.write_text(self.jobs.trace_path(job), without_secrets(traceback.format_exc()))
        self._unwritten = ""
        try:
            self.jobs.write(job)
        except RunError as error:
            self._unwritten = job.id
            self.status.say(f"the state of job {job.id} could not be written: {error}")
        self.status.job(job)
        return job

    def run(self, config: RunConfig, job: Job, resume: bool, observer: Observer) -> Result:
        """The run of a job."""

        def is_stop_wanted() -> bool:
            self.check()
            return self.jobs.is_stop_wanted(job) or self.closed.is_set()

        watching = _Watching(job.id, self.status, observer, is_stop_wanted)
        return self._run_over(
            self.transport, config, out=job.out, resume=resume, observer=watching, check=watching.check
        )

    def close(self) -> None:
        """Stop after the current round; the job goes on when somebody serves again."""
        self.closed.set()


def _say_score(result: Result) -> str:
    """The mean test score by the metric that chose rounds, where there is one, for the end of a line."""
    test, chosen = result.record.summary.test.metrics, str(result.record.config["evaluation"]["select_by"])
    name = chosen if chosen in test else find_leading(test)
    mean = None if name is None else test[name].mean
    if name is None or mean is None:
        return ""
    metric = METRICS[name]
    return f": {metric.title} {f'{100 * mean:.1f} %' if metric.is_share else f'{mean:.3g}'}"
