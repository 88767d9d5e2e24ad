"""A paper's tables as they were run again: ours, published and the difference, as text and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import structs

from graphsilo.data.graph import Graph
from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError, RunError, one_line
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.reproduce import figures
from graphsilo.experiments.reproduce.description import Line, Row, Table
from graphsilo.experiments.reproduce.published import NOT_COMPARED, Printed
from graphsilo.experiments.reproduce.runs import QUICK, Plan, carry_out, place_of, runs_of
from graphsilo.experiments.storage import disk
from graphsilo.report.formats import in_sentence
from graphsilo.report.grid import Grid, grid
from graphsilo.report.html import page
from graphsilo.report.layout import layout
from graphsilo.report.node_groups import write_groups
from graphsilo.report.published import assumptions, sources
from graphsilo.report.record import Run, load
from graphsilo.report.sections import Page, Section
from graphsilo.report.sweep_page import Swept, sweep
from graphsilo.report.views import Column
from graphsilo.report.writers import to_latex, to_markdown
from graphsilo.spreadsheets import csv_text

REFERENCES = "References, which the paper's table does not have: {}."
AHEAD = "References ahead of the best of the paper's methods: {}."
UNDEFINED = "The paper prints this score without a definition that fits: ours is not held against it."
FAILED = "Runs that failed, and are in no table above:"
SHORTENED = "Shortened runs: "
"""Before the title of a quick look's table, which says the rounds of the paper's."""


@dataclass(frozen=True)
class Drawn:
    """One score of one table.

    Attributes:
        paper, number: The table.
        title: Heading.
        grid: Data sets as columns, methods as rows.
        quick: Whether its runs are shortened.
    """

    paper: str
    number: str
    title: str
    grid: Grid
    quick: bool = False


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What came of running a paper's tables again.

    Attributes:
        tables: One for each score of each table.
        files: What was written: Markdown, LaTeX, CSV and a page.
        failed: Name of a run to why there is no result of it.
        out: Folder of everything.
    """

    tables: tuple[Drawn, ...]
    files: tuple[Path, ...]
    failed: dict[str, str]
    out: Path

    def __repr__(self) -> str:
        titles = "; ".join(table.title.partition(" (")[0] for table in self.tables)
        failed = f"; {len(self.failed)} runs failed" if self.failed else ""
        return f"Reproduction({self.out}: {titles}{failed})"

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{escape(table.title)}</h4>{table.grid._repr_html_()}" for table in self.tables)

    @property
    def complaint(self) -> str:
        """What is said where runs failed, in a paragraph."""
        name, error = next(iter(self.failed.items()))
        count = f"{len(self.failed)} run{'' if len(self.failed) == 1 else 's'}"
        return f"{count} failed, without which the tables are; the same command tries again. First: {name}: {error}"


def reproduce(
    planned: Plan, executor: str | None = None, *, say: Callable[[str], None] = lambda text: None
) -> Reproduction:
    """Make the runs that are not made, and draw and write the tables of all.

    Args:
        planned: Which runs and tables.
        executor: As ``batch.run`` takes it.
        say: Called with a line for every run that ends.

    Raises:
        ConfigError: There is no such executor.
        DataError: A data set is not here and cannot be downloaded.
        RunError: A file cannot be written, or every run failed.
    """
    failed: dict[str, str] = {}
    for number, (job, outcome) in enumerate(carry_out(planned, executor), start=1):
        if outcome.error is not None:
            failed[job.name] = outcome.error
        say(f"{number} of {len(planned.jobs)}: {job.name}: {'done' if outcome.error is None else outcome.error}")
    tables = tuple(draw(planned))
    found = Reproduction(tables, (), failed, planned.out)
    if not tables:
        raise RunError(found.complaint)
    return replace(found, files=tuple(write(planned, tables, failed)))


def reproduce_figures(
    paper: str,
    number: str,
    executor: str | None = None,
    *,
    say: Callable[[str], None] = lambda text: None,
    **asked: Any,
) -> Iterator[Swept]:
    """Make the runs of a paper's figure, or of each of its parts, and draw it.

    Args:
        paper, number: As ``find_figures`` takes them.
        executor, say: As ``reproduce`` takes them.
        asked: As ``figures.plan`` takes it.

    Raises:
        ConfigError: There is no such figure.
        GraphsiloError: As ``sweep_page.sweep``.
    """
    for figure in figures.find_figures(paper, number):
        sweeps, folder, notes = figures.plan(figure, **asked)
        name = f"figure-{figure.number}"
        if figure.is_count:
            yield _count(figure, folder / name, **asked)
            continue
        for text in notes:
            say(text)
        yield sweep(sweeps, folder, executor, title=figure.title, name=name, notes=notes, say=say)


def _count(
    figure: figures.Figure, place: Path, /, *, data: Sequence[str] | None = None, quick: bool = False,
    data_root: Path | str | None = None, out: Path | None = None, **asked: Any,
) -> Swept:  # fmt: skip
    """A figure of graphs as they are; ``place`` is its files without an ending."""
    if idle := [f"--{name}" for name, value in asked.items() if value is not None]:
        raise ConfigError(
            f"figure {figure.number} of {figure.paper} counts nodes of whole graphs, and nothing is run: leave out "
            f"{', '.join(idle)}."
        )
    graphs: dict[str, Graph] = {}
    for name in figures.data_of(figure, data, quick=quick):
        found = catalog.load(name, root=data_root)
        if not isinstance(found, Graph) or found.targets is not None:
            raise ConfigError(f"this figure counts a graph's nodes by their classes, and {name} has no such classes.")
        graphs[name] = found
    [thresholds] = figure.said["grid"].values()
    return Swept((), write_groups(graphs, thresholds, place, figure.title), {}, place.parent)


def draw(planned: Plan) -> list[Drawn]:
    """The tables of what has been run so far, one for each score; none of a table without a finished run."""
    found = []
    for table in planned.tables:
        runs = {row.id: _runs(planned, row) for row in table.rows}
        for path in dict.fromkeys(path for row in table.rows for path in row.paths):
            drawn = _draw_column(table, path, runs, planned)
            found += [] if drawn is None else [drawn]
    return found


def write(planned: Plan, tables: Sequence[Drawn], failed: Mapping[str, str] | None = None) -> list[Path]:
    """``reproduce.md``, ``.tex``, ``.csv`` and ``.html``, or as the plan calls them, in its folder.

    Args:
        planned: What was asked for.
        tables: Of what has been run.
        failed: Name of a run to why there is no result of it: all files say so.

    Raises:
        RunError: A file cannot be written.
    """
    heads = [f"## {each.title}\n\n" for each in tables]
    markdown = "\n".join(head + to_markdown(each.grid) for head, each in zip(heads, tables, strict=True))
    latex = "\n".join(to_latex(each.grid, label=label) for each, label in zip(tables, _labels(tables), strict=True))
    failures = {name: one_line(error) for name, error in (failed or {}).items()}
    if failures:
        markdown += f"\n## Failed\n\n{FAILED}\n\n"
        markdown += "".join(f"- {escape(f'{name}: {error}', quote=False)}\n" for name, error in failures.items())
        latex += "".join(f"% {text}\n" for text in (FAILED, *(f"{name}: {error}" for name, error in failures.items())))
    sections = []
    for place, each in enumerate(tables):
        cells = layout(each.grid)
        latex_ = ("sources", ("The table as LaTeX", [("", to_latex(each.grid))]))
        sections.append(Section(f"table-{place + 1}", each.title, [("layout", (cells, cells.below)), latex_]))
    complaints = [f"{name}: {error}" for name, error in failures.items()]
    failed_ = Section("failed", "Failed", [("plain", FAILED), ("bullets", complaints)] if failures else [])
    said = QUICK if planned.quick else "Published scores and ours, on the same data and kind of cut."
    drawn = Page(f"{planned.tables[0].paper}, run again", "graphsilo reproduce", [("lede", said)], [*sections, failed_])
    texts = {
        "md": markdown,
        "tex": latex,
        "csv": to_csv(tables) + _failures_to_csv(planned, failures),
        "html": page(drawn),
    }
    paths = [planned.out / f"{planned.name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        disk.write_text(path, text)
    return paths


def _labels(tables: Sequence[Drawn]) -> list[str]:
    """What LaTeX refers to them by; a table that is drawn in parts has a number behind it from the second part on."""
    found, parts = [], Counter[str]()
    for each in tables:
        label = f"tab:{each.paper.lower()}-{each.number.lower()}-{each.grid.metrics[0]}"
        parts[label] += 1
        found.append(f"{label}-{parts[label]}" if parts[label] > 1 else label)
    return found


HEADINGS = [
    "paper", "table", "column", "metric", "method", "row", "seeds", "mean", "std", "published", "published_std", "runs",
    "failed",
]  # fmt: skip


def to_csv(tables: Sequence[Drawn]) -> str:
    """A line for each number: shares in full precision, empty where there is none; ``runs`` is ``full`` or
    ``shortened``."""
    lines: list[list[Any]] = [HEADINGS]
    for each in tables:
        for table in each.grid.tables:
            for name in table.metrics:
                printed = table.published.get(name, (None,) * len(table.rows))
                methods = zip(table.rows, printed, strict=True)
                for row, cell in [*((row, None) for row in table.references), *methods]:
                    kind = "reference" if row in table.references else "method"
                    score = row.scores[name]
                    ours = [None, None] if score is None else [score.mean, score.std]
                    theirs = [None, None] if cell is None else [cell.mean, cell.std]
                    place = [each.paper, each.number, table.title, name, row.label, kind]
                    length = "shortened" if each.quick else "full"
                    lines.append([*place, " ".join(map(str, row.seeds)), *ours, *theirs, length, None])
    return csv_text(lines)


def _failures_to_csv(planned: Plan, failed: Mapping[str, str]) -> str:
    """A line for each run that failed and each table that it is missing in; ``failed`` says why."""
    lines = []
    errors = {job.out: failed[job.name] for job in planned.jobs if job.name in failed}
    for table, row, line, seed, place in runs_of(planned.tables, planned.out, quick=planned.quick):
        if place in errors:
            found = {
                "paper": table.paper, "table": table.number, "column": row.title, "method": line.label,
                "row": "reference" if line.paper is None else "method", "seeds": seed,
                "runs": "shortened" if planned.quick else "full", "failed": errors[place],
            }  # fmt: skip
            lines.append([found.get(name) for name in HEADINGS])
    return csv_text(lines)


def _column(path: str) -> Column:
    """What a path of a description shows: ``KIND.METRIC``, or ``rounds_to_target@80``, a target in percent."""
    name, _, target = path.partition("@")
    items, _, metric = name.rpartition(".")
    return Column(metric, items=items or None, target=int(target) / 100 if target else None)


def _runs(planned: Plan, row: Row) -> list[tuple[Line, Run]]:
    """A row's methods that have a finished run, all seeds of each as one run."""
    found = []
    for line in row.lines:
        place = place_of(planned.out, row, line, quick=planned.quick)
        folders = [place / str(seed) for seed in row.seeds]
        runs = [load(folder, with_ledger=False) for folder in folders if (folder / "result.json").is_file()]
        if runs:
            found.append((line, _merge_runs(place, runs)))
    return found


def _merge_runs(place: Path, runs: Sequence[Run]) -> Run:
    """Runs of one method, each with a seed (and perhaps a cut) of its own, as one run over seeds."""
    results = [run.result for run in runs]
    first = results[0]
    summary = structs.replace(
        first.summary,
        upload_bytes=fmean(result.summary.upload_bytes for result in results),
        download_bytes=fmean(result.summary.download_bytes for result in results),
    )
    cuts = dict.fromkeys(result.partition.hash for result in results)
    merged = structs.replace(
        first,
        seeds=[seed for result in results for seed in result.seeds],
        summary=summary,
        # Methods are compared where they were run on the same cuts in the same order
        partition=structs.replace(first.partition, hash=" ".join(cuts)),
        fingerprint=" ".join(result.fingerprint for result in results),
    )
    return replace(runs[0], path=place, result=merged)


def _draw_column(table: Table, path: str, runs: dict[str, list[tuple[Line, Run]]], planned: Plan) -> Drawn | None:
    rows = [row for row in table.rows if runs[row.id]]
    if not rows:
        return None
    column = _column(path)
    printed: dict[Path, Printed] = {
        run.path: score for row in rows for line, run in runs[row.id] if (score := line.printed.get(path)) is not None
    }
    lines = [line for row in rows for line, _ in runs[row.id]]
    methods = {line.label for line in lines if line.paper is not None}

    def find(run: Run, label: str, column: Column) -> Printed | None:
        return printed.get(run.path)

    references = [line.label for line in lines if line.label not in methods]
    found = grid(
        [([run for _, run in runs[row.id]], [line.label for line, _ in runs[row.id]]) for row in rows],
        [row.title for row in rows],
        [column],
        published=find,
        as_references=references,
    )
    all_runs = [run for row in rows for _, run in runs[row.id]]
    # Every method runs as the description has it: that their own settings differ is no news
    found = replace(found, tables=tuple(replace(each, notes=()) for each in found.tables))
    said = (
        list(sources(list(printed.values()), all_runs if planned.quick else ()))
        if printed
        else assumptions(table.paper)
    )
    if column.metric in NOT_COMPARED:
        said.append(UNDEFINED)
    if references:
        said.append(REFERENCES.format("; ".join(dict.fromkeys(references))))
    said += _find_ahead(found)
    found = replace(found, remarks=(*([QUICK] if planned.quick else []), *said))
    title = f"{SHORTENED if planned.quick else ''}{table.paper}, table {table.number}: {in_sentence(column.metric)}"
    items = f" of {column.items.replace('_', ' ')}s" if column.items else ""
    return Drawn(table.paper, table.number, f"{title}{items} ({table.protocol})", found, planned.quick)


def _find_ahead(found: Grid) -> list[str]:
    """Which references have a better mean than every method, so that nobody takes the best method for the top."""
    columns: dict[str, list[str]] = {}
    for table in found.tables:
        [name] = table.metrics
        for place in table.best.get(name, ())[:1]:
            best, better = table.rows[place].scores[name], metric_of(name).goodness
            for row in table.references:
                score = row.scores[name]
                if score is not None and best is not None and better(score.mean) > better(best.mean):
                    columns.setdefault(row.label, []).append(table.title)
    several = len(found.tables) > 1
    said = [f"{label} ({', '.join(titles)})" if several else label for label, titles in columns.items()]
    return [AHEAD.format("; ".join(said))] if said else []
