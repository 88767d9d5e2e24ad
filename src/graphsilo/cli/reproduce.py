"""``graphsilo reproduce``: a paper's table, run again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.cli import complete
from graphsilo.cli.terminal import announce, say, show, table
from graphsilo.cli.values import (
    DataRoot,
    Debug,
    argument,
    option,
    resolve_executor,
    switch,
    whole_numbers,
)
from graphsilo.errors import RunError

if TYPE_CHECKING:
    from graphsilo.experiments.reproduce.runs import Plan


def reproduce(
    paper: str | None = argument("PAPER", "Such as FairFGL; none lists all.", complete.papers, default=None),
    number: str | None = argument("TABLE|figN", "Such as II or fig4; else all of the paper's tables.", default=None),
    quick: bool = switch("--quick", "A look: shortened runs, one seed, one data set. No numbers to compare."),
    data: list[str] | None = option(
        "NAME,…", "Only these data sets, else all but large graphs; any for a figure.", complete.data
    ),
    clients: int | None = option("N", "Only rows with so many clients; as many for a figure.", min=1),
    methods: list[str] | None = option(
        "NAME,…", "Only these beside the references, as table or figure names them.", flags="--methods"
    ),
    seeds: str | None = option("0,1,2", "Seeds of training; else the table's."),
    jobs: int | None = option("N", "Processes that run at the same time.", min=1),
    executor: str | None = option("PLACE", "processes:N, or dask://HOST:PORT."),
    out: Path | None = option("DIR", "Folder; else runs/reproduce-PAPER."),
    data_root: DataRoot = None,
    debug: Debug = False,
) -> None:
    """Run a paper's table or figure again. What is done is not run again."""
    from graphsilo.experiments.reproduce import figures, runs

    if paper is None:
        list_tables()
        return
    place = resolve_executor(executor, jobs) or "processes:1"
    asked: dict[str, Any] = {
        "data": data, "clients": clients, "methods": methods, "quick": quick, "out": out, "data_root": data_root,
        "seeds": None if seeds is None else whole_numbers(seeds, "--seeds"),
    }  # fmt: skip
    if number is None or not figures.is_figure(number):
        _print(runs.plan(paper, number, **asked), place)
        if not (quick or data or methods or clients):
            list_missing(paper, number)
        return
    from graphsilo.cli.sweep import print_swept
    from graphsilo.report import reproduced

    for swept in reproduced.reproduce_figures(paper, number, place, say=tell, **asked):
        print_swept(swept)


def _print(planned: Plan, executor: str) -> None:
    from graphsilo.cli.compare import print_table
    from graphsilo.report import reproduced

    tell(f"{planned.tables[0].paper}: {len(planned.jobs)} runs in {planned.out}.{estimate(planned)}")
    found = reproduced.reproduce(planned, executor, say=tell)
    for each in found.tables:
        say(each.title)
        say()
        print_table(each.grid)
        say()
    for path in found.files:
        say(str(path))
    if found.failed and planned.quick:  # a look has shown what there is to see, a method that diverges included
        tell(found.complaint)
    elif found.failed:
        raise RunError(found.complaint)


def list_missing(paper: str, number: str | None) -> None:
    """What these tables print and was not run, and why."""
    from graphsilo.experiments.reproduce.coverage import list_left_out
    from graphsilo.experiments.reproduce.description import find_tables, is_large

    every = find_tables(paper, number)
    large = dict.fromkeys(row.data for each in every for row in each.rows if is_large(row.data))
    for text in list_left_out(every[0].paper, None if number is None else every[0].number):
        say(text)
    if large:
        say(f"Large graphs, not run unless --data names them: {', '.join(large)}.")


def estimate(planned: Plan) -> str:
    """A sentence on what these rows take with all their methods and seeds; empty for a quick look, or where unknown."""
    rows = [row for table in planned.tables for row in table.rows]
    known = [row.minutes for row in rows if row.minutes is not None]
    if planned.quick or not known:
        return ""
    bound = "" if len(known) == len(rows) else "more than "
    return f" With all methods and seeds {bound}about {sum(known):.0f} minutes of one core."


def tell(text: str) -> None:
    """A line on stderr."""
    announce(f"{time.strftime('%H:%M:%S')}  {text}")


def list_tables() -> None:
    """Papers, tables, and about what each takes; then figures."""
    from graphsilo.experiments.reproduce.description import is_large, tables
    from graphsilo.experiments.reproduce.figures import figures
    from graphsilo.experiments.reproduce.published import ASSUMED

    grid = table("Paper", "Table", "What", "Data", "Methods", "Minutes", numbers=(4, 5))
    for each in tables():
        methods = {line.label for row in each.rows for line in row.lines if line.is_default and line.paper}
        known = all(row.minutes is not None for row in each.rows)
        minutes = "–" if each.minutes is None else f"{'' if known else '> '}{each.minutes:.0f}"
        data = ", ".join(dict.fromkeys(f"({row.data})" if is_large(row.data) else row.data for row in each.rows))
        grid.add_row(each.paper, each.number, each.protocol, data, str(len(methods)), minutes)
    show(grid)
    say()
    say(
        "Minutes: about, of one core, for all data sets, methods and seeds (>: of those that were timed; –: none was); "
        "--jobs N shares them among N processes."
    )
    say("Data in brackets: large graphs, run where --data names them.")
    assumed = "; ".join(f"{paper}, {what}" for paper, what in ASSUMED.items())
    say(f"Assumed, as the paper does not say it: {assumed}.")
    say()
    grid = table("Paper", "Figure", "What", "Data")
    for figure in figures():
        grid.add_row(figure.paper, f"fig{figure.number}", figure.said["title"], ", ".join(figure.said["data"]))
    show(grid)
    say()
    say("graphsilo reproduce PAPER TABLE (or figN) runs it and draws it; --quick is a look of a minute or so.")
