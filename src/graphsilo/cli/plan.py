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
    from graphsilo.planning.plan import Distributed, Traffic

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
    """Try a configuration for a little while and print what a run will cost.

    Args:
        path: Configuration file, or None.
        overrides: Values of flags by dotted name.
        assignments: Those of ``--set``.
        seconds: CPU seconds for each trial.
        bandwidth, latency: Of each site's line, as a person writes them; None leaves runs between machines out.
        out: Folder that the run would write to; None takes one below ``runs``.
        as_json: Print one JSON object instead of tables.

    Raises:
        RunError: The run does not fit this machine; the plan is printed before.
        GraphsiloError: As the run itself would.
    """
    from graphsilo.cli.run import RUNS
    from graphsilo.planning import Line, lines, plan

    if seconds <= 0:
        raise ConfigError(f"--seconds takes a time above 0; got {seconds:g}.")
    line = None
    if bandwidth is not None:
        line = Line(lines.bandwidth(bandwidth), 0.0 if latency is None else lines.latency(latency))
    elif latency is not None:
        raise ConfigError("--latency goes with --bandwidth: say how many bits per second a site's line carries, too.")
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
    for number, part in enumerate((_heading, _times, _traffic, _memory, _disk)):
        if number:
            terminal.say()
        part(plan)
    if plan.distributed is not None:
        terminal.say()
        _apart(plan.distributed)
    told = [finding for finding in plan.findings if finding.level != "refused"]
    if told:
        terminal.say()
    for finding in told:
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


def _times(plan: Plan) -> None:
    cpu, wall = plan.cpu, plan.wall

    def spent(seconds: float) -> str:
        """A time; where not everything was seen, nothing is unknown and the rest at least so much."""
        if plan.is_whole:
            return duration(seconds)
        return f"≥{duration(seconds)}" if seconds else MISSING

    grid = terminal.table("Time", "CPU", "Wall", numbers=(1, 2))
    evaluations = plan.about["evaluations"]
    grid.add_row("Start, data and cut", duration(cpu.start + cpu.prepare), duration(cpu.start + cpu.prepare))
    grid.add_row("Set-up", spent(cpu.setup), spent(wall.setup))
    grid.add_row("First round", spent(cpu.first_round), MISSING)
    grid.add_row(f"Each later round of {plan.about['rounds']}", spent(cpu.round), spent(wall.round))
    grid.add_row(f"Each evaluation of {evaluations}", spent(cpu.evaluation), spent(wall.evaluation))
    grid.add_row("Each checkpoint", spent(cpu.checkpoint), spent(cpu.checkpoint))
    grid.add_row("Results and report", spent(cpu.finish), spent(cpu.finish))
    grid.add_row("Seed: set-up, rounds, evaluations", spent(cpu.seed), MISSING, style="bold")
    grid.add_row("The whole run", spent(cpu.run), spent(wall.run), style="bold")
    terminal.show(grid)
    if wall.workers > 1:
        loads = ", ".join(f"{100 * load:.0f}" for load in wall.loads)
        terminal.say(f"Clients' work per worker, %: {loads}.")


def _traffic(plan: Plan) -> None:
    moved = plan.bytes
    rows = (
        ("Set-up", moved.setup),
        ("First round", moved.first_round),
        ("Each later round", moved.round),
        ("Each evaluation", moved.evaluation),
        ("Seed: set-up, rounds", moved.seed),
        ("Run, with evaluations", moved.run),
    )
    grid = terminal.table("Bytes", "To server", "To clients", "One: up", "One: down", numbers=(1, 2, 3, 4))
    for name, part in rows:
        style = "bold" if part in (moved.seed, moved.run) else ""
        unknown = not plan.is_whole and not any(_values(part))
        cells = [MISSING if unknown else _size(value, part) for value in _values(part)]
        grid.add_row(name, *cells, style=style)
    terminal.show(grid)
    told = "" if all(part.exact for _, part in rows) else " ≈ where messages vary, or not all were seen; else exact."
    terminal.say(f"One: the client that moves most.{told}")


def _values(part: Traffic) -> tuple[float, ...]:
    return part.up, part.down, part.most_up, part.most_down


def _size(value: float, part: Traffic) -> str:
    return f"{'' if part.exact or value == 0 else '≈'}{data_size(value)}"


def _memory(plan: Plan) -> None:
    names = list(dict.fromkeys(name for process in plan.processes for name in process.parts))
    heads = [f"{process.name} × {process.count}" if process.count > 1 else process.name for process in plan.processes]
    grid = terminal.table("Memory at its peak", *heads, numbers=range(1, len(heads) + 1))
    for name in names:
        shown = [data_size(process.parts[name]) if name in process.parts else MISSING for process in plan.processes]
        grid.add_row(name.capitalize(), *shown)
    grid.add_row("Each process", *(data_size(process.bytes) for process in plan.processes), style="bold")
    terminal.show(grid)
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
    parked = f" and parked clients of {data_size(disk['parked'])}" if disk["parked"] else ""
    terminal.say(
        f"Disk: {data_size(disk['kept'])} stay (models {data_size(disk['models'])}, results "
        f"{data_size(disk['results'])}); up to {data_size(disk['most'])} on the way, with checkpoints of "
        f"{data_size(disk['checkpoint'])}{parked}."
    )


def _apart(apart: Distributed) -> None:
    rate = f"{8 * apart.bandwidth / 1e6:g} Mbit/s"
    grid = terminal.table(f"Between machines, {rate}, {duration(apart.latency)}", "Wall", numbers=(1,))
    grid.add_row("Set-up", duration(apart.setup))
    grid.add_row("Each round", duration(apart.round))
    grid.add_row("Each evaluation", duration(apart.evaluation))
    grid.add_row("The whole run", duration(apart.run), style="bold")
    terminal.show(grid)
    terminal.say(
        f"A round waits for site {apart.slowest['client']:g}, which works, receives and sends for "
        f"{duration(apart.slowest['seconds'])}. If the coordinator's line is no wider than a site's, it is busy for "
        f"{duration(apart.coordinator)} per round. What the engine adds to each message is not in here."
    )
