"""A table as text: Markdown, LaTeX, CSV."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphsilo.report.formats import COSTS
from graphsilo.report.grid import Grid, Table
from graphsilo.report.layout import Cell, Layout, layout
from graphsilo.report.tables import Comparison, Row
from graphsilo.spreadsheets import csv_text

_MARKS = {"†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$"}


def to_markdown(table: Table, *, digits: int = 1) -> str:
    """The table as GitHub Markdown: signs, differing settings and warnings stand below."""
    drawn = layout(table, digits=digits)
    header = ["Method", *(_markdown(f"{head.group} {head.text}".strip()) for head in drawn.headings)]
    lines = [_markdown_line(header), _markdown_line(["---", *["---:"] * (len(header) - 1)])]
    for line in drawn.lines:
        label = _markdown(line.label)
        cells = [(f"**{cell.text}**" if cell.best else cell.text) + cell.mark for cell in line.cells]
        lines.append(_markdown_line([f"*{label}*" if line.is_reference else label, *cells]))
    below = [drawn.caption, *drawn.legend, *drawn.below]
    return "\n".join(lines) + "\n\n" + "\n\n".join(map(_markdown, below)) + "\n"


def to_latex(table: Table, *, digits: int = 1, costs: bool = False, label: str | None = None) -> str:
    """The table as a LaTeX ``table`` in booktabs style, with caption, label and notes (``\\usepackage{booktabs}``).

    Args:
        table: What is shown.
        digits: Decimals of the percentages.
        costs: Adds the gap closed, what was sent and received and the processor time, of one question.
        label: For ``\\ref``; None makes one of data and metric.
    """
    drawn = layout(table, digits=digits, costs=costs)
    caption = " ".join([drawn.caption, *drawn.legend])
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(caption)}}}",
        rf"\label{{{label or drawn.label}}}",
        rf"\begin{{tabular}}{{l{'r' * len(drawn.headings)}}}",
        r"\toprule",
    ]
    lines += [
        *_latex_groups(drawn),
        _latex_line(["Method", *(_latex(head.text) for head in drawn.headings)]),
        r"\midrule",
    ]
    has_references = any(line.is_reference for line in drawn.lines)
    for place, line in enumerate(drawn.lines):
        if has_references and not line.is_reference and drawn.lines[place - 1].is_reference:
            lines.append(r"\midrule")
        name = _latex(line.label)
        lines.append(_latex_line([rf"\emph{{{name}}}" if line.is_reference else name, *map(_latex_cell, line.cells)]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if drawn.below:
        lines.append(rf"\par\smallskip\footnotesize {_latex(' '.join(drawn.below))}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_csv(table: Table) -> str:
    """The table for other programs: shares, bytes and seconds in full precision; empty cells where missing.

    A line per run and reference; of several questions ``column`` says which one.
    """
    tables = table.tables if isinstance(table, Grid) else (table,)
    has_published = {name for each in tables for name in each.published}
    scores = []
    for name in table.metrics:
        scores += [f"{name}_{part}" for part in ("mean", "std", "p")]
        scores += [f"{name}_published", f"{name}_published_std"] if name in has_published else []
    costs = [*(name for _, name, _ in COSTS), "wall_seconds"]
    title = ["column"] if isinstance(table, Grid) else []
    ranks = [f"{name}_mean_rank" for name in table.rankings] if isinstance(table, Grid) else []
    lines: list[list[Any]] = [[*title, "label", "row", "run", "seeds", *scores, *ranks, *costs, "remarks"]]
    for each in tables:
        said = " ".join([*each.notes, *(f"Warning: {text}" for text in each.warnings)])
        for place, row in [*((None, row) for row in each.references), *enumerate(each.rows)]:
            cells = [
                cell for name in table.metrics for cell in _csv_cells(each, row, place, name, name in has_published)
            ]
            cells += _csv_ranks(table, row, place) if isinstance(table, Grid) else []
            where = "" if row.path is None else str(row.path)
            kind = "reference" if place is None else "run"
            spent = [getattr(row.spent, name) for name in costs]
            # A comment line would be a row of one cell to most readers: what holds of all stands in each run's row.
            told = said if place is not None else ""
            seeds = " ".join(map(str, row.seeds))
            lines.append([*([each.title] if title else []), row.label, kind, where, seeds, *cells, *spent, told])
    return csv_text(lines)


def _csv_cells(table: Comparison, row: Row, place: int | None, name: str, published: bool) -> list[Any]:
    score = row.scores[name]
    differences = table.differences.get(name, ())
    difference = differences[place] if place is not None and place < len(differences) else None
    cells: list[Any] = [None, None] if score is None else [score.mean, score.std]
    cells.append(None if difference is None else difference.adjusted_p)
    if published:
        found = table.published.get(name, ())
        printed = found[place] if place is not None and place < len(found) else None
        cells += [None, None] if printed is None else [printed.mean, printed.std]
    return cells


def _csv_ranks(table: Grid, row: Row, place: int | None) -> list[Any]:
    return [None if place is None else ranked.mean(row.label) for ranked in table.rankings.values()]


def _markdown(text: str) -> str:
    # A label is text, not markup: `a|b` would open a column, `<b>` a tag
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "×": r"$\times$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "\u202f": r"\,",
    "\n": " ",
    "\r": " ",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_cell(cell: Cell) -> str:
    mean, sign, std = cell.text.partition(" ± ")
    text = rf"\textbf{{{_latex(mean)}}}" if cell.best else _latex(mean)
    return text + (rf" $\pm$ {_latex(std)}" if sign else "") + _MARKS.get(cell.mark, "")


def _latex_groups(drawn: Layout) -> list[str]:
    """Headings over several columns, each with a line below."""
    if not drawn.groups:
        return []
    cells, rules, start = [""], [], 2
    for title, count in drawn.groups:
        cells.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex(title)}}}" if title else "& " * (count - 1))
        rules += [rf"\cmidrule(lr){{{start}-{start + count - 1}}}"] if title else []
        start += count
    return [_latex_line(cells), " ".join(rules)]


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
