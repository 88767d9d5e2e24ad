"""What the comparison page says, as plain values and text; the template only lays it out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphsilo.evaluate.metrics import metric_of
from graphsilo.report import side_by_side
from graphsilo.report.curves import overlaid_curves, trade_off
from graphsilo.report.finding import one_class
from graphsilo.report.formats import (
    MISSING,
    listed,
    short_hash,
    sortable,
)
from graphsilo.report.grid import Grid, Table
from graphsilo.report.layout import layout, signed
from graphsilo.report.plot import Figure, choices, present
from graphsilo.report.record import Context, Run
from graphsilo.report.run_page import sentence
from graphsilo.report.tables import Comparison, Row
from graphsilo.report.writers import to_csv, to_latex, to_markdown


def describe(runs: Sequence[Run], table: Table) -> tuple[Context, list[Figure]]:
    """Everything the comparison page shows of runs and their table, and its figures."""
    tables = table.tables if isinstance(table, Grid) else (table,)
    placed: dict[Path | None, list[tuple[Comparison, Row]]] = {}
    for each in tables:
        for row in each.rows:
            placed.setdefault(row.path, []).append((each, row))
    pairs = [(*placed[run.path].pop(0), run) for run in runs]
    # In one figure a method of several columns is several lines
    labels = [f"{row.label}, {each.title}" if each.title else row.label for each, row, _ in pairs]
    main = table.metrics[0] if table.metrics else "accuracy"
    curves = overlaid_curves(runs, labels)
    sizes = [
        None if row.spent.upload_bytes is None else (row.spent.upload_bytes + (row.spent.download_bytes or 0)) / 1e6
        for _, row, _ in pairs
    ]
    # Scores of different data sets have no trade-off between them
    trade = trade_off(labels, sizes, [row.scores.get(main) for _, row, _ in pairs], main) if len(tables) == 1 else None
    one = tables[0] if len(tables) == 1 and tables[0].is_comparable else None
    paired = present(None if one is None else side_by_side.differences(one))
    clients = present(None if one is None else side_by_side.clients(runs, labels))
    data = list(dict.fromkeys(run.result.data.name for run in runs))
    context: Context = {
        "title": f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} on {listed(data)}",
        "finding": "" if one is None else side_by_side.sentence(one),
        "sentence": f"{listed(table.labels if isinstance(table, Grid) else labels)}.",
        "warnings": [
            *table.warnings,
            *(
                f"{label}: {text}"
                for label, run in zip(labels, runs, strict=True)
                for text in (*run.problems, *filter(None, [one_class(run).removeprefix("Caution: ")]))
            ),
        ],
        "table": _table(table),
        "legend": table.legend,
        "differences": [found for each in tables for found in _difference_tables(each)],
        "notes": table.notes,
        "runs": [
            {
                "label": label,
                "folder": run.path.resolve().name,
                "seeds": ", ".join(map(str, row.seeds)),
                "sentence": sentence(run),
                "fingerprint": short_hash(run.result.fingerprint),
            }
            for label, (_, row, run) in zip(labels, pairs, strict=True)
        ],
        "markdown": to_markdown(table),
        "latex": to_latex(table),
        "csv": to_csv(table),
        "drawn": {"curves": curves, "trade": present(trade), "paired": paired, "clients": clients},
        "metric_choices": {"compare": choices(curves), "differences": choices(paired), "clients": choices(clients)},
    }
    return context, [*curves, *present(trade), *paired, *clients]


def _table(table: Table) -> Context:
    drawn = layout(table)
    rows = [
        {
            "label": line.label,
            "cells": [
                {"text": cell.text, "value": sortable(cell.value), "best": cell.best, "mark": cell.mark}
                for cell in line.cells
            ],
        }
        for line in drawn.lines
        if not line.is_reference
    ]
    references = [
        {"label": line.label, "cells": [cell.text for cell in line.cells]} for line in drawn.lines if line.is_reference
    ]
    return {
        "caption": drawn.caption,
        "groups": drawn.groups,
        "columns": [heading.text for heading in drawn.headings],
        "rows": rows,
        "references": references,
    }


def _difference_tables(table: Comparison) -> list[Context]:
    found = []
    for name in table.metrics:
        rows = []
        for row, item in zip(table.rows, table.differences.get(name, ()), strict=False):
            if item is None:
                continue
            paired = item.paired
            low, high = paired.ci_low, paired.ci_high
            rows.append(
                {
                    "label": row.label,
                    "difference": MISSING if paired.difference is None else signed(paired.difference, name, 2),
                    "interval": f"{signed(low, name, 2)} to {signed(high, name, 2)}"
                    if low is not None and high is not None
                    else MISSING,
                    "seeds": len(paired.seeds),
                    "flip": _p(paired.sign_flip_p),
                    "adjusted": _p(item.adjusted_p),
                    "t": _p(paired.t_p),
                    "verdict": item.verdict,
                }
            )
        if rows:
            found.append(
                {
                    "metric": f"{table.title}: {metric_of(name).title}" if table.title else metric_of(name).title,
                    "against": table.rows[table.against[name]].label,
                    "rows": rows,
                }
            )
    return found


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
