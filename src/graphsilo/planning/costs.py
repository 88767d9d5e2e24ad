"""From a calibration to the costs of the whole run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.seed import CHECKPOINT_SHARE, LEAST_SECONDS
from graphsilo.planning import lines
from graphsilo.planning.calibration import Calibration
from graphsilo.planning.course import Estimate, estimate
from graphsilo.planning.extrapolation import COUNT, DOWN, UP, Stretch, total
from graphsilo.planning.lines import Line
from graphsilo.planning.memory import at_a_site, disk_of, findings_of, processes_of
from graphsilo.planning.plan import Bytes, Cpu, Distributed, Plan, Traffic, Wall
from graphsilo.runtime.local.placement import beside_coordinator


def plan_of(config: RunConfig, calibration: Calibration, *, line: Line | None = None, out: Path | None = None) -> Plan:
    """The plan of a run from its calibration.

    Args:
        config: The run.
        calibration: What was tried.
        line: Joins the sites, for a run between machines.
        out: Where results will be written; None writes none.
    """
    found = estimate(calibration)
    course, rounds = found.course, calibration.rounds
    every = config.evaluation.every
    evaluations = rounds // every + (1 if rounds % every else 0)
    seeds = len(config.run.seeds)
    total_rounds = _sum_rounds(found, rounds)
    spent = (
        course.setup.cpu + total_rounds.cpu + course.first_evaluation.cpu + (evaluations - 1) * course.evaluation.cpu
    )
    checkpoint_each, checkpoints = _checkpoints(config, found, rounds, spent, out)
    start, prepare = calibration.start["cpu"], calibration.facts["cpu"]
    created, around = _beside(found)
    finish = max((trial.told["finished"]["cpu"] for trial in calibration.trials if "finished" in trial.told), default=0)
    workers = max(1, min(config.run.workers, len(calibration.silos)))
    processes_start = start * (workers - 1)  # each other process imports what clients need
    beside = start + prepare + seeds * (created + rounds * around + checkpoints * checkpoint_each) + finish
    cpu = Cpu(
        start, prepare, course.setup.cpu, course.round(1).cpu, course.steady.cpu, course.evaluation.cpu,
        checkpoint_each, finish, spent, beside + processes_start + seeds * spent,
    )  # fmt: skip
    traffic = _traffic(found, total_rounds, evaluations, seeds)
    places = _places(calibration, workers)

    def whole(seconds: Any) -> float:
        """A seed's seconds from those of its stretches."""
        each = [seconds(course.round(number)) for number in range(1, min(rounds, len(course.rounds)) + 1)]
        later = max(0, rounds - len(each)) * seconds(course.steady)
        evaluated = seconds(course.first_evaluation) + (evaluations - 1) * seconds(course.evaluation)
        return float(seconds(course.setup) + sum(each) + later + evaluated)

    def here(stretch: Stretch) -> float:
        if config.run.device.startswith("cuda"):
            return stretch.wall
        return lines.with_workers(stretch, places) if workers > 1 else stretch.cpu

    work = np.array([sum(calibration.silos[row]["work"] for row in rows) for rows in places], dtype=float)
    wall = Wall(
        workers, tuple((work / max(work.sum(), 1.0)).tolist()), here(course.setup), here(course.steady),
        here(course.evaluation), beside + (start if workers > 1 else 0.0) + seeds * whole(here),
    )  # fmt: skip
    distributed = None
    if line is not None:
        joined = line

        def apart(stretch: Stretch) -> float:
            return lines.between_machines(stretch, joined)

        at_sites = lines.at_sites(course.steady, line)
        slowest = int(at_sites.argmax())
        silo = calibration.silos[min(slowest, len(calibration.silos) - 1)]
        moved = course.steady.up + course.steady.down
        distributed = Distributed(
            line.bandwidth, line.latency, apart(course.setup), apart(course.steady), apart(course.evaluation),
            seeds * whole(apart), {"client": silo["client"], "seconds": float(at_sites[slowest])},
            moved / line.bandwidth,
        )  # fmt: skip
    processes = processes_of(config, calibration, found, places)
    if line is not None:
        processes = (*processes, at_a_site(calibration, found))
    needed = sum(process.bytes * process.count for process in processes if process.name != "site")
    machine = calibration.memory
    memory = {
        "needed": needed,
        "free": None if machine is None else machine.free,
        "machine": None if machine is None else machine.total,
    }
    disk = disk_of(config, calibration, found, out)
    about = {
        "data": calibration.facts["data"],
        "method": calibration.facts["method"],
        "rule": calibration.facts["rule"],
        "clients": len(calibration.silos),
        "rounds": rounds,
        "evaluations": evaluations,
        "seeds": seeds,
        "workers": workers,
        "device": config.run.device,
        "resident_clients": config.run.resident_clients,
        "participants": _participants(course.steady),
    }
    gpu = max((trial.told["trained"]["gpu"] for trial in calibration.trials if "trained" in trial.told), default=0)
    findings = findings_of(config, calibration, found, memory, disk, out)
    return Plan(
        about, found.basis, found.is_whole, cpu, traffic, wall, processes, memory, gpu, disk, distributed, findings
    )


def _sum_rounds(found: Estimate, rounds: int) -> Stretch:
    course = found.course
    first = course.rounds[:rounds]
    return total([*first, course.steady], [*[1.0] * len(first), float(max(0, rounds - len(first)))])


def _checkpoints(config: RunConfig, found: Estimate, rounds: int, spent: float, out: Path | None) -> tuple[float, int]:
    """Mean CPU seconds of a checkpoint, and how many a seed writes."""
    if out is None:
        return 0.0, 0
    every = config.run.checkpoint_every
    if every == 0:
        return 0.0, 1
    saved = [told["cpu"] for told in found.main.checkpoints if not told["final"] and told["bytes"]]
    each = float(np.mean(saved)) * found.scale if saved else 0.0
    if every is None:
        number = min(rounds, math.ceil(CHECKPOINT_SHARE * spent / max(each, LEAST_SECONDS)))
    else:
        number = 1 + (rounds - 1) // every
    return each, number + (1 if found.course.setup.up else 0)


def _beside(found: Estimate) -> tuple[float, float]:
    """CPU seconds that a trial spent besides set-up, rounds, evaluations and checkpoints: making its clients, and for
    every round (notes, progress, the states that checkpoints are made of)."""
    trial = found.main
    created = trial.told.get("created", {}).get("cpu", 0.0)
    whole = trial.told.get("trained", {}).get("cpu")
    if whole is None or not trial.rounds:
        return created * found.scale, 0.0
    known = sum(stretch["cpu"] for stretch in trial.stretches) + sum(told["cpu"] for told in trial.checkpoints)
    return created * found.scale, max(0.0, whole - created - known) / trial.rounds


def _traffic(found: Estimate, rounds: Stretch, evaluations: int, seeds: int) -> Bytes:
    course = found.course
    seed = total([course.setup, rounds])
    run = total([course.setup, rounds, course.evaluation], [seeds, seeds, seeds * evaluations])
    sure, steady = found.is_exact, found.is_exact and found.is_steady
    return Bytes(
        _moved(course.setup, sure), _moved(course.round(1), sure), _moved(course.steady, steady),
        _moved(course.evaluation, sure), _moved(seed, steady), _moved(run, steady and seeds == 1),
    )  # fmt: skip


def _moved(stretch: Stretch, exact: bool) -> Traffic:
    up, down = stretch.column(UP), stretch.column(DOWN)
    sums = [float(part.sum()) for part in (up, down)]
    most = [float(part.max()) for part in (up, down)]
    if exact:
        sums, most = [float(round(value)) for value in sums], [float(round(value)) for value in most]
    return Traffic(sums[0], sums[1], most[0], most[1], exact)


def _participants(stretch: Stretch) -> float:
    """Clients that a round asks, on average: the most that any of its handlers does."""
    return round(max((np.minimum(ask.rows[:, COUNT], 1.0).sum() for ask in stretch.asks.values()), default=0.0), 3)


def _places(calibration: Calibration, workers: int) -> list[list[int]]:
    """Rows of the clients in each process, as a run spreads them."""
    row = {silo["client"]: place for place, silo in enumerate(calibration.silos)}
    spread = beside_coordinator({silo["client"]: silo["work"] for silo in calibration.silos}, workers)
    return [[row[client] for client in clients] for clients in spread]
