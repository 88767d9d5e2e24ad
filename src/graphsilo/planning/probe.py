"""The process in which a plan makes the first seed of a run, for as long as it takes to know what a round costs.

    python -m graphsilo.loading graphsilo.planning.probe ORDER FOLDER

It is the run itself, in this process and with a seed that is measured and ends early. What it finds goes to the
folder's ``events.jsonl`` at once, so that nothing is lost when it is ended.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import resource
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from graphsilo.errors import RunError
from graphsilo.experiments import runner
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer, RunEnded, RunStarted
from graphsilo.experiments.seed import SeedRun
from graphsilo.experiments.simulation import Simulation
from graphsilo.experiments.storage.records import Seed
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.registry import Method
from graphsilo.federation.secure.party import Party
from graphsilo.federation.server import ServerBase
from graphsilo.federation.trust import allow
from graphsilo.federation.wire import Encoded
from graphsilo.planning.meter import Emit, Meter, TooLong
from graphsilo.planning.plan import Connection
from graphsilo.runtime.exchange import Exchange
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.local.placement import graph_bytes
from graphsilo.runtime.local.spread import expected_work, spread_clients
from graphsilo.runtime.machine import memory_use
from graphsilo.runtime.parties import make_unproved
from graphsilo.types import ClientId

PATIENCE = 6
"""After so many times its seconds a trial is ended that has not done two rounds."""
ENOUGH_ROUNDS = 10
"""After so many rounds a fifth of the time is enough."""
KIT_BYTES = 1488
"""Of the certificate and the signature that come with a silo's key between machines; a few more for long names."""
WEIGHED = (1, 3)
"""Rounds after which a checkpoint is written and weighed."""


def main() -> None:
    """Make the trial; whatever becomes of it is the last event."""
    order: Mapping[str, Any] = json.loads(sys.argv[1])
    folder = Path(sys.argv[2])
    torch.set_num_threads(1)
    with (folder / "events.jsonl").open("a", encoding="utf-8", buffering=1) as events:

        def emit(event: dict[str, Any]) -> None:
            event = {**event, "cpu": time.process_time(), **memory_use()._asdict()}
            events.write(json.dumps(event) + "\n")

        emit({"event": "started"})
        try:
            attempt(order, folder, emit)
        except TooLong:
            pass
        except MemoryError:
            raise
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", []))
            trace = f"{traceback.format_exc()}{notes}"
            emit({"event": "error", "kind": type(error).__name__, "text": str(error) or repr(error), "trace": trace})


def attempt(order: Mapping[str, Any], folder: Path, emit: Emit) -> None:
    """The run's first seed, evaluated after every round, and the results and the report that follow."""
    allow(order["allowed"])
    config = load_config(folder / "config.json").with_explicit(order["explicit"])
    workers, seconds = config.run.workers, order["seconds"]
    line = Connection(**order["line"]) if order["line"] else None

    def make_metered(*arguments: Any) -> MeteredRun:
        simulation: Simulation = arguments[3]
        method: Method = arguments[1]
        work = {silo.client: expected_work(silo) for silo in simulation.silos}
        spread = spread_clients(work, max(1, min(workers, len(work))))
        places = {client: place for place, clients in enumerate(spread) for client in clients}
        silos = [
            {"client": silo.client, "bytes": graph_bytes(silo), "work": work[silo.client], "place": places[silo.client]}
            for silo in simulation.silos
        ]
        emit(
            {
                "event": "loaded", "data": simulation.data, "rule": simulation.rule, "silos": silos,
                "method": {"name": method.name, "title": method.title}, "rounds": arguments[2].total_rounds,
            }
        )  # fmt: skip
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # from here on the peak is that of training
        return MeteredRun(*arguments, meter=Meter(emit, PATIENCE * seconds, places, line), seconds=seconds)

    out = folder / "run" if order["writes"] else None
    report = None
    if order["finish"]:
        module, _, function = order["finish"].partition(":")
        report = getattr(importlib.import_module(module), function)
    first = config.run.seeds[:1]
    config = config.with_settings({"run.workers": 1, "run.seeds": first, "evaluation.every": 1})
    rows = order["rows"]
    config = config.unset(["run.references"]) if rows is None else config.with_settings({"run.references": rows})
    runner.run(config, out=out, report=report, seed_run=make_metered, observer=Rows(emit))
    emit({"event": "finished", "sizes": sizes(out)})


class Rows(Observer):
    """Measures reference rows that are made whole."""

    def __init__(self, emit: Emit):
        self.emit = emit

    def on_start(self, run: RunStarted) -> None:
        self._began = time.process_time()

    def on_end(self, run: RunEnded) -> None:
        if run.label:
            self.emit({"event": "row", "name": run.label, "spent": time.process_time() - self._began})


class MeteredRun(SeedRun):
    """One seed that ends by itself after a few rounds.

    Args:
        arguments: Those of any seed.
        meter: Watches it.
        seconds: CPU seconds after which it ends, once it has done two rounds.
    """

    def __init__(self, *arguments: Any, meter: Meter, seconds: float):
        super().__init__(*arguments)
        self.meter, self.seconds = meter, seconds
        self.skipped = self.turned = 0

    def run(
        self, index: int, *, resume: bool, observer: Observer, label: str, folder: Path | None
    ) -> tuple[Seed, Ledger]:
        """The seed.

        Raises:
            TooLong: It has not come through two rounds in its time.
        """
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        # A single call of a client that takes far too long is ended by the system.
        limit = math.ceil(time.process_time() + self.meter.limit + self.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
        found, ledger = super().run(index, resume=resume, observer=observer, label=label, folder=folder)
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
        self.meter.close()
        gpu = int(torch.cuda.max_memory_allocated()) if self.config.run.device.startswith("cuda") else 0
        self.meter.emit({"event": "trained", "gpu": gpu, "sizes": sizes(folder)})
        return found, ledger

    def _clients(self, method: Method, ledger: Ledger) -> Exchange:
        found = super()._clients(method, ledger)
        if self.meter.line is not None and isinstance(found, InProcess):
            found.cache.parties.make = _certify
        self.meter.watch(found)
        return found

    def _hand_out(self, scale: Encoded, federation: Exchange) -> None:
        super()._hand_out(scale, federation)
        self.meter.add_download(dict.fromkeys(federation.clients, scale.num_bytes))
        self.meter.close()

    def _set_up(self, server: ServerBase[Any], federation: Exchange) -> None:
        self.meter.emit({"event": "rounds", "rounds": server.rounds})
        super()._set_up(server, federation)
        self.meter.close()

    def _round(self, number: int, server: ServerBase[Any], federation: Exchange) -> None:
        """A round; of a server whose rounds are of another kind from one on, two or more of either kind."""
        super()._round(number + self.skipped, server, federation)
        self.meter.close()
        last = server.turns_after
        if number < 2:
            return
        self.meter.limit = math.inf
        share = 1.0 if number < ENOUGH_ROUNDS else 0.2
        spent = self.meter.cpu_seconds() / (share * self.seconds)
        if last is not None and number + self.skipped < last < server.rounds:
            if spent >= 0.5:
                self.meter.emit({"event": "turned", "done": number, "before": last})
                self.skipped, self.turned = last - number, number
            return
        is_over = number + self.skipped >= server.rounds
        self.progress.stopped = is_over or (spent >= 1 and number >= self.turned + 2)

    def _is_due(self, number: int) -> bool:
        # Clients that make room for others leave their states on disk, in checkpoints or not: they are weighed, too.
        run = self.config.run
        return number in WEIGHED and (run.checkpoint_every != 0 or run.resident_clients is not None)

    def _is_due_within(self) -> bool:
        return False

    def _save(self, server: ServerBase[Any], federation: Exchange, work: Any = None) -> None:
        """Weigh a checkpoint; a disk that has no room for it ends the trial's checkpoints, not the trial."""
        if self.checkpoints is None:
            return
        self.meter.close()
        started = time.process_time()
        size = None
        with contextlib.suppress(RunError):
            super()._save(server, federation, work)
            size = sum(sizes(self.checkpoints.folder).values())
        self.meter.emit({"event": "checkpoint", "bytes": size, "spent": time.process_time() - started})


def _certify(client: ClientId) -> Party:
    """A client in secure sums whose key comes with as many bytes as a kit's word for it has."""
    party = make_unproved(client)
    identity = replace(party.identity, proof=party.identity.proof + bytes(KIT_BYTES))
    return Party(client, identity, party.directory, party.record)


def sizes(folder: Path | None) -> dict[str, int]:
    """Bytes of every file in a folder."""
    if folder is None:
        return {}
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
