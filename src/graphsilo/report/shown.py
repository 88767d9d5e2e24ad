"""A comparison in a session, in a notebook, and as a figure for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphsilo import drawing
from graphsilo.errors import ConfigError, nearest
from graphsilo.evaluate.metrics import find_leading
from graphsilo.experiments.storage.views import axis_of, curve_of
from graphsilo.notebook import table
from graphsilo.report.formats import plus_minus

if TYPE_CHECKING:
    from graphsilo.report.grid import Table
    from graphsilo.report.tables import Comparison

_CURVES, _ROW, _FRAME = 1.75, 0.2, 0.5  # inches: curves, and a chart by its rows
_MAX = 4
"""Rows on one line before the rest is only counted."""


class Shown:
    """What a comparison of one or of several questions looks like."""

    def __repr__(self) -> str:
        return _line(self)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return _html(self)  # type: ignore[arg-type]

    def plot(self, metric: str | None = None, *, width: float = drawing.COLUMN) -> Any:
        """A figure for a paper or a notebook: every run's test score and its deviation over seeds, a panel for each
        data set; of one data set also validation along rounds, with a band from the lowest to the highest seed.

        Args:
            metric: Which of the comparison's; None takes accuracy (link prediction: AUC), else the first.
            width: Inches; by default one column.

        Returns:
            A ``matplotlib.figure.Figure``.

        Raises:
            ConfigError: The comparison has no such metric.
            UnsupportedError: matplotlib is not installed.
        """
        return _figure(self, metric, width)  # type: ignore[arg-type]


def _tables(found: Table) -> Sequence[Comparison]:
    return getattr(found, "tables", None) or (found,)  # type: ignore[return-value]


def _line(found: Table) -> str:
    texts = []
    for one in _tables(found):
        name = find_leading(one.metrics) or (one.metrics[0] if one.metrics else None)
        texts += [
            row.label if name is None else f"{row.label} {plus_minus(row.scores[name], name)}" for row in one.rows
        ]
    more = f" and {len(texts) - _MAX} more" if len(texts) > _MAX else ""
    return f"Comparison({found.subject}: {', '.join(texts[:_MAX])}{more})"


def _html(found: Table) -> str:
    from graphsilo.report.layout import layout

    drawn = layout(found)
    head = ["", *(f"{heading.group} {heading.text}".strip() for heading in drawn.headings)]
    rows = [
        [line.label, *(f"{cell.text}{'*' if cell.best else ''}{cell.mark}" for cell in line.cells)]
        for line in drawn.lines
    ]
    legend = [text.replace("bold: best mean", "*: best mean") for text in (*drawn.legend, *drawn.below)]
    return table(drawn.caption, head, rows, legend)


def _figure(found: Table, metric: str | None, width: float) -> Any:
    names = found.metrics
    name = metric or find_leading(names) or names[0]
    if name not in names:
        raise ConfigError(f"the comparison has no metric '{name}'; {nearest(str(name), names)}")
    tables = _tables(found)
    panels = [_scores(one, name, one.title if len(tables) > 1 else "") for one in tables]
    if len(tables) == 1:
        panels += _curves(tables[0], name)
    return drawing.figure(panels, width=width)


def _scores(found: Comparison, name: str, title: str) -> tuple[drawing.Panel, float]:
    scale, axis = axis_of(name)
    rows = [
        drawing.Score(row.label, scale * value.mean, None if value.std is None else scale * value.std)
        for row in found.rows
        if (value := row.scores[name]) is not None
    ]
    return drawing.scores(rows, x=f"Test {axis[:1].lower()}{axis[1:]}", title=title), _FRAME + _ROW * len(rows)


def _curves(found: Comparison, name: str) -> list[tuple[drawing.Panel, float]]:
    """Validation along rounds, where it was recorded by this name and more than once."""
    scale, axis = axis_of(name)
    lines = [
        drawing.Curve(row.label, [curve_of(seed, "validation", name, scale) for seed in row.records])
        for row in found.rows
    ]
    if not any(len(points) > 1 for one in lines for points in one.points):
        return []
    return [(drawing.curves(lines, x="Round", y=f"Validation {axis[:1].lower()}{axis[1:]}"), _CURVES)]
