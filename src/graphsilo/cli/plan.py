"""``graphsilo plan``: what a run will cost, as tables or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.cli import terminal
from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.config import load_config
from graphsilo.report.formats import MISSING, data_size, duration

if TYPE_CHECKING:
    from graphsilo.planning import Plan
    from graphsilo.planning.plan import Cost

FINISH = "graphsilo.report:write"
"""What a run ends with."""


def plan_command(
    path: Path | None,
    *,
    overrides: Mapping[str, Any],
    assignments: Sequence[str],
    seconds: float,
    bandwidth: str | None,
    latency: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Try a configuration for a little while and print what a run will cost; see the flags of ``graphsilo plan``.

    Raises:
        RunError: The run does not fit this machine; the plan is printed before.
        GraphsiloError: As the run itself would.
    """
    from graphsilo.cli.run import RUNS
    from graphsilo.planning import plan
    from graphsilo.planning.connection import connection_of

    if seconds <= 0:
        raise ConfigError(f"--seconds takes a time above 0; got {seconds:g}.")
    line = connection_of(bandwidth, latency)
    config = load_config(path, overrides=overrides, assignments=assignments)
    if not as_json and terminal.is_terminal(sys.stderr):
        print("Loading the data and trying the method …", end="\r", file=sys.stderr, flush=True)
    try:
        found = plan(config, seconds=seconds, line=line, out=RUNS if out is None else out.expanduser(), finish=FINISH)
    finally:
        if not as_json and terminal.is_terminal(sys.stderr):
            print(" " * 45, end="\r", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        show(found)
    if found.is_refused:
        raise RunError(" ".join(finding.text for finding in found.findings if finding.level == "refused"))


def show(plan: Plan) -> None:
    """Print a plan as tables."""
    for number, part in enumerate((_heading, _steps, _memory, _disk)):
        if number:
            terminal.say()
        part(plan)
    notes = [finding for finding in plan.findings if finding.level != "refused"]
    if notes:
        terminal.say()
    for finding in notes:
        terminal.say(f"{finding.level.capitalize()}: {finding.text}")


def _heading(plan: Plan) -> None:
    about = plan.about
    seeds = f"{about['seeds']} seed{'' if about['seeds'] == 1 else 's'}"
    workers = f", {about['workers']} workers" if about["workers"] > 1 else ""
    device = "" if about["device"] == "cpu" else f", on {about['device']}"
    terminal.say(
        f"{about['method']['title']} on {about['data']['name']}: {about['clients']} clients ({about['rule']}), "
        f"{about['rounds']} rounds, {seeds}{workers}{device}."
    )
    terminal.say(f"Known from: {plan.basis}.")


def _steps(plan: Plan) -> None:
    """Time and bytes, step by step."""
    between = plan.about["bandwidth"] is not None
    heads = [
        "CPU",
        "Wall",
        *(["Between machines"] if between else []),
        "To server",
        "To clients",
        "One: up",
        "One: down",
    ]
    grid = terminal.table("Step", *heads, numbers=range(1, len(heads) + 1))
    exact, steady = plan.is_exact, plan.is_steady
    rows: list[tuple[str, Cost, bool]] = [
        ("Start, data and cut", plan.start, True),
        ("Set-up", plan.setup, exact),
        ("First round", plan.first_round, exact),
        (f"Each later round of {plan.about['rounds']}", plan.round, steady),
        (f"Each evaluation of {plan.about['evaluations']}", plan.evaluation, exact),
        ("Each checkpoint", plan.checkpoint, True),
        ("Results and report", plan.finish, True),
        ("Seed: set-up, rounds", plan.seed, steady),
        ("The whole run", plan.run, steady and plan.about["seeds"] == 1),
    ]
    for name, cost, is_exact in rows:
        times = [cost.cpu, cost.wall, *([cost.sites] if between else [])]
        moved = [cost.up, cost.down, cost.max_up, cost.max_down]
        cells = [_time(plan, seconds) for seconds in times] + [_size(size, is_exact) for size in moved]
        grid.add_row(name, *cells, style="bold" if cost in (plan.seed, plan.run) else "")
    terminal.show(grid)
    vary = "" if all(is_exact for *_, is_exact in rows) else " ≈ where messages vary, or not all were seen; else exact."
    terminal.say(
        f"One: the client that moves most. Bytes of a seed are those of set-up and rounds, of the run with evaluations."
        f"{vary}"
    )
    if between:
        terminal.say(
            f"Between machines: lines of {8 * plan.about['bandwidth'] / 1e6:g} Mbit/s and "
            f"{duration(plan.about['latency'])}; every call waits for the slowest site. What the engine adds to each "
            f"message is not in here."
        )


def _time(plan: Plan, seconds: float) -> str:
    """A time; where not everything was seen, nothing is unknown and the rest at least so much."""
    if not seconds:
        return MISSING
    return duration(seconds) if plan.is_whole else f"≥{duration(seconds)}"


def _size(size: float, is_exact: bool) -> str:
    return MISSING if not size else data_size(size) if is_exact else f"≈{data_size(size)}"


def _memory(plan: Plan) -> None:
    for process in plan.processes:
        each = f", each of {process.count}" if process.count > 1 else ""
        terminal.say(f"Memory of {process.name}{each}: {data_size(process.bytes)} at its peak.")
    needed, free, machine = (plan.memory[key] for key in ("needed", "free", "machine"))
    if machine is not None:
        terminal.say(f"In all {data_size(needed)}; this machine has {data_size(machine)}, {data_size(free)} free.")
    if plan.gpu:
        terminal.say(f"On the GPU: {data_size(plan.gpu)}.")


def _disk(plan: Plan) -> None:
    disk = plan.disk
    if not plan.is_whole and not disk["kept"]:
        terminal.say("Disk: unknown.")
        return
    terminal.say(
        f"Disk: {data_size(disk['kept'])} stay (models {data_size(disk['models'])}, results "
        f"{data_size(disk['results'])}); up to {data_size(disk['peak'])} on the way, with checkpoints of "
        f"{data_size(disk['checkpoint'])}."
    )
