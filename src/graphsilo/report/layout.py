"""A table as cells, whatever it compares: what the terminal, Markdown, LaTeX and pages draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.reproduce.published import Printed
from graphsilo.report.formats import COSTS, MISSING, Spread, cost_texts, join_words, metric, percent, plus_minus
from graphsilo.report.grid import Grid, Table
from graphsilo.report.tables import Comparison, Row
from graphsilo.report.views import titles


@dataclass(frozen=True)
class Heading:
    """Of a column.

    Attributes:
        title: What it holds.
        unit: Of all its cells; empty where each says its own.
        group: Heading over it and its neighbours; empty where there is none.
        is_score: Whether it holds scores, of which those without a unit are no shares.
    """

    title: str
    unit: str = ""
    group: str = ""
    is_score: bool = False

    @property
    def text(self) -> str:
        """With the unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True)
class Cell:
    """One number as it is shown.

    Attributes:
        text: With its deviation.
        value: To sort by.
        best: Whether it is the best of its column.
        mark: Sign of a significant difference.
    """

    text: str = MISSING
    value: float | None = None
    best: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Line:
    """A row; references stand above the others and in italics."""

    label: str
    cells: tuple[Cell, ...]
    is_reference: bool = False


@dataclass(frozen=True)
class Layout:
    """A table to be drawn.

    Attributes:
        caption: What is compared, as a sentence.
        label: Short name, for references to it.
        headings: One per cell of a line.
        lines: References first.
        legend: Sentences on how to read it.
        below: Sentences on the runs: settings that differ, warnings.
        metric: What all scores are, where no heading says it; empty where headings do.
    """

    caption: str
    label: str
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    legend: tuple[str, ...]
    below: tuple[str, ...]
    metric: str = ""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over several columns, and how many; empty where there is none."""
        found: list[tuple[str, int]] = []
        for heading in self.headings:
            if found and found[-1][0] == heading.group:
                found[-1] = heading.group, found[-1][1] + 1
            else:
                found.append((heading.group, 1))
        return found if any(heading.group for heading in self.headings) else []


def layout(table: Table, *, digits: int = 1, costs: bool = True) -> Layout:
    """The cells of a comparison or grid.

    Args:
        table: What is shown.
        digits: Decimals of percentages.
        costs: Of one question also the gap closed, bytes and processor time.
    """
    if isinstance(table, Grid):
        headings, lines = _grid(table, digits)
    else:
        headings, lines = _single(table, digits, costs=costs)
    what = join_words(dict.fromkeys(_inner(metric_of(name).title) for name in table.metrics))
    return Layout(
        caption=f"Test {what} on {table.subject}.",
        label="tab:" + "-".join(_slug(part) for part in [*_data(table)[:4], *table.metrics[:2]]),
        headings=tuple(headings),
        lines=tuple(lines),
        legend=tuple(table.legend),
        below=(*table.notes, *(f"Warning: {text}" for text in table.warnings)),
        metric=what if isinstance(table, Grid) and len(table.metrics) == 1 else "",
    )


def _single(table: Comparison, digits: int, *, costs: bool) -> tuple[list[Heading], list[Line]]:
    gap = next((name for name in table.metrics if any(row.gap.get(name) is not None for row in table.rows)), None)
    headings = _headings(table)
    if costs:
        headings += [Heading(f"Gap closed ({metric_of(gap).title})")] if gap else []
        headings += [Heading(title) for title, _, _ in COSTS]
    lines = []
    for place, row in [*((None, row) for row in table.references), *enumerate(table.rows)]:
        cells = _cells(table, row, place, digits)
        if costs:
            closed = row.gap.get(gap) if gap else None
            cells += [Cell(MISSING if closed is None else f"{percent(closed, 0)} %", closed)] if gap else []
            cells += [
                Cell(text, getattr(row.spent, name))
                for text, (_, name, _) in zip(cost_texts(row.spent), COSTS, strict=True)
            ]
        lines.append(Line(row.label, tuple(cells), place is None))
    return headings, lines


def _grid(table: Grid, digits: int) -> tuple[list[Heading], list[Line]]:
    headings: list[Heading] = []
    for each in table.tables:
        own = _headings(each)
        if len(own) == 1:
            headings.append(replace(own[0], title=each.title))
        else:
            headings += [replace(heading, group=each.title) for heading in own]
    headings += [
        Heading(
            "Mean rank" if len(table.rankings) == 1 else metric_of(name).title,
            "",
            "" if len(table.rankings) == 1 else "Mean rank",
        )
        for name in table.rankings
    ]
    lines = []
    for label in table.references:
        rows = [next((row for row in each.references if row.label == label), None) for each in table.tables]
        cells = [cell for each, row in zip(table.tables, rows, strict=True) for cell in _cells(each, row, None, digits)]
        lines.append(Line(label, (*cells, *[Cell()] * len(table.rankings)), is_reference=True))
    for label in table.labels:
        cells = []
        for each in table.tables:
            place = table.place(each, label)
            cells += _cells(each, None if place is None else each.rows[place], place, digits)
        for ranked in table.rankings.values():
            mean = ranked.mean(label)
            cells.append(Cell() if mean is None else Cell(f"{mean:.2f}", mean))
        lines.append(Line(label, tuple(cells)))
    return headings, lines


def _headings(table: Comparison) -> list[Heading]:
    """Of the scores, each followed by what is published and the difference, where any row has that."""
    found, shown = [], titles(table.columns)
    for name in table.metrics:
        unit = "%" if metric_of(name).is_share else ""
        found.append(Heading(shown.get(name, metric_of(name).title), unit, is_score=True))
        if name in table.published:
            found += [Heading("published", unit), Heading("difference")]
    return found


def _cells(table: Comparison, row: Row | None, place: int | None, digits: int) -> list[Cell]:
    """A row's cells for ``_headings``; ``place`` is its position among those that are compared, None of a reference."""
    found = []
    for name in table.metrics:
        score = None if row is None else row.scores[name]
        best = place is not None and len(table.rows) > 1 and place in table.best.get(name, ())
        mark = "" if place is None else table.mark(name, place)
        found.append(Cell(plus_minus(score, name, digits), None if score is None else score.mean, best, mark))
        if name in table.published:
            found += _compare_to_paper(None if place is None else table.published[name][place], score, name, digits)
    return found


def _compare_to_paper(printed: Printed | None, score: Spread | None, name: str, digits: int) -> list[Cell]:
    if printed is None:
        return [Cell(), Cell()]
    shown = Cell(plus_minus(Spread(printed.mean, printed.std, 1), name, digits), printed.mean)
    if score is None:
        return [shown, Cell()]
    difference = score.mean - printed.mean
    return [shown, Cell(format_difference(difference, name, digits), difference)]


def format_difference(value: float, name: str, digits: int = 1) -> str:
    """A difference with its sign: "+1.2", "−0.3"."""
    text = metric(abs(value), name, digits)
    if not any(digit in "123456789" for digit in text):
        return text
    return f"{'+' if value > 0 else '−'}{text}"


def _data(table: Table) -> list[str]:
    tables = table.tables if isinstance(table, Grid) else (table,)
    return list(dict.fromkeys(each.data for each in tables))


def _inner(title: str) -> str:
    return title if any(sign.isupper() for sign in title[1:]) else title.lower()


def _slug(text: Any) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in str(text).lower())
