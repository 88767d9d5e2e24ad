"""What a run has come to, as a table."""

from __future__ import annotations

from collections.abc import Mapping

from graphsilo.cli.terminal import Sheet
from graphsilo.evaluate.metrics import METRICS, metric_of, select_main
from graphsilo.experiments.storage.records import Means, MeanStd, RunRecord, Spent
from graphsilo.report.finding import are_seeds_alike, choice, say_same
from graphsilo.report.formats import (
    COST_TITLES,
    MISSING,
    MODES,
    Spread,
    absent_clients,
    cost_texts,
    describe_share,
    describe_weights,
    explain_targets,
    percent,
    plus_minus,
    reference_title,
    when_scored,
    words,
)

SCENARIOS = ("missing_class", "unseen_node", "new_client")


def sheet(record: RunRecord) -> Sheet:
    """The run and its reference rows, in percent."""
    test = record.summary.test
    chosen = record.config.get("evaluation", {}).get("select_by", "accuracy")
    held = METRICS.keys() & test.metrics.keys()
    names = select_main({name for name in held if test.metrics[name].mean is not None} or held, chosen)
    scenarios = [name for name in SCENARIOS if name in (record.summary.scenarios or {})]
    worst = test.beside.worst_client is not None and "accuracy" in names
    gap = record.gap_closed or None
    mixed = len({metric_of(name).is_share for name in names}) > 1

    def scores(means: Means, found: Mapping[str, Means] | None) -> list[str]:
        cells = [_cell(means.metrics.get(name), name) for name in names]
        if worst:
            last = means.beside.worst_client
            cells.append(_cell(None if last is None else last.accuracy))
        for name in scenarios:
            asked = (found or {}).get(name)
            cells.append(_cell(None if asked is None else asked.metrics.get("accuracy")))
        return cells

    of = "" if chosen == "accuracy" else ", accuracy"  # which is what the record has of it
    columns = [
        *(metric_of(name).title + (", %" if mixed and metric_of(name).is_share else "") for name in names),
        *([f"Worst {'scored ' if describe_share(record) else ''}client{of}"] if worst else []),
        *map(words, scenarios),
        "Best round",
        *COST_TITLES,
        *(["Gap closed"] if gap is not None else []),
    ]
    main = [
        *scores(test, record.summary.scenarios),
        _rounds([seed.best_round for seed in record.seeds]),
        *cost_texts(record.spent),
    ]
    if gap is not None:
        closed = gap.get(names[0]) if names else None
        main.append(MISSING if closed is None else f"{percent(closed, 0)} %")
    rows = [(record.method.title, main, "bold")]
    for name, means in record.reference_rows.items():
        cells = [*scores(means, means.beside.scenarios), MISSING, *cost_texts(means.beside.spent or Spent())]
        rows.append(
            (reference_title(name, record.method.title), [*cells, *[MISSING] * (len(columns) - len(cells))], "dim")
        )
    absent = absent_clients(record.partition)
    seeds = len(record.seeds)
    counted = f"{seeds} seed{'' if seeds == 1 else 's'}{f', without {absent}' if absent else ''}"
    unit = ", %" if not mixed and any(metric_of(name).is_share for name in names) else ""
    return Sheet(f"Test{unit} ({counted})", columns, rows)


def describe_scoring(record: RunRecord) -> str:
    """Whose model the table scores, on whose test data, and when; and how many silos, where not all were scored."""
    modes = {seed.mode for seed in record.seeds}
    reported = modes.pop() if len(modes) == 1 else "validation"
    rest = [mode for mode in record.seeds[0].modes if mode != reported]
    others = f"; {', '.join(rest)} {'is' if len(rest) == 1 else 'are'} in result.json" if rest else ""
    whose = MODES.get(reported, reported).removesuffix(" (aggregate)")
    part, weights = describe_share(record), describe_weights(record)
    return " ".join(
        filter(
            None,
            [
                f"Scored: {whose} ({reported}) {when_scored(record.seeds)}{others}.",
                f"{part}." if part else "",
                f"Scores are means of silos, weighted {weights}." if weights else "",
                explain_targets(record),
                choice(record),
                "Sent and received: for training, per seed; what evaluation takes is in ledger.parquet.",
                say_same(record) if are_seeds_alike(record) else "",
            ],
        )
    )


def remarks(record: RunRecord) -> list[str]:
    """What a person should know before believing the table."""
    found = list(record.warnings)
    if next(iter(record.gap_closed.values()), 0.0) is None:
        found.append("the centralised model is no better than local ones here, so there is no gap to close.")
    return found


def _cell(value: MeanStd | None, name: str = "accuracy") -> str:
    if value is None or value.mean is None:
        return MISSING
    return plus_minus(Spread(value.mean, value.std, 0), name)


def _rounds(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 3 else f"{min(numbers)}-{max(numbers)}"
