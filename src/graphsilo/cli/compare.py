"""``graphsilo compare``: finished runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphsilo.cli.terminal import Sheet, say, show
from graphsilo.drawing import check_path, save
from graphsilo.report import comparison, to_csv, to_latex, to_markdown, write_comparison
from graphsilo.report.grid import Table
from graphsilo.report.layout import Layout, layout

WRITERS = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}


def compare_command(runs: Sequence[Path], *, form: str, page: Path | None, figure: Path | None, **asked: Any) -> None:
    """Print a comparison, and write its page where one is wanted.

    Args:
        runs: Folders.
        form: ``table``, or one of ``WRITERS``.
        page, figure: Files to write.
        asked: As ``report.comparison`` takes it.

    Raises:
        RunError: A folder cannot be read.
        ConfigError: An unknown metric, view, paper or baseline.
    """
    if figure is not None:
        check_path(figure)
    found = comparison(runs, **asked)
    if figure is not None:
        save(found.plot(next(iter(asked["metrics"] or ()), None)), figure)
    if page is not None:
        write_comparison(runs, page, **asked)
    if form in WRITERS:
        sys.stdout.write(WRITERS[form](found))
        return
    print_table(found)
    if page is not None:
        say()
        say(f"Report: {page}")
    if figure is not None:
        say(f"Figure: {figure}")


def print_table(found: Table) -> None:
    """The table on stdout, and what must be known to read it."""
    drawn = layout(found)
    show(sheet(drawn).draw())
    say()
    for text in (*drawn.legend, *drawn.below):
        say(text.replace("bold: best mean", "*: best mean"))


def sheet(drawn: Layout) -> Sheet:
    """The table for the terminal: a star at the best means, † and ‡ as the legend says."""
    is_percent = {heading.unit for heading in drawn.headings if heading.unit or heading.is_score} == {"%"}
    columns = [f"{heading.group} {heading.title if is_percent else heading.text}".strip() for heading in drawn.headings]
    rows = [
        (
            line.label,
            [f"{cell.text}{'*' if cell.best else ''}{cell.mark}" for cell in line.cells],
            "dim" if line.is_reference else "",
        )
        for line in drawn.lines
    ]
    return Sheet(f"Test {drawn.metric}".strip() + (", %" if is_percent else ""), columns, rows)
