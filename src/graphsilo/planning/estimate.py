"""From what trials found to the costs of the whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.seed import CHECKPOINT_SHARE, LEAST_SECONDS
from graphsilo.planning.connection import Connection
from graphsilo.planning.plan import Cost, Plan, PlanFinding, Process
from graphsilo.planning.trials import Trial, Tried
from graphsilo.runtime.local.workers import MAX_EARLY, MAX_EARLY_BYTES
from graphsilo.runtime.machine import Memory, free_disk

ENTRY = 800
"""Bytes that the ledger's note of one message takes, and its row while the table is written."""
ONCE = frozenset({"report.html", "partition.npz", "config.yaml"})
"""Files of a result whose size does not grow with seeds and rounds."""


@dataclass(frozen=True)
class Course:
    """How a seed goes.

    Attributes:
        setup: Before round 1.
        rounds: The first ones, as measured.
        evaluations: The first ones; the first of all makes what later ones find made.
        trial: That it is known from, and that tells of memory and disk.
        number, work: Clients of the run per client of that trial, and their work per work of its clients.
        basis: What was measured, in a sentence.
        is_exact: Whether bytes were counted with all clients and the real settings.
        is_whole: Whether all parts of a seed were seen; else costs are at least so much.
        weak: What makes the estimate weak, if anything.
    """

    setup: Cost
    rounds: tuple[Cost, ...]
    evaluations: tuple[Cost, ...]
    trial: Trial
    basis: str
    number: float = 1.0
    work: float = 1.0
    is_exact: bool = False
    is_whole: bool = True
    weak: tuple[str, ...] = ()

    @property
    def steady(self) -> Cost:
        """A later round. The first two often differ: constants are made, the server has nothing to send yet."""
        return _mean(self.rounds[2:] or self.rounds[-1:])

    @property
    def evaluation(self) -> Cost:
        """A later evaluation."""
        return _mean(self.evaluations[1:] or self.evaluations[-1:])

    def all_rounds(self, number: int) -> Cost:
        """So many rounds together."""
        return _sum(self.rounds[:number]) + self.steady * max(0, number - len(self.rounds))

    def all_evaluations(self, number: int) -> Cost:
        """So many evaluations together."""
        return _sum(self.evaluations[:1]) + self.evaluation * (number - 1) if number else Cost()

    def is_steady(self, rounds: int) -> bool:
        """Whether rounds that were not measured move as many bytes as each of those from the third on did."""
        later = {(cost.up, cost.down) for cost in self.rounds[2:]}
        return len(self.rounds) >= rounds or (len(self.rounds) > 3 and len(later) == 1)


def plan_of(
    config: RunConfig, tried: Tried, *, machine: Memory | None, line: Connection | None = None, out: Path | None = None
) -> Plan:
    """The plan of a run from its trials.

    Args:
        config: The run.
        tried: What was found out.
        machine: Its memory when the trials began.
        line: Joins the sites, for a run between machines.
        out: Where results will be written; None writes none.
    """
    course, rounds, seeds = course_of(config, tried), tried.rounds, len(config.run.seeds)
    every = config.evaluation.every
    evaluations = rounds // every + (1 if rounds % every else 0)
    trained = course.setup + course.all_rounds(rounds)
    evaluated = course.all_evaluations(evaluations)
    spent = trained + evaluated
    seed = replace(spent, up=trained.up, down=trained.down, max_up=trained.max_up, max_down=trained.max_down)
    checkpoint, checkpoints = _checkpoints(config, course, rounds, spent.cpu, out)
    workers = max(silo["place"] for silo in tried.silos) + 1
    finish = max((each.events["finished"]["cpu"] for each in tried.trials if "finished" in each.events), default=0.0)
    started = tried.started["cpu"]
    begin = started + tried.facts["cpu"]
    beside = begin + seeds * (_beside(course, rounds) + checkpoints * checkpoint) + finish
    run = spent * seeds
    run = replace(
        run, cpu=run.cpu + beside + started * (workers - 1),  # each other process imports what clients need
        wall=run.wall + beside + (started if workers > 1 else 0.0),
    )  # fmt: skip
    processes = _processes(config, tried, course, workers, line is not None)
    needed = sum(process.bytes * process.count for process in processes if process.name != "site")
    memory = {
        "needed": needed,
        "free": None if machine is None else machine.free,
        "machine": None if machine is None else machine.total,
    }
    disk = _disk(config, tried, course, out)
    about = {
        "data": tried.facts["data"], "method": tried.facts["method"], "rule": tried.facts["rule"],
        "clients": len(tried.silos), "rounds": rounds, "evaluations": evaluations, "seeds": seeds, "workers": workers,
        "device": config.run.device, "bandwidth": line and line.bandwidth, "latency": line and line.latency,
    }  # fmt: skip
    gpu = max((each.events["trained"]["gpu"] for each in tried.trials if "trained" in each.events), default=0)
    first = course.rounds[0] if course.rounds else Cost()
    return Plan(
        about, course.basis, course.is_whole, course.is_exact, course.is_exact and course.is_steady(rounds),
        Cost(cpu=begin, wall=begin), course.setup, first, course.steady, course.evaluation,
        Cost(cpu=checkpoint, wall=checkpoint), Cost(cpu=finish, wall=finish), seed, run, processes, memory, gpu, disk,
        _findings(config, tried, course, memory, disk, out),
    )  # fmt: skip


def course_of(config: RunConfig, tried: Tried) -> Course:
    """How a seed goes, from the best of the trials.

    All clients with the real settings; else a sample of the clients; else fewer repetitions, carried over on a line;
    else what an unfinished trial says at least.
    """
    first, *others = tried.trials
    rounds = tried.rounds
    if first.is_enough(rounds):
        few = first.rounds < min(4, rounds)
        weak = (
            f"only {first.rounds} rounds were measured, and the first ones often differ from later ones: more "
            f"--seconds make this surer."
        )
        basis = f"set-up and {first.rounds} of {rounds} round{'s' if rounds > 1 else ''} of one seed measured"
        found = _steps(config, first, basis + ", all clients")
        return replace(found, is_exact=True, weak=(weak,) if few else ())
    sample = next((trial for trial in others if len(trial.clients) < len(tried.silos)), None)
    if sample is not None and sample.is_enough(rounds):
        return _from_sample(config, tried, sample)
    short = [trial for trial in others if trial.settings]
    if len(short) == 2:
        return _from_shortened(config, tried, *short)
    where = "the first rounds" if first.is_set_up else "set-up"
    why = "memory ran out" if first.end == "memory" else "time was up"
    weak = f"{where} was not finished within the trial: everything here is at least so much. Give more --seconds."
    found = _steps(config, first, f"{where} not finished when {why}")
    return replace(found, is_whole=False, weak=(weak,))


def _steps(config: RunConfig, trial: Trial, basis: str) -> Course:
    """What one trial measured, an unfinished step included."""
    steps: dict[str, list[Cost]] = {"setup": [], "round": [], "evaluation": []}
    for event in [*trial.steps, *([trial.partial] if trial.partial else [])]:
        cost = Cost(**event["cost"])
        if config.run.device.startswith("cuda"):
            cost = replace(cost, wall=event["lasted"])
        elif config.run.workers <= 1:
            cost = replace(cost, wall=cost.cpu)
        steps.setdefault(event["phase"], []).append(cost)
    return Course(_sum(steps["setup"]), tuple(steps["round"]), tuple(steps["evaluation"]), trial, basis)


def _from_sample(config: RunConfig, tried: Tried, trial: Trial) -> Course:
    """Clients' work grows with the sizes of their data, the server's and bytes with the number of clients."""
    some, everyone = len(trial.clients), len(tried.silos)
    number = everyone / some
    mine = sum(silo["work"] for silo in tried.silos if silo["client"] in trial.clients)
    work = sum(silo["work"] for silo in tried.silos) / max(mine, 1)
    workers = max(silo["place"] for silo in tried.silos) + 1

    def grown(cost: Cost) -> Cost:
        server, clients = cost.server * number, (cost.cpu - cost.server) * work
        sites = cost.sites + server - cost.server if cost.sites else 0.0
        return Cost(
            server + clients, server, server + clients / workers, sites, cost.up * number, cost.down * number,
            cost.max_up, cost.max_down,
        )  # fmt: skip

    basis = (
        f"set-up and {trial.rounds} rounds of one seed measured with {some} of {everyone} clients, "
        f"smallest to largest; the others in proportion to the size of their data"
    )
    weak = (
        f"only {some} of {everyone} clients were tried: what the server does and what is sent are taken to grow with "
        f"their number. More --seconds try all of them."
    )
    found = _steps(config, trial, basis)
    return replace(
        found, setup=grown(found.setup), rounds=tuple(map(grown, found.rounds)),
        evaluations=tuple(map(grown, found.evaluations)), number=number, work=work, weak=(weak,),
    )  # fmt: skip


def _from_shortened(config: RunConfig, tried: Tried, few: Trial, more: Trial) -> Course:
    """Each number lies on the line through a trial with few repetitions and one with twice as many."""
    wanted = tried.facts["repeats"]
    left = [
        (wanted[name] - value) / (more.settings[name] - value)
        for name, value in few.settings.items()
        if more.settings[name] > value
    ]
    times = sum(left) / len(left) if left else 1.0

    def longer(low: Cost, high: Cost) -> Cost:
        line = low + (high + low * -1.0) * times
        return Cost(*(max(mine, its) for mine, its in zip(astuple(line), astuple(high), strict=True)))

    names = ", ".join(f"{name} {more.settings[name]} of {value}" for name, value in wanted.items())
    basis = (
        f"one seed measured with fewer repetitions ({names}) and carried over to all of them; all clients, "
        f"{min(few.rounds, more.rounds)} of {tried.rounds} rounds"
    )
    weak = (
        "set-up (or a round) was not finished with its real settings within the time: its costs lie on a line through "
        "shorter ones. A method that stops early when nothing gets better costs less. More --seconds measure it."
    )
    low, high = (_steps(config, trial, basis) for trial in (few, more))
    return replace(
        high, setup=longer(low.setup, high.setup), rounds=tuple(map(longer, low.rounds, high.rounds)),
        evaluations=tuple(map(longer, low.evaluations, high.evaluations)), weak=(weak,),
    )  # fmt: skip


def _checkpoints(config: RunConfig, course: Course, rounds: int, spent: float, out: Path | None) -> tuple[float, int]:
    """Mean CPU seconds of a checkpoint, and how many a seed writes."""
    if out is None:
        return 0.0, 0
    every = config.run.checkpoint_every
    if every == 0:
        return 0.0, 1
    saved = [event["cpu"] for event in course.trial.checkpoints if not event["final"] and event["bytes"]]
    each = sum(saved) / len(saved) * course.number if saved else 0.0
    if every is None:
        number = min(rounds, math.ceil(CHECKPOINT_SHARE * spent / max(each, LEAST_SECONDS)))
    else:
        number = 1 + (rounds - 1) // every
    return each, number + (1 if course.setup.up else 0)


def _beside(course: Course, rounds: int) -> float:
    """CPU seconds of a seed besides set-up, rounds, evaluations and checkpoints: making its clients, and for every
    round (notes, progress, the states that checkpoints are made of)."""
    trial = course.trial
    created = trial.events.get("created", {}).get("cpu", 0.0)
    whole = trial.events.get("trained", {}).get("cpu")
    if whole is None or not trial.rounds:
        return float(created * course.number)
    known = sum(step["cost"]["cpu"] for step in trial.steps) + sum(event["cpu"] for event in trial.checkpoints)
    return float(created * course.number + max(0.0, whole - created - known) / trial.rounds * rounds)


def _processes(
    config: RunConfig, tried: Tried, course: Course, workers: int, between_machines: bool
) -> tuple[Process, ...]:
    """Memory of every kind of process.

    The run's peak is that of the trial, in which everything is as in the run, and what the ledger grows by. With
    workers, what the trial kept for its clients is shared out by their work, while what a step takes as it goes on is
    needed in each process.
    """
    facts, trial = tried.facts, course.trial
    ends = [trial.events.get("trained"), trial.partial, *trial.steps[-1:]]
    end = next((event for event in ends if event), {**facts, "peak": max(trial.peak, facts["peak"])})
    own = max(0, (end["now"] - end["files"]) - (facts["now"] - facts["files"]))  # of clients, models and messages
    passing = max(0, end["peak"] - end["now"])
    memory_use = config.run.resident_clients
    in_memory = course.work if memory_use is None else min(course.work, memory_use / len(trial.clients))
    kept = own * max(in_memory, 1.0)
    ledger = _ledger(config, tried, course)
    peak = max(facts["peak"], int(facts["now"] + kept + passing), trial.peak) + ledger
    finish = next((_settled(facts, each) for each in tried.trials if "finished" in each.events), 0) + ledger
    work = [0] * workers
    for silo in tried.silos:
        work[silo["place"]] += silo["work"]
    total = max(sum(work), 1)
    data = sum(silo["bytes"] for silo in tried.silos)
    started = tried.started["now"]
    found: list[Process] = []
    if workers == 1:
        found.append(Process("the run", 1, max(peak, finish)))
    else:
        each = max(course.setup.max_up, course.steady.max_up)
        early = min(MAX_EARLY * each, MAX_EARLY_BYTES + each)  # answers that come before their turn
        first = int(facts["now"] + kept * work[0] / total + passing + early + ledger)
        share = max(work[1:]) / total
        found.append(Process("coordinator", 1, max(first, finish, facts["peak"])))
        found.append(Process("worker", workers - 1, int(started + share * (data + kept) + passing)))
    if between_machines:
        largest = max(tried.silos, key=lambda silo: silo["work"])
        share = largest["work"] / total
        found.append(Process("site", len(tried.silos), int(started + largest["bytes"] + share * kept + passing)))
    return tuple(found)


def _settled(facts: Mapping[str, Any], trial: Trial) -> int:
    """Most memory while results and report are written.

    A forked process has not yet touched the pages of program files that its parent has: these are counted as the
    parent's.
    """
    after, before = trial.events["finished"], trial.events["trained"]
    files = max(facts["files"], before["files"]) + after["files"] - before["files"]
    return int(after["peak"] - after["files"] + files)


def _ledger(config: RunConfig, tried: Tried, course: Course) -> int:
    """What the notes of messages take beyond those of the trial."""
    entries = course.trial.events.get("trained", {}).get("entries", 0)
    whole = entries / max(1, course.trial.rounds) * tried.rounds * course.number * len(config.run.seeds)
    return int(max(0.0, whole - entries) * ENTRY)


def _disk(config: RunConfig, tried: Tried, course: Course, out: Path | None) -> dict[str, float]:
    """Bytes that a run writes: the old checkpoint stays until the new one is whole."""
    names = ("models", "results", "kept", "checkpoint", "peak")
    if out is None:
        return dict.fromkeys(names, 0.0)
    trial, seeds, rounds = course.trial, len(config.run.seeds), tried.rounds
    done = max(1, trial.rounds)
    saved = [event for event in trial.checkpoints if not event["final"] and event["bytes"]]
    checkpoint = 0.0
    if saved:
        grows = (saved[-1]["bytes"] - saved[0]["bytes"]) / max(1, saved[-1]["round"] - saved[0]["round"])
        last = saved[-1]["bytes"] + max(0.0, grows) * max(0, rounds - 1 - saved[-1]["round"])
        checkpoint = last * course.number
    final = next((event["bytes"] or 0 for event in trial.checkpoints if event["final"]), 0) * rounds / done
    models = trial.events.get("trained", {}).get("models", 0) * course.number * seeds
    sizes: dict[str, int] = next(
        (each.events["finished"]["sizes"] for each in tried.trials if "finished" in each.events), {}
    )
    results = sum(size if name in ONCE else size * seeds * rounds / done for name, size in sizes.items())
    results += final * course.number * seeds
    # Where checkpoints are off, clients that make room for others are on disk once; else checkpoints hold them.
    times = 2 if config.run.checkpoint_every != 0 else 1
    values = (models, results, models + results, checkpoint, models + results + times * checkpoint)
    return dict(zip(names, values, strict=True))


def _findings(
    config: RunConfig, tried: Tried, course: Course, memory: Mapping[str, int | None], disk: Mapping[str, float],
    out: Path | None,
) -> tuple[PlanFinding, ...]:  # fmt: skip
    """What a person should know, the gravest first."""
    found = []
    needed, free, whole = memory["needed"] or 0, memory["free"], memory["machine"]
    ended = tried.trials[0].end == "memory"
    if ended or (whole is not None and needed > whole):
        least = "more than" if ended else "about"
        have = "that is not there" if whole is None else f"this machine has {_gigabytes(whole)}"
        text = (
            f"memory: {least} {_gigabytes(needed)} would be needed, and {have}. Keep fewer clients in memory "
            f"(run.resident_clients), use fewer workers or a smaller model, or take a larger machine."
        )
        found.append(PlanFinding("refused", text))
    elif free is not None and needed > free:
        text = f"memory: about {_gigabytes(needed)} are needed, and only {_gigabytes(free)} are free just now."
        found.append(PlanFinding("warning", text))
    left = None if out is None else free_disk(out)
    if left is not None and disk["peak"] > left:
        text = (
            f"disk: up to {_gigabytes(disk['peak'])} will be written, and {_gigabytes(left)} are free where {out} is. "
            f"Choose another --out, or keep less (evaluation.models=false, run.checkpoint_every=0, a larger "
            f"run.resident_clients)."
        )
        found.append(PlanFinding("refused", text))
    elif any(event["bytes"] is None for trial in tried.trials for event in trial.checkpoints):
        found.append(
            PlanFinding("warning", "disk: the temporary folder had no room for a checkpoint; its size is unknown.")
        )
    found += [PlanFinding("warning", text) for text in course.weak]
    if config.run.early_stopping is not None:
        found.append(PlanFinding("note", "run.early_stopping may end seeds sooner; costs are those of all rounds."))
    if config.run.references:
        names = ", ".join(config.run.references)
        found.append(
            PlanFinding("note", f"the reference rows ({names}) are runs of their own and not part of this plan.")
        )
    return tuple(found)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _sum(costs: Sequence[Cost]) -> Cost:
    return sum(costs, Cost())


def _mean(costs: Sequence[Cost]) -> Cost:
    return _sum(costs) * (1 / len(costs)) if costs else Cost()
