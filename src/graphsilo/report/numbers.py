"""A figure's numbers as a table, for those who cannot see it or want to read it off."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphsilo.report.formats import MISSING
from graphsilo.report.plot import Bars, Dots, Heat, Line, Plot, thin

ROWS = 12
"""Most rows of a table of lines: evenly chosen places along x."""
MAX_CELLS = 600
"""Above this there is no table: it could not be read either."""


@dataclass(frozen=True)
class Numbers:
    """Columns and rows of text; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def numbers(plot: Plot) -> Numbers | None:
    """The table of a plot; None where it would be too long, or there is nothing to name its rows."""
    heat = next((mark for mark in plot.marks if isinstance(mark, Heat)), None)
    lines = [mark for mark in plot.marks if isinstance(mark, Line) and not mark.quiet]
    if heat is not None:
        found = _cells(plot, heat)
    elif lines:
        found = _along(plot, lines)
    elif plot.y.names:
        found = _tabulate_names(plot)
    else:
        found = None
    return None if found is None or len(found.rows) * len(found.columns) > MAX_CELLS else found


def _cells(plot: Plot, heat: Heat) -> Numbers | None:
    if not any(plot.y.names) or not any(plot.x.names):
        return None
    shown = heat.values if heat.counts is None else heat.counts
    rows = (
        (name, *(MISSING if math.isnan(value) else f"{value:.{heat.digits}f}" for value in row))
        for name, row in zip(plot.y.names, shown, strict=True)
    )
    return Numbers((plot.y.title or "Row", *plot.x.names), tuple(rows))


def _along(plot: Plot, lines: list[Line]) -> Numbers:
    known = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    places = sorted({x for line in lines for x in line.x})
    picked = [places[i] for i in thin(len(places), ROWS)]
    rows = (
        (plot.x.names[round(x)] if plot.x.names else f"{x:,.6g}", *(_text(line.get(x)) for line in known))
        for x in picked
    )
    unit = f"{plot.x.title}" if plot.x.title else "x"
    return Numbers((unit, *(line.name for line in lines)), tuple(rows))


def _tabulate_names(plot: Plot) -> Numbers:
    columns: dict[str, dict[int, float | None]] = {}
    for mark in plot.marks:
        if isinstance(mark, Dots):
            columns.setdefault(mark.name or plot.x.title, {}).update(
                {round(y): x for x, y in zip(mark.x, mark.y, strict=True)}
            )
        elif isinstance(mark, Bars):
            columns.setdefault(plot.x.title, {}).update(enumerate(mark.values))
    rows = (
        (name, *(_text(values.get(place)) for values in columns.values())) for place, name in enumerate(plot.y.names)
    )
    return Numbers(("", *columns), tuple(rows))


def _text(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.4g}"
