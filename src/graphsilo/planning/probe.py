"""The process in which a plan tries things out: loads the data once, then forks for each trial.

Started by ``calibration``; orders come on stdin and events leave on stdout, both one JSON object per line. A fork
begins with the data in memory as a run does, and can be ended at any moment without anything else being lost.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch

from graphsilo.data.graph import GraphCollection
from graphsilo.data.silos.silo import Silo
from graphsilo.experiments.checks import check_device, check_precision, check_room, check_support
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.effects import check_clients, settled
from graphsilo.experiments.observer import Silent
from graphsilo.experiments.simulation import Simulation, complete_config, prepare
from graphsilo.experiments.storage import results
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.planning.meter import Meter, Trial, Weighed
from graphsilo.runtime.local.parking import Parking
from graphsilo.runtime.local.placement import expected_work, graph_bytes
from graphsilo.runtime.machine import resident

TIMES = ("epoch", "step")
"""Whole-numbered settings whose names hold one of these say how often something is repeated."""
FEW = 4
"""A repeat setting of less than this is left as it is when a trial is shortened."""
GRACE = (2, 3)
"""After so many times its seconds a trial is ended that has not finished its set-up; that has not done two rounds."""


def main() -> None:
    """Serve orders until there are none."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as events:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not be taken for an event
        torch.set_num_threads(1)
        emit = _emitter(events)
        order = json.loads(sys.stdin.readline())
        try:
            config, method, simulation = _prepared(Path(order["config"]), order["explicit"], emit)
            for line in sys.stdin:
                _fork(json.loads(line), config, method, simulation, emit)
        except BrokenPipeError:
            os._exit(0)  # the plan has gone
        except Exception as error:
            _tell(error, emit)


def _emitter(events: IO[str]) -> Callable[[dict[str, Any]], None]:
    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    return emit


def _tell(error: Exception, emit: Callable[[dict[str, Any]], None]) -> None:
    notes = "\n".join(getattr(error, "__notes__", []))
    trace = f"{traceback.format_exc()}{notes}"
    emit({"event": "error", "kind": type(error).__name__, "text": str(error) or repr(error), "trace": trace})


def _prepared(
    path: Path, explicit: Sequence[str], emit: Callable[[dict[str, Any]], None]
) -> tuple[RunConfig, Method, Simulation]:
    """Load, cut and check as a run does."""
    config = settled(load_config(path).with_explicit(explicit), out=path)
    method = registry.load(config.method.name)
    settings = config.method_config()
    check_device(config.run.device, config.run.precision)
    started = time.process_time()
    emit({"event": "started", "cpu": started, **resident()._asdict()})
    simulation = prepare(config, method)
    check_clients(config, simulation.partition)
    config = settled(config, task=simulation.task, partition=simulation.partition, out=path)
    check_support(config, method, settings, simulation)
    check_room(simulation, settings)
    check_precision(simulation)
    emit(
        {
            "event": "prepared",
            "cpu": time.process_time() - started,
            **resident()._asdict(),
            "data": simulation.describe(),
            "rule": simulation.rule,
            "method": {"name": method.name, "title": method.title},
            "rounds": settings.rounds,
            "silos": [_size(silo) for silo in simulation.silos],
            "repeats": repeats(settings.model_dump()),
            "warnings": [*simulation.warnings(), *config.remarks],
        }
    )
    return config, method, simulation


def repeats(settings: Mapping[str, Any]) -> dict[str, int]:
    """Settings of a method that say how often something is repeated, those that are large.

    Example:
        >>> repeats({"rounds": 100, "generator_epochs": 20, "local_epochs": 3, "lr": 0.1, "step_lr": 8.0})
        {'generator_epochs': 20}
    """
    return {
        name: value
        for name, value in settings.items()
        if type(value) is int and value >= FEW and any(word in name for word in TIMES)
    }


def _size(silo: Silo) -> dict[str, int]:
    """What decides the cost of a client: nodes, edges, filled features, items to train on; and the bytes it holds."""
    graph = silo.graph.union if isinstance(silo.graph, GraphCollection) else silo.graph
    features: Any = graph.features
    filled = int(features.nnz if graph.is_sparse else features.size)
    return {
        "client": silo.client,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "filled": filled,
        "train": len(silo.train),
        "bytes": graph_bytes(silo),
        "work": expected_work(silo),
    }


def _fork(
    order: Mapping[str, Any],
    config: RunConfig,
    method: Method,
    simulation: Simulation,
    emit: Callable[[dict[str, Any]], None],
) -> None:
    process = os.fork()
    if process:
        emit({"event": "forked", "process": process})
        _, status = os.waitpid(process, 0)
        emit({"event": "ended", "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})
        return
    code = 1
    try:
        # A single ask that takes far too long is ended by the system.
        limit = math.ceil((GRACE[1] + 1) * order["seconds"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        _try(order, config, method, simulation, emit)
        code = 0
    except Exception as error:
        _tell(error, emit)
    finally:
        os._exit(code)


def _try(
    order: Mapping[str, Any],
    config: RunConfig,
    method: Method,
    simulation: Simulation,
    emit: Callable[[dict[str, Any]], None],
) -> None:
    """Set-up and a few rounds of the first seed, for the clients and with the settings of the order."""
    seconds = float(order["seconds"])
    options = {**config.method.options, **order["settings"]}
    config = config.model_copy(
        update={
            "method": config.method.model_copy(update={"options": options}),
            "evaluation": config.evaluation.model_copy(update={"every": 1}),  # so that it is measured
        }
    )
    wanted = set(order["clients"] or simulation.clients)
    if len(wanted) < len(simulation.silos):
        silos = tuple(silo for silo in simulation.silos if silo.client in wanted)
        simulation = replace(simulation, silos=silos)

    def give_up(spent: float) -> None:
        rounds, is_set_up = trial.progress.round, bool(trial.progress.setup)
        if rounds < 2 and spent > seconds * GRACE[is_set_up]:
            emit({"event": "late"})
            os._exit(0)

    meter = Meter(emit, give_up)
    seed = config.run.seeds[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weighed = Weighed(folder / "checkpoints", meter)
        parking = Parking(folder)
        trial = Trial(config, method, config.method_config(), simulation, seed, None, weighed, parking)
        trial.meter, trial.seconds = meter, seconds
        tree, ledger = trial.run(0, resume=False, observer=Silent(), label="", folder=folder)
        meter.close()
        parking.close()
        models = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        gpu = int(torch.cuda.max_memory_allocated()) if config.run.device.startswith("cuda") else 0
        told = {"models": models, "gpu": gpu, "cpu": time.process_time()}
        emit({"event": "trained", **told, **resident()._asdict()})
        if order["finish"] and len(wanted) == len(simulation.clients):
            _finish(folder / "out", order["finish"], config, method, simulation, tree, ledger, emit)


def _finish(
    folder: Path,
    finish: str,
    config: RunConfig,
    method: Method,
    simulation: Simulation,
    tree: dict[str, Any],
    ledger: Any,
    emit: Callable[[dict[str, Any]], None],
) -> None:
    """What a run does after its last seed: the result's files, and what follows them."""
    started = time.process_time()
    folder.mkdir()
    whole = results.assemble(config, method, simulation, [tree], "0" * 64)
    (folder / "config.yaml").write_text(json.dumps(complete_config(config, simulation)), encoding="utf-8")
    simulation.keep(folder)
    results.write(folder, whole, [(tree["seed"], ledger)])
    module, _, function = finish.partition(":")
    if module:
        getattr(importlib.import_module(module), function)(folder)
    sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    told = {"cpu": time.process_time() - started, "sizes": sizes}
    emit({"event": "finished", **told, **resident()._asdict()})


if __name__ == "__main__":
    main()
