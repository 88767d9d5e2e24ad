"""``graphsilo plan``: what a run will cost, as tables or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.cli import terminal
from graphsilo.errors import RunError
from graphsilo.experiments.config import load_config
from graphsilo.loading import load
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
    bandwidth: float | None,
    latency: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Try a configuration for a little while and print what a run will cost; see the flags of ``graphsilo plan``.

    Raises:
        RunError: The run does not fit this machine; the plan is printed before.
        GraphsiloError: As the run itself would.
    """
    load("graphsilo.planning")
    from graphsilo.cli.run import RUNS
    from graphsilo.planning import Connection, plan

    line = Connection.of(bandwidth, latency)
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
    about = plan.about
    rounds, seeds = (f"{about[name]} {name[:-1] if about[name] == 1 else name}" for name in ("rounds", "seeds"))
    workers = f", {about['workers']} workers" if about["workers"] > 1 else ""
    device = "" if about["device"] == "cpu" else f", on {about['device']}"
    terminal.say(
        f"{about['method']['title']} on {about['data']['name']}: {about['clients']} clients ({about['rule']}), "
        f"{rounds}, {seeds}{workers}{device}."
    )
    terminal.say(f"Known from: {plan.basis}.")
    terminal.say()
    _steps(plan)
    terminal.say()
    for process in plan.processes:
        each = f", each of {process.count}" if process.count > 1 else ""
        terminal.say(f"Memory of {process.name}{each}: {data_size(process.bytes)} at its peak.")
    needed, free, machine = (plan.memory[key] for key in ("needed", "free", "machine"))
    if machine is not None:
        terminal.say(f"In all {data_size(needed)}; this machine has {data_size(machine)}, {data_size(free)} free.")
    if plan.gpu:
        terminal.say(f"On the GPU: {data_size(plan.gpu)}.")
    disk = plan.disk
    terminal.say()
    if plan.is_whole or disk["kept"]:
        terminal.say(
            f"Disk: {data_size(disk['kept'])} stay (models {data_size(disk['models'])}, results "
            f"{data_size(disk['results'])}); up to {data_size(disk['peak'])} on the way, with checkpoints of "
            f"{data_size(disk['checkpoint'])}."
        )
    else:
        terminal.say("Disk: unknown.")
    notes = [finding for finding in plan.findings if finding.level != "refused"]
    if notes:
        terminal.say()
    for finding in notes:
        terminal.say(f"{finding.level.capitalize()}: {finding.text}")


def _steps(plan: Plan) -> None:
    """Time and bytes, step by step."""
    between = plan.about["bandwidth"] is not None
    times = ("cpu", "wall", "sites") if between else ("cpu", "wall")
    heads = [*("CPU", "Wall", "Between machines")[: len(times)], "To server", "To clients", "One: up", "One: down"]
    grid = terminal.table("Step", *heads, numbers=range(1, len(heads) + 1))
    exact, steady, about = plan.is_whole, plan.is_steady, plan.about
    seed, seed_max, run, run_max = (name in plan.exact for name in ("seed", "seed_max", "run", "run_max"))
    rows: list[tuple[str, Cost, bool, bool]] = [  # and whether bytes are exact: of all clients, of the one
        ("Start, data and cut", plan.start, True, True),
        ("Set-up", plan.setup, exact, exact),
        ("First round", plan.first_round, exact, exact),
        *([(f"Each later round of {about['rounds']}", plan.round, steady, steady)] if about["rounds"] > 1 else []),
        (f"Each evaluation of {about['evaluations']}", plan.evaluation, exact, exact),
        ("Each checkpoint", plan.checkpoint, True, True),
        *([(f"Beside it: {', '.join(about['rows'])}", plan.rows, True, True)] if about["rows"] else []),
        ("Results and report", plan.finish, True, True),
        ("Seed: set-up, rounds", plan.seed, seed, seed_max),
        ("The whole run", plan.run, run, run_max),
    ]
    least = "" if plan.is_whole else "≥"  # where not everything was seen, nothing is unknown
    for name, cost, is_exact, is_exact_max in rows:
        cells = [f"{least}{duration(time)}" if (time := getattr(cost, key)) else MISSING for key in times]
        sizes = [(cost.up, is_exact), (cost.down, is_exact), (cost.max_up, is_exact_max), (cost.max_down, is_exact_max)]
        cells += [f"{'' if known else '≈'}{data_size(size)}" if size else MISSING for size, known in sizes]
        grid.add_row(name, *cells, style="bold" if cost in (plan.seed, plan.run) else "")
    terminal.show(grid)
    is_all = all(is_exact and is_exact_max for *_, is_exact, is_exact_max in rows)
    vary = "" if is_all else " ≈ where messages vary or clients take turns, and not all were seen; else exact."
    terminal.say(
        f"One: the client that moves most. Bytes of a seed are those of set-up and rounds, of the run with evaluations."
        f"{vary}"
    )
    if between:
        terminal.say(
            f"Between machines: lines of {about['bandwidth']:g} Mbit/s and {about['latency']:g} ms; every call waits "
            f"for the slowest site. What the engine adds to each message is not in here."
        )
