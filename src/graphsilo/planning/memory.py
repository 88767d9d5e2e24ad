"""Memory and disk that a run will take, and whether they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo.experiments.config import RunConfig
from graphsilo.planning.calibration import Calibration, Trial
from graphsilo.planning.course import Estimate
from graphsilo.planning.plan import Finding, Process
from graphsilo.runtime.local.workers import MOST_EARLY, MOST_EARLY_BYTES
from graphsilo.runtime.machine import room

ROW = 400
"""Bytes of a ledger's row while it is written: a tuple of eleven values, and a column's entry for each."""


def processes_of(
    config: RunConfig, calibration: Calibration, found: Estimate, places: Sequence[Sequence[int]]
) -> tuple[Process, ...]:
    """Memory of every kind of process on this machine.

    The run's peak is that of the trial, in which everything is as in the run, and what the ledger grows by. With
    workers, what the trial took for its clients is shared out by their work.

    Args:
        config: The run.
        calibration: What was tried.
        found: How a seed goes.
        places: For each process, its clients' rows; the first coordinates.
    """
    parts = _parts(config, calibration, found)
    peak = max(sum(parts.values()), calibration.facts["most"])
    book = parts["ledger"]
    finish = _finish(calibration) + book
    if len(places) == 1:
        parts["working memory"] += max(0, finish - peak)
        return (Process("the run", 1, max(peak, finish), _positive(parts)),)
    own = {key: parts[key] for key in ("program and libraries", "data", "server's state", "messages", "ledger")}
    own["messages"] = _messages(found, MOST_EARLY, MOST_EARLY_BYTES)

    def clients(rows: Sequence[int]) -> dict[str, int]:
        share = _share(calibration, rows)
        return {
            "clients' states": int(share * parts["clients' states"]),
            "what clients share": parts["what clients share"] if rows else 0,
            "working memory": int(share * _kept(calibration, found, parts) + (_passing(found) if rows else 0)),
        }

    own.update(clients(places[0]))
    # Whatever is not the clients' is here, and so is the writing of results, beyond what training leaves.
    written = max(0, finish - peak) + (0 if places[0] else _passing(found))
    coordinator = max(sum(own.values()) + max(written, parts["server's state"]), calibration.facts["most"] + book)
    own["working memory"] += coordinator - sum(own.values())
    fullest = max(places[1:], key=lambda rows: _share(calibration, rows))
    held = {
        "program and libraries": parts["program and libraries"],
        "data": int(_share(calibration, fullest) * sum(silo["bytes"] for silo in calibration.silos)),
        **clients(fullest),
    }
    return (
        Process("coordinator", 1, coordinator, _positive(own)),
        Process("worker", len(places) - 1, sum(held.values()), _positive(held)),
    )


def at_a_site(calibration: Calibration, found: Estimate) -> Process:
    """Memory of the process of the largest client, on a machine of its own."""
    parts = _parts(None, calibration, found)
    largest = max(range(len(calibration.silos)), key=lambda row: calibration.silos[row]["work"])
    share = _share(calibration, [largest])
    held = {
        "program and libraries": parts["program and libraries"],
        "data": calibration.silos[largest]["bytes"],
        "clients' states": int(parts["clients' states"] / len(calibration.silos)),
        "what clients share": parts["what clients share"],
        "working memory": int(share * _kept(calibration, found, parts) + _passing(found)),
    }
    return Process("site", len(calibration.silos), sum(held.values()), _positive(held))


def _parts(config: RunConfig | None, calibration: Calibration, found: Estimate) -> dict[str, int]:
    """The memory of a run in one process, taken apart."""
    start, facts = calibration.start, calibration.facts
    clients = len(calibration.silos)
    saved = _last_checkpoint(found.main)
    server = 0 if saved is None else int(saved["server"])
    shared = 0 if saved is None else int(saved["shared"])
    states = 0 if saved is None else max(0, int((saved["bytes"] - server - shared) * found.scale))
    resident = None if config is None else config.run.resident_clients
    in_memory = 1.0 if resident is None else min(1.0, resident / clients)
    states = int(states * in_memory)
    whole = max((_peak(trial, facts) for trial in calibration.trials if _is_whole(trial, calibration)), default=0)
    if found.scale > 1:  # only a sample came through: what its clients took, for all
        grown = _peak(found.main, facts) - facts["now"]
        work = _share(calibration, [place for place, silo in enumerate(calibration.silos)
                                    if silo["client"] in found.main.clients])  # fmt: skip
        once = min(_passing(found) + shared, max(0, grown))
        whole = max(whole, int(facts["now"] + max(grown, once + (grown - once) / max(work, 1e-9) * in_memory)))
    known = {
        "program and libraries": int(start["now"]),
        "data": max(0, int(facts["now"] - start["now"])),
        "clients' states": states,
        "what clients share": shared,
        "server's state": server,
        "messages": _messages(found),
    }
    rest = whole - sum(known.values())
    return {
        **known,
        "working memory": max(0, rest),
        "ledger": 0 if config is None else _ledger(config, calibration, found),
    }


def _messages(found: Estimate, early: int = 0, most: float = 0.0) -> int:
    """Answers that the coordinating process holds at once; with workers, some come before their turn."""
    course = found.course
    stretches = (course.setup, course.round(1), course.steady, course.evaluation)
    return int(max((ask.held(early, most) for stretch in stretches for ask in stretch.asks.values()), default=0.0))


def _is_whole(trial: Trial, calibration: Calibration) -> bool:
    return len(trial.clients) == len(calibration.silos)


def _peak(trial: Trial, facts: Mapping[str, Any]) -> int:
    """Most memory of a run that goes as the trial did, before its results are written.

    A forked process has not yet touched the pages of program files that its parent has: these are counted as the
    parent's.
    """
    last = trial.told.get("trained") or trial.partial or (trial.stretches[-1] if trial.stretches else None)
    if last is None:
        return max(trial.most, int(facts["most"]))
    return int(last["most"] - last["files"] + max(facts["files"], last["files"]))


def _finish(calibration: Calibration) -> int:
    """Most memory of a run in one process while results and report are written; 0 where this was not tried."""
    for trial in calibration.trials:
        if "finished" in trial.told and "trained" in trial.told:
            after, before = trial.told["finished"], trial.told["trained"]
            files = max(calibration.facts["files"], before["files"]) + after["files"] - before["files"]
            return int(after["most"] - after["files"] + files)
    return 0


def _kept(calibration: Calibration, found: Estimate, parts: Mapping[str, int]) -> float:
    """What stays in memory for the clients between two steps, besides their states: constants made of their graphs."""
    last = [stretch for stretch in found.main.stretches if stretch["phase"] == "evaluation"]
    if not last:
        return 0.0
    private = last[-1]["now"] - last[-1]["files"] - (calibration.facts["now"] - calibration.facts["files"])
    own = float(private - parts["what clients share"]) * found.scale
    return max(0.0, own - parts["clients' states"] - parts["server's state"])


def _passing(found: Estimate) -> int:
    """What a step takes only while it goes on."""
    last = found.main.told.get("trained") or found.main.partial
    return max(0, int(last["most"] - last["now"])) if last else 0


def _share(calibration: Calibration, rows: Sequence[int]) -> float:
    work = [silo["work"] for silo in calibration.silos]
    return sum(work[row] for row in rows) / max(sum(work), 1)


def _ledger(config: RunConfig, calibration: Calibration, found: Estimate) -> int:
    """What the ledgers of all seeds take beyond what they took in the trial, and what it takes to write them."""
    told = found.main.told.get("ledger")
    if told is None or told["round"] == 0:
        return 0
    seeds = len(config.run.seeds)
    entries = told["entries"] / told["round"] * calibration.rounds * found.scale
    more = seeds * entries - told["entries"]
    return int(max(0.0, more * (told["entry_bytes"] + told["entry_rows"] * ROW)))


def disk_of(config: RunConfig, calibration: Calibration, found: Estimate, out: Path | None) -> dict[str, float]:
    """Bytes that a run writes.

    Returns:
        ``checkpoint`` at its largest, ``parked`` states of clients that make room for others, ``models`` of all
        seeds, ``results`` (tables, report, finished seeds), ``kept`` after the run, ``most`` while it goes on: the old
        checkpoint stays until the new one is whole, and holds links to what is parked.
    """
    if out is None:
        return dict.fromkeys(("checkpoint", "parked", "models", "results", "kept", "most"), 0.0)
    seeds, rounds, trial = len(config.run.seeds), calibration.rounds, found.main
    saved = [told for told in trial.checkpoints if not told["final"] and told["bytes"] and told["round"]]
    slope = 0.0
    if len(saved) > 1 and saved[-1]["round"] > saved[0]["round"]:
        slope = (saved[-1]["bytes"] - saved[0]["bytes"]) / (saved[-1]["round"] - saved[0]["round"])
    last = _last_checkpoint(trial)
    checkpoint = parked = 0.0
    clients = len(calibration.silos)
    if last is not None and (config.run.resident_clients or clients) < clients:
        parked = (last["bytes"] - last["server"] - last["shared"]) * found.scale + last["shared"]
    if last is not None and config.run.checkpoint_every != 0:
        checkpoint = last["bytes"] + max(0.0, slope) * max(0, rounds - 1 - last["round"])
        once = last["server"] + last["shared"]
        checkpoint = (checkpoint - once) * found.scale + once
    done = max(1, trial.rounds)
    final = next((told["bytes"] or 0 for told in trial.checkpoints if told["final"]), 0) * rounds / done * found.scale
    models = trial.told.get("trained", {}).get("models", 0) * found.scale * seeds
    sizes: dict[str, int] = next(
        (one.told["finished"]["sizes"] for one in calibration.trials if "finished" in one.told), {}
    )
    fixed = {"report.html", "partition.npz", "config.yaml"}
    results = sum(size if name in fixed else size * seeds * rounds / done for name, size in sizes.items())
    kept = models + results + final * seeds
    return {
        "checkpoint": checkpoint,
        "parked": parked,
        "models": models,
        "results": results + final * seeds,
        "kept": kept,
        "most": kept + max(2 * checkpoint, parked),
    }


def _last_checkpoint(trial: Trial) -> dict[str, Any] | None:
    return next((told for told in reversed(trial.checkpoints) if not told["final"] and told["bytes"]), None)


def _positive(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in parts.items() if size > 0}


def findings_of(
    config: RunConfig,
    calibration: Calibration,
    found: Estimate,
    memory: Mapping[str, int | None],
    disk: Mapping[str, float],
    out: Path | None,
) -> tuple[Finding, ...]:
    """What a person should know, the gravest first."""
    told = []
    needed, free, whole = memory["needed"] or 0, memory["free"], memory["machine"]
    ended = calibration.trials[0].end == "memory"
    if ended or (whole is not None and needed > whole):
        least = "more than" if ended else "about"
        have = "that is not there" if whole is None else f"this machine has {_gigabytes(whole)}"
        text = (
            f"memory: {least} {_gigabytes(needed)} would be needed, and {have}. Keep fewer clients in memory "
            f"(run.resident_clients), use fewer workers or a smaller model, or take a larger machine."
        )
        told.append(Finding("refused", text))
    elif free is not None and needed > free:
        text = f"memory: about {_gigabytes(needed)} are needed, and only {_gigabytes(free)} are free just now."
        told.append(Finding("warning", text))
    left = None if out is None else room(out)
    if left is not None and disk["most"] > left:
        text = (
            f"disk: up to {_gigabytes(disk['most'])} will be written, and {_gigabytes(left)} are free where {out} is. "
            f"Choose another --out, or keep less (evaluation.models=false, run.checkpoint_every=0"
            f"{', a larger run.resident_clients' if disk['parked'] else ''})."
        )
        told.append(Finding("refused", text))
    elif any(one["bytes"] is None for trial in calibration.trials for one in trial.checkpoints):
        told.append(Finding("warning", "disk: the temporary folder had no room for a checkpoint; its size is unknown."))
    told += [Finding("warning", text) for text in found.weak]
    if config.run.early_stopping is not None:
        told.append(Finding("note", "run.early_stopping may end seeds sooner; costs are those of all rounds."))
    if config.run.references:
        names = ", ".join(config.run.references)
        told.append(Finding("note", f"the reference rows ({names}) are runs of their own and not part of this plan."))
    return tuple(told)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
