"""The process in which a plan tries things out: loads the data once, then forks for each trial.

    python -m graphsilo.planning.probe ORDER FOLDER

A fork begins with the data in memory as a run does, writes down what it measures as it goes, and can be ended at any
moment without anything else being lost: by this process when memory runs short or time is up, and by the system.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from graphsilo.data.silos.silo import Silo
from graphsilo.experiments.checks import check_device, check_precision, check_resources, check_support
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.effects import check_clients, settled
from graphsilo.experiments.observer import Silent
from graphsilo.experiments.simulation import Simulation, complete_config, prepare
from graphsilo.experiments.storage import results
from graphsilo.experiments.storage.records import Seed
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.planning import meter
from graphsilo.planning.connection import Connection
from graphsilo.planning.trials import Trial, repeats, tried
from graphsilo.runtime.local.offloading import OffloadFolder
from graphsilo.runtime.local.placement import beside_coordinator, expected_work, graph_bytes
from graphsilo.runtime.machine import memory, memory_use

GRACE = (2, 3)
"""After so many times its seconds a trial is ended that has not finished its set-up; that has not done two rounds."""
PART = 0.9
"""Of the memory that is free, what a trial may take before it is ended."""
SLOW = 20
"""Wall seconds per CPU second that a trial is waited for."""


def main(order: Mapping[str, Any], folder: Path) -> None:
    """Prepare the data, make the trials, and leave what was found in the folder's ``tried.json``."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    try:
        line = Connection(**order["line"]) if order["line"] else None
        probe = Probe(Path(order["config"]), order["explicit"], float(order["seconds"]), order["finish"], line, folder)
        trials = tried(probe.facts, probe.attempt)
        found = {"facts": probe.facts, "started": probe.started, "trials": [asdict(trial) for trial in trials]}
    except MemoryError:
        raise
    except Exception as error:
        found = _error(error)
    (folder / "tried.json").write_text(json.dumps(found), encoding="utf-8")


class Probe:
    """The data of a run, prepared as the run does it, and trials on it.

    Args:
        path: The configuration.
        explicit: Settings that a person made.
        seconds: CPU seconds that a trial aims at.
        finish: ``module:function`` that the run calls with its folder at the end; empty for none.
        line: Joins sites with their coordinator.
        folder: For what trials write down.
    """

    def __init__(
        self, path: Path, explicit: list[str], seconds: float, finish: str, line: Connection | None, folder: Path
    ):
        config = settled(load_config(path).with_explicit(explicit), out=path)
        self.method: Method = registry.load(config.method.name)
        settings = config.method_config()
        check_device(config.run.device, config.run.precision)
        started = time.process_time()
        self.started = {"cpu": started, **memory_use()._asdict()}
        self.simulation: Simulation = prepare(config, self.method)
        check_clients(config, self.simulation.partition)
        config = settled(config, task=self.simulation.task, partition=self.simulation.partition, out=path)
        check_support(config, self.method, settings, self.simulation)
        check_resources(self.simulation, settings)
        check_precision(self.simulation)
        self.config: RunConfig = config
        self.seconds, self.finish, self.line, self.folder = seconds, finish, line, folder
        free = memory()
        self.limit = math.inf if free is None else PART * free.free
        self.places = {
            client: place
            for place, clients in enumerate(
                beside_coordinator(
                    {silo.client: expected_work(silo) for silo in self.simulation.silos},
                    max(1, min(config.run.workers, len(self.simulation.silos))),
                )
            )
            for client in clients
        }
        self.facts = {
            "cpu": time.process_time() - started,
            **memory_use()._asdict(),
            "data": self.simulation.describe(),
            "rule": self.simulation.rule,
            "method": {"name": self.method.name, "title": self.method.title},
            "rounds": settings.rounds,
            "silos": [{**_size(silo), "place": self.places[silo.client]} for silo in self.simulation.silos],
            "repeats": repeats(settings.model_dump()),
        }

    def attempt(self, trial: Trial) -> Trial:
        """Make a trial in a fork, and wait for its end."""
        path = self.folder / f"trial-{len(list(self.folder.glob('trial-*')))}.jsonl"
        path.touch()
        process = os.fork()
        if not process:
            self._try(trial, path)
        until = time.monotonic() + 60 + SLOW * self.seconds
        while os.waitpid(process, os.WNOHANG)[0] == 0:
            now = memory_use(process).now
            if now > self.limit or time.monotonic() > until:
                trial.end = "memory" if now > self.limit else "late"
                trial.peak = max(trial.peak, now)
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                break
            time.sleep(0.02)
        trial.read(path)
        return trial

    def _try(self, trial: Trial, path: Path) -> None:
        """In the fork: make the trial, and end the process."""
        code = 1
        with path.open("a", encoding="utf-8", buffering=1) as events:

            def emit(event: dict[str, Any]) -> None:
                events.write(json.dumps(event) + "\n")

            try:
                # A single call of a client that takes far too long is ended by the system.
                limit = math.ceil((GRACE[1] + 1) * self.seconds) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
                self._run(trial, emit)
                code = 0
            except Exception as error:
                emit({"event": "error", **_error(error)})
            finally:
                events.flush()
                os._exit(code)

    def _run(self, wanted: Trial, emit: meter.Emit) -> None:
        """Set-up and a few rounds of the first seed, with the trial's clients and settings."""
        options = {**self.config.method.options, **wanted.settings}
        config = self.config.model_copy(
            update={
                "method": self.config.method.model_copy(update={"options": options}),
                "evaluation": self.config.evaluation.model_copy(update={"every": 1}),  # so that it is measured
            }
        )
        silos = tuple(silo for silo in self.simulation.silos if silo.client in wanted.clients)
        simulation = replace(self.simulation, silos=silos)

        def give_up(spent: float) -> None:
            is_set_up = bool(trial.progress.setup)
            if trial.progress.round < 2 and spent > self.seconds * GRACE[is_set_up]:
                os._exit(0)

        watch = meter.Meter(emit, give_up, self.places, self.line)
        seed = config.run.seeds[0]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            weighed = meter.Weighed(folder / "checkpoints", watch)
            offload_folder = OffloadFolder(folder)
            settings = config.method_config()
            trial = meter.MeteredRun(config, self.method, settings, simulation, seed, None, weighed, offload_folder)
            trial.meter, trial.seconds = watch, self.seconds
            found, ledger = trial.run(0, resume=False, observer=Silent(), label="", folder=folder)
            watch.close()
            offload_folder.close()
            models = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            gpu = int(torch.cuda.max_memory_allocated()) if config.run.device.startswith("cuda") else 0
            known = {"models": models, "gpu": gpu, "cpu": time.process_time(), "entries": len(ledger._entries)}
            emit({"event": "trained", **known, **memory_use()._asdict()})
            if self.finish and len(silos) == len(self.simulation.silos) and not wanted.settings:
                self._finish(folder / "out", config, simulation, found, ledger, emit)

    def _finish(
        self, folder: Path, config: RunConfig, simulation: Simulation, found: Seed, ledger: Any,
        emit: meter.Emit,
    ) -> None:  # fmt: skip
        """What a run does after its last seed: the result's files, and what follows them."""
        started = time.process_time()
        folder.mkdir()
        whole = results.assemble(config, self.method, simulation, [found], "0" * 64)
        (folder / "config.yaml").write_text(json.dumps(complete_config(config, simulation)), encoding="utf-8")
        simulation.keep(folder)
        results.write(folder, whole, [(found.seed, ledger)])
        module, _, function = self.finish.partition(":")
        getattr(importlib.import_module(module), function)(folder)
        sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        emit({"event": "finished", "cpu": time.process_time() - started, "sizes": sizes, **memory_use()._asdict()})


def _size(silo: Silo) -> dict[str, int]:
    """The bytes that a client's data takes, and how much work its rounds are by its size."""
    return {
        "client": silo.client,
        "bytes": graph_bytes(silo),
        "work": expected_work(silo),
    }


def _error(error: Exception) -> dict[str, str]:
    notes = "\n".join(getattr(error, "__notes__", []))
    trace = f"{traceback.format_exc()}{notes}"
    return {"kind": type(error).__name__, "text": str(error) or repr(error), "trace": trace}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
