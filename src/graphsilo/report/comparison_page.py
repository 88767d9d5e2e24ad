"""What the comparison page says: its sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from graphsilo.evaluate.metrics import metric_of
from graphsilo.report import side_by_side
from graphsilo.report.curves import overlaid_curves, trade_off
from graphsilo.report.finding import one_class
from graphsilo.report.formats import MISSING, join_words, short_hash
from graphsilo.report.grid import Grid
from graphsilo.report.grid import Table as Compared
from graphsilo.report.layout import format_difference, layout
from graphsilo.report.plot import present
from graphsilo.report.record import Run
from graphsilo.report.run_page import sentence
from graphsilo.report.sections import Block, Page, Section, Table, add_heading, code, pair_figures, warn_of
from graphsilo.report.tables import Comparison, Row
from graphsilo.report.writers import to_csv, to_latex, to_markdown


def describe(runs: Sequence[Run], table: Compared) -> Page:
    """Everything the comparison page shows of runs and their table."""
    tables = table.tables if isinstance(table, Grid) else (table,)
    placed: dict[Path | None, list[tuple[Comparison, Row]]] = {}
    for each in tables:
        for row in each.rows:
            placed.setdefault(row.path, []).append((each, row))
    pairs = [(*placed[run.path].pop(0), run) for run in runs]
    # In one figure a method of several columns is several lines
    labels = [f"{row.label}, {each.title}" if each.title else row.label for each, row, _ in pairs]
    main = table.metrics[0] if table.metrics else "accuracy"
    modes = {column.mode for each in tables for column in each.columns if column.is_score}
    curves = overlaid_curves(runs, labels, modes.pop() if len(modes) == 1 else None)
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
    warnings = [
        *table.warnings,
        *(
            f"{label}: {text}"
            for label, run in zip(labels, runs, strict=True)
            for text in (*run.problems, *filter(None, [one_class(run).removeprefix("Caution: ")]))
        ),
    ]
    told = [
        (label, code(run.path.resolve().name), sentence(run), code(short_hash(run.result.fingerprint)))
        for label, run in zip(labels, runs, strict=True)
    ]
    columns = [("Method", "wrap"), ("Folder", "text"), ("What was run", "text wrap"), ("Fingerprint", "text")]
    texts = (
        ("LaTeX (booktabs)", to_latex(table)),
        ("Markdown", to_markdown(table)),
        ("CSV (fractions, bytes, seconds)", to_csv(table)),
    )
    tested = [found for each in tables for found in _differences(each)]
    differing: list[Block] = [("note", _PAIRED), *pair_figures("differences", paired)]
    differing += [("folded", (title, found, place == 0)) for place, (title, found) in enumerate(tested)]
    return Page(
        f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} on {join_words(data)}",
        "graphsilo comparison",
        [
            ("finding", "" if one is None else side_by_side.sentence(one)),
            ("lede", f"{join_words(table.labels if isinstance(table, Grid) else labels)}."),
        ],
        [
            Section("table", "", [
                warn_of(warnings), ("layout", (layout(table), ())),
                ("sources", ("The table as LaTeX, Markdown and CSV", texts)),
            ], "Table"),
            Section("curves", "Curves", pair_figures("compare", curves), "Curves"),
            Section("trade", "Score and bytes", [("pair", present(trade))], "Score and bytes"),
            Section("clients", "Client by client", pair_figures("compare-clients", clients), "Client by client"),
            Section("differences", "Differences", differing if tested else [], "Differences"),
            Section("runs", "Runs", [
                ("table", Table("What was run", columns, told)),
                *add_heading("Settings that differ beside the method", [("bullets", table.notes)]),
            ], "Runs"),
        ],
    )  # fmt: skip


_PAIRED = (
    "Paired seed by seed: the same seed means the same partition, splits and first weights. The verdict is the "
    "sign-flip test's, which assumes only that a difference is as likely to be negative as positive; the interval and "
    "the t-test assume normal differences."
)
_TESTED = ("Difference, points", "95 % interval", "Common seeds", "Sign-flip p", "Corrected", "t-test p")


def _differences(table: Comparison) -> Iterator[tuple[str, Table]]:
    """For each metric every run against the one that it is tested against."""
    for name in table.metrics:
        rows = []
        for row, item in zip(table.rows, table.differences.get(name, ()), strict=False):
            if item is None:
                continue
            paired = item.paired
            low, high = paired.ci_low, paired.ci_high
            rows.append((
                row.label,
                MISSING if paired.difference is None else format_difference(paired.difference, name, 2),
                MISSING
                if low is None or high is None
                else f"{format_difference(low, name, 2)} to {format_difference(high, name, 2)}",
                len(paired.seeds),
                *map(_p, (paired.sign_flip_p, item.adjusted_p, paired.t_p)),
                item.verdict,
            ))  # fmt: skip
        if rows:
            title = f"{table.title}: {metric_of(name).title}" if table.title else metric_of(name).title
            columns = [("Method", "wrap"), *((heading, "") for heading in _TESTED), ("Verdict", "text")]
            against = table.rows[table.against[name]].label
            yield f"{title}, against {against}", Table(f"Paired differences in {title}", columns, rows)


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
