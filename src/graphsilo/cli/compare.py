"""``graphsilo compare``: finished runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from graphsilo.cli.terminal import Sheet, say, show
from graphsilo.evaluate.metrics import metric_of
from graphsilo.report import Comparison, comparison, to_csv, to_latex, to_markdown, write_comparison
from graphsilo.report.formats import COST_TITLES, MISSING, cost_texts, percent, plus_minus


def compare_command(
    runs: Sequence[Path], *, metrics: Sequence[str] | None, baseline: str | None, form: str, page: Path | None
) -> None:
    """Print a comparison, and write its page where one is wanted.

    Raises:
        RunError: A folder cannot be read.
        ConfigError: An unknown metric or baseline.
    """
    found = comparison(runs, metrics=metrics, baseline=baseline)
    if page is not None:
        write_comparison(runs, page, baseline=baseline)
    match form:
        case "markdown":
            sys.stdout.write(to_markdown(found))
        case "latex":
            sys.stdout.write(to_latex(found))
        case "csv":
            sys.stdout.write(to_csv(found))
        case _:
            _print(found)
            if page is not None:
                say()
                say(f"Report: {page}")


def _print(found: Comparison) -> None:
    show(sheet(found).draw())
    say()
    legend = [text.replace("bold: best mean", "*: best mean") for text in found.legend]
    for text in (*legend, *found.notes, *(f"Warning: {text}" for text in found.warnings)):
        say(text)


def sheet(found: Comparison) -> Sheet:
    """The comparison as a table: a star at the best means, † and ‡ as the legend says."""
    gaps = [name for name in found.metrics if any(row.gap.get(name) is not None for row in found.rows)][:1]
    columns = [metric_of(name).title for name in found.metrics]
    columns += [f"Gap closed ({metric_of(name).title})" for name in gaps] + list(COST_TITLES)
    rows: list[tuple[str, list[str], str]] = []
    for row in found.references:
        scores = [plus_minus(row.scores[name], name) for name in found.metrics]
        rows.append((row.label, [*scores, *[MISSING] * len(gaps), *cost_texts(row.spent)], "dim"))
    several = len(found.rows) > 1
    for position, row in enumerate(found.rows):
        cells = []
        for name in found.metrics:
            best = "*" if several and position in found.best.get(name, ()) else ""
            cells.append(f"{plus_minus(row.scores[name], name)}{best}{found.mark(name, position)}")
        cells += [MISSING if row.gap[name] is None else f"{percent(row.gap[name], 0)} %" for name in gaps]
        cells += cost_texts(row.spent)
        rows.append((row.label, cells, ""))
    return Sheet("Test, %", columns, rows)
