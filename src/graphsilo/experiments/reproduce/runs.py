"""The runs behind a paper's table: which they are, where they lie, and carrying them out.

Each method, data set and seed is a run with a folder of its own, so that what is done is not run again, wherever the
rest is carried out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from pydantic.fields import FieldInfo

from graphsilo.data.sources import entries
from graphsilo.errors import ConfigError, DataError, nearest
from graphsilo.experiments import batch
from graphsilo.experiments.config import load_config
from graphsilo.experiments.reproduce.description import Line, Row, Table, find_tables, is_large
from graphsilo.experiments.reproduce.published import read_scores
from graphsilo.federation import registry
from graphsilo.federation.absent import missing
from graphsilo.federation.registry import plain_name
from graphsilo.federation.settings import OneRoundConfig

QUICK_ROUNDS = 5
"""Rounds of a quick look, at most; and epochs of every step of a round, but for those that ``Method.quick`` names."""
QUICK = (
    f"A quick look at shortened runs: {QUICK_ROUNDS} rounds at most, few epochs, small generators, one seed, one data "
    f"set. Its numbers are no reproduction."
)


@dataclass(frozen=True)
class Job:
    """One method on one data set with one seed."""

    row: Row
    line: Line
    seed: int
    config: dict[str, Any]
    out: Path

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.row.id}, {self.line.label}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Tables of one paper, and the runs that they take.

    Attributes:
        tables: With the rows, methods and seeds that were asked for.
        jobs: A run that several tables show is there once.
        out: Folder of everything.
        quick: Whether it is a quick look.
        name: Of the files that are drawn, without an ending: ``reproduce``, with the table where it is one, and
            ``quick``: another table's, or a quick look's, take no other's place.
    """

    tables: tuple[Table, ...]
    jobs: tuple[Job, ...]
    out: Path
    quick: bool
    name: str = "reproduce"


def plan(
    paper: str,
    table: str | None = None,
    *,
    data: Sequence[str] | None = None,
    clients: int | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_root: Path | str | None = None,
) -> Plan:
    """What is run for a paper's tables.

    Args:
        paper: Its method, as ``FairFGL``.
        table: Number of one table, as ``II``; None takes all that can be run.
        data: Only these data sets; None takes all but large graphs.
        clients: Only rows with so many.
        methods: Only these methods beside the references, as the table names them; None takes all but variants. Names
            of methods and data sets may be joined by commas.
        seeds: Seeds of training; None takes the table's own.
        quick: Shortened runs, references too, on the first data set with the first seed, where no others are named.
        out: Folder; None is ``runs/reproduce-PAPER``.
        data_root: Where data sets are, as ``data.root``.

    Raises:
        ConfigError: There is no such paper, table, data set, number of clients or method; or such seeds cannot be.
    """
    every = find_tables(paper, table)
    if seeds is not None:
        seeds = load_config(overrides={"run.seeds": seeds}).run.seeds
    data = _spell_names("data set", data, {row.data for each in every for row in each.rows})
    methods = _spell_names("method", methods, {line.label for each in every for row in each.rows for line in row.lines})
    tables = [_narrow(each, data, clients, methods, seeds, quick=quick) for each in every]
    tables = [each for each in tables if each.rows]
    if not tables:
        _refuse_rest(every, data, clients)
    folder = out or folder_of(tables[0].paper)
    jobs: dict[Path, Job] = {}
    for _, row, line, seed, place in runs_of(tables, folder, quick=quick):
        if place not in jobs:
            jobs[place] = Job(row, line, seed, settings_of(row, line, seed, data_root, quick=quick), place)
    parts = ["reproduce", *([tables[0].number] if table else []), *(["quick"] if quick else [])]
    return Plan(tuple(tables), tuple(jobs.values()), folder, quick, "-".join(parts))


def folder_of(paper: str) -> Path:
    """Where what a paper takes is run, where nobody says it."""
    name = "".join(letter for letter in paper.lower().replace("+", "-plus") if letter.isalnum() or letter == "-")
    return Path("runs") / f"reproduce-{name}"


def runs_of(tables: Iterable[Table], out: Path, *, quick: bool) -> Iterator[tuple[Table, Row, Line, int, Path]]:
    """Every seed of every line of these tables, and the folder of its run, which several of them may share."""
    for table in tables:
        for row in table.rows:
            for line in row.lines:
                place = place_of(out, row, line, quick=quick)
                yield from ((table, row, line, seed, place / str(seed)) for seed in row.seeds)


def place_of(out: Path, row: Row, line: Line, *, quick: bool) -> Path:
    """The folder of a method's runs on a data set, one for each seed; lines with the same settings share theirs."""
    first = next(each for each in row.lines if each.settings == line.settings)
    label = "".join(letter if letter.isalnum() or letter == "+" else "-" for letter in first.label.lower())
    return out / ("quick" if quick else "full") / row.id / label


def carry_out(
    planned: Plan, executor: str | None = None, *, follow: Callable[[], None] | None = None
) -> Iterator[tuple[Job, batch.Outcome]]:
    """Make every run that is not made, and give what became of each.

    Args:
        planned: Of ``plan``.
        executor: As ``batch.run`` takes it.
        follow: Likewise.

    Raises:
        ConfigError: There is no such executor.
        DataError: No data set is here or can be downloaded. Where some are, the runs on the others fail.
    """
    with contextlib.closing(
        batch.executor_of(executor)
    ) as place:  # a mistake in it is refused before anything is fetched
        missing = _fetch(planned)
        by_name = {job.name: job for job in planned.jobs}
        tasks = []
        for job in planned.jobs:
            if (data := job.config["data.name"]) not in missing:
                tasks.append(batch.Task(job.name, job.config, job.out))
                continue
            yield job, batch.Outcome(job.name, job.out, missing[data])
            missing[data] = f"{data} is missing, as was said of another run."
        for outcome in batch.run(tasks, place, follow=follow):
            yield by_name[outcome.name], outcome


def _fetch(planned: Plan) -> dict[str, str]:
    """Download what is not here, once for all runs; says of each data set that cannot be had, why.

    Raises:
        DataError: No data set can be had.
    """
    from graphsilo.data.sources import catalog

    missing: dict[str, str] = {}
    roots = {job.config["data.name"]: job.config.get("data.root") for job in planned.jobs}
    for name, root in roots.items():
        found = catalog.entry(name)
        if not found.generated and found.source.find(catalog.data_roots(root)) is None:
            try:
                catalog.load(name, root=root)
            except DataError as error:
                missing[name] = str(error)
                if len(missing) == len(roots):
                    raise
    return missing


def _narrow(
    table: Table,
    data: Sequence[str] | None,
    clients: int | None,
    methods: Sequence[str] | None,
    seeds: Sequence[int] | None,
    *,
    quick: bool,
) -> Table:
    """A table with what was asked for of it."""
    rows = [row for row in table.rows if (not is_large(row.data) if data is None else row.data in data)]
    rows = [row for row in rows if clients in (None, row.clients)]
    if quick and data is None:
        rows = rows[:1]
    found = []
    for row in rows:
        lines = tuple(
            line
            for line in row.lines
            if line.paper is None or (line.is_default if methods is None else line.label in methods)
        )
        own = tuple(seeds) if seeds is not None else row.seeds[:1] if quick else row.seeds
        found.append(replace(row, lines=lines, seeds=own))
    return replace(table, rows=tuple(found))


def _refuse_rest(every: Sequence[Table], data: Sequence[str] | None, clients: int | None) -> NoReturn:
    """Say which numbers of clients there are, or which data sets must be named."""
    large = dict.fromkeys(row.data for each in every for row in each.rows if clients in (None, row.clients))
    if data is None and large and all(map(is_large, large)):
        raise ConfigError(
            f"{every[0].paper}, table {every[0].number}, is of large graphs alone, which are run where they are named: "
            f"give --data {','.join(large)}, or some of them."
        )
    known = sorted({row.clients for each in every for row in each.rows if data is None or row.data in data})
    numbers = list(dict.fromkeys(each.number for each in every))
    of = f" on {' and '.join(data)}" if data else ""
    raise ConfigError(
        f"rows with {clients} clients{of} were wanted (--clients), but {every[0].paper}, "
        f"table{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}, has none; take {' or '.join(map(str, known))}."
    )


def _spell_names(what: str, asked: Sequence[str] | None, known: set[str]) -> list[str] | None:
    """The names that were asked for, as the tables spell them; several may be joined by commas."""
    if asked is None:
        return None
    spelt = {plain_name(name): name for name in known}
    found = []
    for text in asked:
        # A variant's name may hold a comma itself
        for name in [text] if plain_name(text) in spelt else map(str.strip, text.split(",")):
            item = entries.find(name) if what == "data set" else None
            wanted = plain_name(item.name if item else name)
            if wanted not in spelt:
                raise ConfigError(
                    _missing(name) or f"a {what} of these tables was wanted, got '{name}': {nearest(name, known)}"
                )
            found.append(spelt[wanted])
    return found


def _missing(name: str) -> str:
    """That a method is known and not here, or stands in papers alone; empty for any other name."""
    printed = [each for each in read_scores() if plain_name(each.method) == plain_name(name)]
    if missing(name) or not printed:
        return missing(name)
    papers: dict[str, dict[str, None]] = {}
    for each in printed:
        papers.setdefault(each.paper, {})[each.table] = None
    where = "; ".join(f"{paper}: {', '.join(numbers)}" for paper, numbers in papers.items())
    return f"{printed[0].method} is printed in tables of papers ({where}), and is not in these tables here."


def settings_of(
    row: Row, line: Line, seed: int, data_root: Path | str | None = None, *, quick: bool = False
) -> dict[str, Any]:
    """A run's settings, by dotted name."""
    settings = {**line.settings, **({"partition.seed": seed} if row.own_cuts else {})}
    return with_protocol({**settings, **shorten(settings)} if quick else settings, seed, data_root)


def shorten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a quick look changes: rounds, epochs and generators that are larger than it takes, by default or said."""
    method = registry.load(settings["method.name"])
    fields = method.config.model_fields
    limits = {name: QUICK_ROUNDS for name in fields if _is_long(name, fields[name])}
    if issubclass(method.config, OneRoundConfig):
        limits.pop("rounds")  # it has one
    found = {}
    for name, limit in {**limits, **method.quick}.items():
        said = settings.get(f"method.{name}")
        value = fields[name].default if said is None else said
        less = _least(value, limit)
        if less != value:
            found[f"method.{name}"] = less
    return found


def _is_long(name: str, field: FieldInfo) -> bool:
    """Whether a setting counts rounds or epochs, of a run without links to predict."""
    extra: Any = field.json_schema_extra or {}
    is_of_links = "link" in extra.get("when", {}).get("task", ())
    return (name == "rounds" or name.endswith("epochs")) and not is_of_links


def _least(value: Any, limit: Any) -> Any:
    """The smaller one of numbers, in lists place by place; of anything else the value."""
    if isinstance(value, list | tuple) and isinstance(limit, list | tuple) and len(value) == len(limit):
        return [min(pair) for pair in zip(value, limit, strict=True)]
    is_number = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (value, limit))
    return min(value, limit) if is_number else value


def with_protocol(settings: Mapping[str, Any], seed: int, data_root: Path | str | None) -> dict[str, Any]:
    """Settings of one run of a paper's table, with what all of them have in common; None says nothing."""
    found = {**settings, "run.seeds": [seed], "evaluation.models": False}
    if data_root is not None:
        found["data.root"] = str(data_root)
    found.setdefault("evaluation.model", "first")  # the one that papers score, not the one that validation prefers
    if found.get("task") != "link":
        found.setdefault("evaluation.select_by", "accuracy")  # as the papers choose, whatever the classes' shares
    if found["method.name"] == "local":
        found.setdefault("method.best_round", "common")  # as the papers' tables have it
    return {name: value for name, value in found.items() if value is not None}
