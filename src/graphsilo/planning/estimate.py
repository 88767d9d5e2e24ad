"""From what the trial of a run found to the costs of the whole run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.references import with_alone
from graphsilo.experiments.seed import CHECKPOINT_SHARE, LEAST_SECONDS
from graphsilo.planning.plan import Connection, Cost, Plan, PlanFinding, Process
from graphsilo.runtime.machine import Memory, free_disk

ONCE = ("report.html", "partition.npz", "config.yaml", "references/")
"""Files and folders of a result whose size does not grow with seeds and rounds."""
MODELS = ("models/", "embeddings/", "study/")
"""Folders of a result that hold as much after one round as after all."""


@dataclass
class Trial:
    """What the trial of a run found, from its first events to the one after which it ended or was ended.

    Attributes:
        events: The last of each name: ``started``, ``loaded``, ``rounds``, ``trained``, ``finished``,
            ``error``, each with the CPU seconds and the memory of the process so far.
        steps: Set-up, rounds, evaluations as they were measured, and an unfinished one last.
        checkpoints: In the order they came.
        peak: Most memory it took, in bytes.
        rows: CPU seconds of the reference rows that it made, by name.
        out_of_memory: Whether it was ended because memory ran short.
    """

    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    peak: int = 0
    rows: dict[str, float] = field(default_factory=dict)
    out_of_memory: bool = False

    def read(self, path: Path) -> None:
        """Take the events of a file, a JSON object per line; the last may have been cut off with its process."""
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                break
            name = event["event"]
            self.peak = max(self.peak, event["peak"])
            if self.steps and self.steps[-1]["event"] == "partial":
                self.steps.pop()
            if name in ("step", "partial"):
                self.steps.append(event)
            elif name == "checkpoint":
                self.checkpoints.append(event)
            elif name == "row":
                self.rows[event["name"]] = event["spent"]
            else:
                self.events[name] = event

    @property
    def silos(self) -> list[dict[str, int]]:
        """Sizes of every client's data, and the process in which the run would have it."""
        found: list[dict[str, int]] = self.events["loaded"]["silos"]
        return found

    @property
    def workers(self) -> int:
        """Processes of the run."""
        return max(silo["place"] for silo in self.silos) + 1

    @property
    def rounds(self) -> int:
        """Of the run, as the server says."""
        return int(self.events.get("rounds", self.events["loaded"])["rounds"])

    @property
    def stages(self) -> list[tuple[slice, int]]:
        """Which rounds of the trial speak for how many of the run: where their kind changes, some of each kind."""
        turn = self.events.get("turned")
        if turn is None:
            return [(slice(None), self.rounds)]
        return [(slice(turn["done"]), turn["before"]), (slice(turn["done"], None), self.rounds - turn["before"])]

    @property
    def done(self) -> int:
        """Rounds that were finished."""
        return sum(step["phase"] == "round" and step["event"] == "step" for step in self.steps)

    @property
    def is_whole(self) -> bool:
        """Whether it has seen set-up and two rounds, or all there are."""
        return "trained" in self.events or self.done >= min(2, self.rounds)

    def costs(self, phase: str, device: str = "cpu") -> list[Cost]:
        """Of the steps of one phase."""
        found = []
        for step in self.steps:
            if step["phase"] != phase:
                continue
            cost = Cost(**step["cost"])
            if device.startswith("cuda"):
                cost = replace(cost, wall=step["lasted"])
            elif self.workers == 1:
                cost = replace(cost, wall=cost.cpu)
            found.append(cost)
        return found

    def count_bytes(self, phase: str) -> NDArray[np.float64]:
        """Bytes of every client in the steps of one phase: [steps, clients, up and down]."""
        steps = [step["moved"] for step in self.steps if step["phase"] == phase]
        # Names of clients have gone through JSON.
        found = [[step.get(str(silo["client"]), (0, 0)) for silo in self.silos] for step in steps]
        return np.array(found, dtype=np.float64).reshape(len(steps), len(self.silos), 2)


def plan_of(
    config: RunConfig, trial: Trial, *, machine: Memory | None, line: Connection | None = None, out: Path | None = None
) -> Plan:
    """The plan of a run from its trial."""
    events, rounds, seeds, workers = trial.events, trial.rounds, len(config.run.seeds), trial.workers
    setup, first, evaluated = (trial.costs(phase, config.run.device) for phase in ("setup", "round", "evaluation"))
    # The first two rounds often differ: constants are made, the server has nothing to send yet.
    evaluation = _mean(evaluated[1:] or evaluated[-1:])
    usual = [_mean(first[part][2:] or first[part][-1:]) for part, _ in trial.stages]
    later = _sum([each * (count / rounds) for each, (_, count) in zip(usual, trial.stages, strict=True)])
    evaluations = len(config.scored_rounds(config.method_config(), rounds))
    trained = _sum(setup)
    for each, (part, count) in zip(usual, trial.stages, strict=True):
        trained += _sum(first[part][:count]) + each * max(0, count - len(first[part]))
    spent = trained + (_sum(evaluated[:1]) + evaluation * (evaluations - 1))
    before, moved, scored = (trial.count_bytes(phase) for phase in ("setup", "round", "evaluation"))
    sent = before.sum(axis=0)
    for part, count in trial.stages:
        some = moved[part]
        sent = sent + some[:count].sum(axis=0) + _later(some, some[2:]) * max(0, count - len(some))
    seed = _most(replace(spent, up=trained.up, down=trained.down), sent)
    checkpoint, checkpoints = _checkpoints(config, trial, _sum(setup).up > 0, spent.cpu, out)
    started, loaded = events["started"]["cpu"], events["loaded"]["cpu"]
    created, finish, rows = 0.0, 0.0, sum(trial.rows.values())
    if "trained" in events:
        known = sum(step["cost"]["cpu"] for step in trial.steps) + sum(each["spent"] for each in trial.checkpoints)
        created = max(0.0, events["trained"]["cpu"] - loaded - known)
    if "finished" in events:
        finish = events["finished"]["cpu"] - events["trained"]["cpu"] - rows
    beside = loaded + seeds * (created + checkpoints * checkpoint) + rows + finish
    sent = sent + scored[:1].sum(axis=0) + _later(scored, scored[1:]) * (evaluations - 1)
    run = _most(spent, sent) * seeds
    run = replace(
        run, cpu=run.cpu + beside + started * (workers - 1),  # each other process imports what clients need
        wall=run.wall + beside + (started if workers > 1 else 0.0),
    )  # fmt: skip
    processes = _processes(config, trial, line is not None)
    memory = {
        "needed": sum(process.bytes * process.count for process in processes if process.name != "site"),
        "free": None if machine is None else machine.free,
        "machine": None if machine is None else machine.total,
    }
    disk = _disk(config, trial, out)
    facts = events["loaded"]
    about = {
        "data": facts["data"], "method": facts["method"], "rule": facts["rule"], "clients": len(trial.silos),
        "rounds": rounds, "evaluations": evaluations, "seeds": seeds, "workers": workers,
        "rows": [*trial.rows], "device": config.run.device, "bandwidth": line and line.bandwidth,
        "latency": line and line.latency,
    }  # fmt: skip
    alike = len(first) > 3 and len({(cost.up, cost.down) for cost in first[2:]}) == 1
    basis, weak = _basis(trial)
    return Plan(
        about, basis, trial.is_whole, trial.is_whole and (alike or len(first) >= rounds),
        Cost(cpu=loaded, wall=loaded), _most(_sum(setup), before.sum(axis=0)), _sum(first[:1]), later, evaluation,
        Cost(cpu=checkpoint, wall=checkpoint), Cost(cpu=rows, wall=rows), Cost(cpu=finish, wall=finish), seed,
        run, processes, memory, events.get("trained", {}).get("gpu", 0), disk,
        _findings(config, trial, weak, memory, disk, out, line),
        _exact(config, trial.rounds, before, moved, scored, alike) if trial.is_whole else (),
    )  # fmt: skip


def _later(steps: NDArray[np.float64], later: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of every client in a step that was not measured, from all that were and those most like it.

    Where clients take turns, each is taken to be asked as often as the others.
    """
    if not len(steps):
        return np.zeros(steps.shape[1:])
    asked = _find_active(steps)
    if _same(asked):
        return np.asarray((later if len(later) else steps[-1:]).mean(axis=0))
    times = asked.sum(axis=0)[:, None]
    usual = steps.sum(axis=(0, 1)) / asked.sum()  # of those that were not asked yet
    each = np.where(times > 0, steps.sum(axis=0) / np.maximum(times, 1), usual)
    return np.asarray(each * asked.mean())


def _most(cost: Cost, sent: NDArray[np.float64]) -> Cost:
    """The cost, with the bytes of the client that moves most in all."""
    up, down = sent.max(axis=0, initial=0.0).tolist()
    return replace(cost, max_up=up, max_down=down)


def _exact(
    config: RunConfig,
    rounds: int,
    before: NDArray[np.float64],
    moved: NDArray[np.float64],
    scored: NDArray[np.float64],
    alike: bool,
) -> tuple[str, ...]:
    """Which bytes are exact: ``Plan.exact``.

    Args:
        config: Of the run.
        rounds: Of a seed.
        before, moved, scored: ``Trial.count_bytes`` in set-up, rounds and evaluations.
        alike: Whether enough later rounds were seen, and all clients together moved the same in each.
    """
    is_all, is_one = len(moved) >= rounds, len(config.run.seeds) == 1
    # Clients that take turns take other turns later, and with other seeds.
    everyone = bool(_find_active(moved).all() or not moved.any())
    seed, seed_max = is_all or alike, is_all or (alike and everyone and _same(moved[2:]))
    evaluated = _same(scored[1:]) or (is_all and len(config.scored_rounds(config.method_config(), rounds)) == rounds)
    # What is the same in every round is not drawn, and the same with every seed; set-up is seen once.
    fixed = len(moved) > 1 and _same(moved.sum(axis=1)) and _same(scored) and not before.any()
    run = seed and evaluated and (is_one or fixed)
    run_max = run and seed_max and (is_one or (everyone and _same(moved)))
    found = {"seed": seed, "seed_max": seed_max, "run": run, "run_max": run_max}
    return tuple(name for name, is_exact in found.items() if is_exact)


def _find_active(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which clients moved anything: [steps, clients]."""
    return np.asarray(steps.sum(axis=2) > 0)


def _same(steps: NDArray[Any]) -> bool:
    """Whether every step is as the first."""
    return bool((steps == steps[:1]).all())


def _basis(trial: Trial) -> tuple[str, str]:
    """What was measured, and what makes the estimate weak."""
    rounds, done = trial.rounds, trial.done
    if not trial.is_whole:
        where = "the first rounds were" if any(step["phase"] == "round" for step in trial.steps) else "set-up was"
        why = "memory ran out" if trial.out_of_memory else "time was up"
        weak = f"{where} not finished within the trial: everything here is at least so much. Give more --seconds."
        return f"{where.split(' w')[0]} not finished when {why}", weak
    measured = f"set-up and {done} of {rounds} round{'s' if rounds > 1 else ''} of one seed measured"
    few = (
        f"only {done} rounds were measured, and the first ones often differ from later ones: more --seconds make this "
        f"surer."
    )
    return f"{measured}, all clients", few if done < min(4, rounds) else ""


def _checkpoints(config: RunConfig, trial: Trial, sets_up: bool, spent: float, out: Path | None) -> tuple[float, int]:
    """Mean CPU seconds of a checkpoint, and how many a seed writes."""
    every = config.run.checkpoint_every
    if out is None or every == 0:
        return 0.0, 0
    saved = [event["spent"] for event in trial.checkpoints if event["bytes"]]
    each = sum(saved) / len(saved) if saved else 0.0
    if every is None:
        number = min(trial.rounds, math.ceil(CHECKPOINT_SHARE * spent / max(each, LEAST_SECONDS)))
    else:
        number = 1 + (trial.rounds - 1) // every
    return each, number + sets_up


def _processes(config: RunConfig, trial: Trial, between_machines: bool) -> tuple[Process, ...]:
    """Memory of every kind of process.

    A run in one process takes what the trial took; so does, at most, the
    coordinator of workers. A worker has its share of the data and of what was kept for clients, by their work, and what
    a step takes as it goes on.
    """
    loaded, started = trial.events["loaded"], trial.events["started"]["now"]
    ends = (trial.events.get("trained"), *trial.steps[-1:], {"now": trial.peak, "peak": trial.peak})
    end = next(event for event in ends if event)
    passing = max(0, end["peak"] - end["now"])
    kept = max(0, end["now"] - loaded["now"])
    work = [0] * trial.workers
    for silo in trial.silos:
        work[silo["place"]] += silo["work"]
    total = max(sum(work), 1)

    def part(share: float, data: float) -> int:
        return int(started + data + share * kept + passing)

    whole = int(max(trial.peak, loaded["now"] + kept + passing))
    found = [Process("the run" if trial.workers == 1 else "coordinator", 1, whole)]
    if trial.workers > 1:
        share, data = max(work[1:]) / total, sum(silo["bytes"] for silo in trial.silos)
        found.append(Process("worker", trial.workers - 1, part(share, share * data)))
    if between_machines:
        largest = max(trial.silos, key=lambda silo: silo["work"])
        found.append(Process("site", len(trial.silos), part(largest["work"] / total, largest["bytes"])))
    return tuple(found)


def _disk(config: RunConfig, trial: Trial, out: Path | None) -> dict[str, float]:
    """Bytes that a run writes: the old checkpoint stays until the new one is whole."""
    if out is None:
        return dict.fromkeys(("models", "results", "kept", "checkpoint", "peak"), 0.0)
    seeds, longer = len(config.run.seeds), trial.rounds / max(1, trial.done)
    models = results = 0.0
    last = trial.events.get("finished") or trial.events.get("trained") or {"sizes": {}}
    for name, size in last["sizes"].items():
        if name.startswith(MODELS):
            models += size * seeds
        else:
            results += size if name.startswith(ONCE) else size * seeds * longer
    checkpoint = max((event["bytes"] or 0 for event in trial.checkpoints), default=0)
    # Where checkpoints are off, clients that make room for others are on disk once; else checkpoints hold them.
    times = 2 if config.run.checkpoint_every != 0 else 1
    kept = models + results
    return {
        "models": models, "results": results, "kept": kept, "checkpoint": checkpoint,
        "peak": kept + times * checkpoint,
    }  # fmt: skip


def _findings(
    config: RunConfig, trial: Trial, weak: str, memory: Mapping[str, int | None], disk: Mapping[str, float],
    out: Path | None, line: Connection | None,
) -> tuple[PlanFinding, ...]:  # fmt: skip
    """What a person should know, the gravest first."""
    found = []
    needed, free, whole = memory["needed"] or 0, memory["free"], memory["machine"]
    if trial.out_of_memory or (whole is not None and needed > whole):
        least = "more than" if trial.out_of_memory else "about"
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
    elif any(event["bytes"] is None for event in trial.checkpoints):
        text = "disk: the temporary folder had no room for a checkpoint; its size is unknown."
        found.append(PlanFinding("warning", text))
    if weak:
        found.append(PlanFinding("warning", weak))
    if config.run.early_stopping is not None:
        found.append(PlanFinding("note", "run.early_stopping may end seeds sooner; costs are those of all rounds."))
    if names := ", ".join(name for name in config.run.references if name not in trial.rows):
        text = f"the reference rows ({names}) are runs of their own and not part of this plan."
        found.append(PlanFinding("note", text))
    elif line is not None and with_alone(config).run.references:
        text = (
            "between machines every silo also trains alone at its own site, for comparison; it sends what evaluation "
            "sends, and is not part of this plan. run.references=[] leaves it out."
        )
        found.append(PlanFinding("note", text))
    return tuple(found)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _sum(costs: Sequence[Cost]) -> Cost:
    return sum(costs, Cost())


def _mean(costs: Sequence[Cost]) -> Cost:
    return _sum(costs) * (1 / len(costs)) if costs else Cost()
