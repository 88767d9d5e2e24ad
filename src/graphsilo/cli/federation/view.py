"""How a federation looks in a terminal: its coordinator, its sites and its jobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphsilo.cli import terminal
from graphsilo.cli.progress import short_time
from graphsilo.errors import one_line
from graphsilo.report.formats import MISSING, data_size, duration, with_unit
from graphsilo.report.status_page import ENGINES, time_left

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from graphsilo.experiments.service.jobs import Job

STATES = {
    "waiting": ("○", "dim"),
    "up": ("●", "green"),
    "working": ("▶", "cyan"),
    "late": ("▲", "yellow"),
    "lost": ("✕", "red"),
    "gone": ("■", "red"),
    "queued": ("○", "dim"),
    "running": ("▶", "cyan"),
    "interrupted": ("▲", "yellow"),
    "done": ("✓", "green"),
    "failed": ("✕", "red"),
    "stopped": ("■", "dim"),
}
"""Sign and colour of each state of a site or a job. The word stands beside them: neither is needed to understand."""
TROUBLE = ("late", "lost", "gone")
LONGEST_TEXT = 2000
_LEAST_NAME = 8
_LEAST_NOTE = 24
_BETWEEN = 4


def printable(text: str) -> str:
    """A text of somebody else's for the terminal; see ``errors.one_line``."""
    return one_line(text, LONGEST_TEXT)


def age(seconds: float) -> str:
    """How long something has been so: "12 s", "3 min 05 s", "2 h 10 min", "3 d 4 h"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole // 60 % 60:02d} min"
    return f"{whole // 86400} d {whole // 3600 % 24} h"


def state(name: str) -> Text:
    """Sign and word of a state."""
    from rich.text import Text

    sign, style = STATES.get(name, ("?", ""))
    return Text(f"{sign} {printable(name)}", style=style)


def sites_table(sites: Sequence[Mapping[str, Any]], now: float, width: int, *, note: bool = False) -> Table:
    """A line per site.

    Args:
        sites: As in ``Status.tree``.
        now: Unix time.
        width: Of the terminal; names of silos are left out where they do not fit, and names of sites cut at last.
        note: Show the last trouble, cut to what is left of the width; else it has to stand elsewhere.
    """
    several = any(site["silos"] != [site["site"]] for site in sites)
    for silos in (True, False) if several else (False,):
        grid = _sites(sites, now, silos)
        space = width - terminal.width_of(grid)
        if space >= 0:
            break
    if space < 0:
        longest = max(len(site["site"]) for site in sites)
        return _sites(sites, now, silos, name=max(_LEAST_NAME, longest + space))
    return _sites(sites, now, silos, note=space - _BETWEEN) if note and space >= _LEAST_NOTE else grid


def _sites(sites: Sequence[Mapping[str, Any]], now: float, silos: bool, *, note: int = 0, name: int = 1000) -> Table:
    from rich.text import Text

    names = ["site", *(["silos"] if silos else []), "state", "for", "answer", "to it", "from it"]
    grid = terminal.table(*names, *(["trouble"] if note else []), numbers=range(len(names) - 4, len(names)))
    for column in grid.columns:
        column.no_wrap = True
    for site in sites:
        known = Text(printable(site["site"]))
        known.truncate(name, overflow="ellipsis")
        notes = Text(printable(site["note"]) if site["state"] in TROUBLE else "")
        notes.truncate(note, overflow="ellipsis")
        grid.add_row(
            known,
            *([printable(", ".join(site["silos"]))] if silos else []),
            state(site["state"]),
            age(now - site["since"]),
            duration(site["seconds"]) if site["seconds"] else MISSING,
            data_size(site["sent"]),
            data_size(site["received"]),
            *([notes] if note else []),
        )
    return grid


def jobs_table(jobs: Iterable[Job], tree: Mapping[str, Any], now: float, *, results: bool, seeds: bool) -> Table:
    """A line per job, with its round while it runs."""
    names = ["job", "state", "round", "best", "took", "left", *(["results"] if results else [])]
    grid = terminal.table(*names, numbers=range(2, 6))
    for column in grid.columns:
        column.no_wrap = True
    current = tree.get("job") or {}
    for job in jobs:
        # A coordinator that was killed leaves a job that says it runs; the next one goes on with it.
        halted = job.state == "running" and not tree.get("serving")
        place = best = left = ""
        if job.state == "running" and current.get("id") == job.id and current.get("round") is not None:
            place = f"{current['round']}/{current['rounds']}"
            if seeds and current["seeds"] > 1:
                place += f" of seed {current['index']}/{current['seeds']}"
            best = with_unit(current["best"][0], current.get("metric", "accuracy")) if current.get("best") else ""
            seconds = None if halted else time_left(tree)
            left = "" if seconds is None else short_time(seconds)
        end = job.finished or (tree.get("at", now) if halted else now)
        grid.add_row(
            job.id,
            state("interrupted" if halted else job.state),
            place,
            best,
            age(end - job.started) if job.started else "",
            left,
            *([printable(shorten_path(job.out))] if results else []),
        )
    return grid


def shorten_path(path: str) -> str:
    """A path as seen from here, where that is shorter."""
    try:
        near = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return near if len(near) < len(path) and not near.startswith(os.pardir) else path


def list_troubles(sites: Sequence[Mapping[str, Any]], jobs: Sequence[Job]) -> list[str]:
    """What went wrong, a paragraph each: sites that are not as they should be, and jobs that failed."""
    notes = [f"{site['site']}: {site['note']}" for site in sites if site["note"] and site["state"] in TROUBLE]
    notes += [f"{job.id}: {job.error}" for job in jobs if job.error and job.state == "failed"]
    return [printable(text) for text in notes]


def show_status(tree: Mapping[str, Any], jobs: Sequence[Job]) -> None:
    """Print the coordinator, its sites and its jobs.

    Args:
        tree: As ``Status.tree`` makes it, with ``serving``; empty but for that where nobody ever served.
        jobs: Oldest first.
    """
    now = time.time()
    sites = tree.get("sites") or []
    if not tree.get("federation"):
        terminal.say("Nobody has served this kit yet: start it with `graphsilo serve`.")
    else:
        engine = ENGINES.get(tree["engine"], tree["engine"])
        how = f"serving for {age(now - tree['since'])} (process {tree['pid']})"
        if not tree["serving"]:
            how = f"not serving; what follows is {age(now - tree['at'])} old"
        terminal.say(f"{printable(tree['federation'])}: {how}, engine {engine}")
        # No site is heard from after its coordinator has ended, so ages are those of its last word.
        at = now if tree["serving"] else tree["at"]
        if sites:
            terminal.say()
            terminal.show(sites_table(sites, at, terminal.console().width))
        elif tree["serving"]:
            terminal.say("No site has been asked yet: they are when the first job begins.")
    if jobs:
        terminal.say()
        for results, seeds in ((True, True), (False, True), (False, False)):
            grid = jobs_table(jobs, tree, now, results=results, seeds=seeds)
            if terminal.width_of(grid) <= terminal.console().width:
                break
        terminal.show(grid)
        if not results:
            _results(jobs)
    elif tree.get("federation"):
        terminal.say("No job yet: `graphsilo federation submit CONFIG.yaml` puts one in the queue.")
    notes = list_troubles(sites, jobs)
    if notes:
        terminal.say()
        for text in notes:
            terminal.say(text)


def _results(jobs: Sequence[Job]) -> None:
    """Where the results are, for a terminal that is too narrow for one more column."""
    terminal.say()
    for job in jobs:
        sys.stdout.write(f"Results of {job.id}: {printable(shorten_path(job.out))}\n")
