"""What the comparison page says, as plain values and text; the template only lays it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphsilo.evaluate.metrics import metric_of
from graphsilo.report import tables
from graphsilo.report.curves import overlaid_curves, trade_off
from graphsilo.report.formats import (
    COST_TITLES,
    COSTS,
    MISSING,
    cost_texts,
    in_sentence,
    listed,
    percent,
    plus_minus,
    short_hash,
    sortable,
)
from graphsilo.report.plot import Figure, choices, present
from graphsilo.report.record import Context, Run
from graphsilo.report.run_page import sentence


def describe(runs: Sequence[Run], *, baseline: str | None = None) -> tuple[Context, list[Figure]]:
    """Everything the comparison page shows, and its figures.

    Raises:
        RunError: No run came.
        ConfigError: ``baseline`` is none of the runs.
    """
    table = tables.compare_runs(runs, baseline=baseline)
    pairs = list(zip(table.rows, runs, strict=True))
    labels = [row.label for row in table.rows]
    main = table.metrics[0] if table.metrics else "accuracy"
    curves = overlaid_curves(runs, labels)
    sizes = [
        None if row.spent.upload_bytes is None else (row.spent.upload_bytes + (row.spent.download_bytes or 0)) / 1e6
        for row in table.rows
    ]
    trade = trade_off(labels, sizes, [row.scores.get(main) for row in table.rows], main)
    data = list(dict.fromkeys(run.result.data.name for run in runs))
    context: Context = {
        "title": f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} on {listed(data)}",
        "sentence": f"{listed(labels)}.",
        "warnings": [
            *table.warnings,
            *(f"{row.label}: {text}" for row, run in pairs for text in run.problems),
        ],
        "table": _comparison_table(table),
        "legend": table.legend,
        "differences": _difference_tables(table),
        "notes": table.notes,
        "runs": [
            {
                "label": row.label,
                "folder": run.path.resolve().name,
                "seeds": ", ".join(map(str, row.seeds)),
                "sentence": sentence(run),
                "fingerprint": short_hash(run.result.fingerprint),
            }
            for row, run in pairs
        ],
        "markdown": tables.to_markdown(table),
        "latex": tables.to_latex(table),
        "csv": tables.to_csv(table),
        "drawn": {"curves": curves, "trade": present(trade)},
        "metric_choices": choices(curves),
    }
    return context, [*curves, *present(trade)]


def _comparison_table(table: tables.Comparison) -> Context:
    gap = next((name for name in table.metrics if any(row.gap[name] is not None for row in table.rows)), None)
    columns = [metric_of(name).title for name in table.metrics]
    columns += [f"Gap closed, {in_sentence(gap)}"] if gap else []
    rows = []
    for position, row in enumerate(table.rows):
        cells = [
            _cell(plus_minus(score, name), score and score.mean)
            | {"best": position in table.best[name], "mark": table.mark(name, position)}
            for name in table.metrics
            for score in [row.scores[name]]
        ]
        if gap:
            closed = row.gap[gap]
            cells.append(_cell(MISSING if closed is None else f"{percent(closed, 0)} %", closed))
        cells += [
            *(
                _cell(text, getattr(row.spent, name))
                for text, (_, name, _) in zip(cost_texts(row.spent), COSTS, strict=True)
            ),
            _cell(str(len(row.seeds)), len(row.seeds)),
        ]
        rows.append({"label": row.label, "cells": cells})
    references = [
        {
            "label": row.label,
            "cells": [plus_minus(row.scores[name], name) for name in table.metrics],
            "blank": len(columns) - len(table.metrics),
            "costs": cost_texts(row.spent),
        }
        for row in table.references
    ]
    return {"columns": [*columns, *COST_TITLES, "Seeds"], "rows": rows, "references": references}


def _cell(text: str, value: Any) -> Context:
    return {"text": text, "value": sortable(value), "best": False, "mark": ""}


def _difference_tables(table: tables.Comparison) -> list[Context]:
    found = []
    for name in table.metrics:
        rows = []
        for row, item in zip(table.rows, table.differences.get(name, ()), strict=False):
            if item is None:
                continue
            paired = item.paired
            factor = metric_of(name).factor
            low, high = paired.ci_low, paired.ci_high
            rows.append(
                {
                    "label": row.label,
                    "difference": MISSING if paired.difference is None else _signed(factor * paired.difference),
                    "interval": f"{_signed(factor * low)} to {_signed(factor * high)}"
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
                {"metric": metric_of(name).title, "against": table.rows[table.against[name]].label, "rows": rows}
            )
    return found


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
