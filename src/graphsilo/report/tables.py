"""Runs of one question side by side: one row per run, mean and deviation over seeds, what may be said of differences.

Scores are recomputed from the seeds' values, never copied from a summary. Differences are tested seed by seed against
a run chosen beforehand, corrected for the number of comparisons with it; or against the best run of each metric. Which
one that is, the same scores decide, so that all pairs of runs count as compared. Runs that are not comparable have
neither a best one nor marks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo.errors import ConfigError, nearest
from graphsilo.evaluate.costs import COSTS, COURSE, has_direction
from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.significance import PairedComparison, compare_paired, gap_closed, holm
from graphsilo.experiments.reproduce.published import Printed
from graphsilo.experiments.storage.records import Seed, Spent
from graphsilo.report.comparable import compare_settings, with_shared_clients
from graphsilo.report.formats import (
    OF_THE_METHOD,
    REFERENCES,
    Spread,
    explain_references,
    join_words,
    percent,
    reference_title,
    spread,
)
from graphsilo.report.record import Run
from graphsilo.report.shown import Shown
from graphsilo.report.views import Column, sentence

Publisher: TypeAlias = "Callable[[Run, str, Column], Printed | None]"
"""A published score to hold against a run (given with its label) in a column."""

ALPHA = 0.05
"""Level of the marks, after correction."""


@dataclass(frozen=True)
class Row:
    """One run, or one reference, of a comparison.

    Attributes:
        label: Distinct within the comparison.
        path: The run's folder; None for a reference.
        scores: Metric to mean and deviation over seeds; None where it was not scored.
        by_seed: Metric to seed to score.
        gap: Share of the gap between local and global that the run closes, by metric.
        spent: What training took, per seed.
        records: What the result holds of each seed.
        reference: Which reference it is, as ``run.references`` names it; empty for a run.
    """

    label: str
    path: Path | None
    scores: dict[str, Spread | None]
    by_seed: dict[str, dict[int, float | None]]
    gap: dict[str, float | None]
    seeds: tuple[Any, ...] = ()
    spent: Spent = field(default_factory=Spent)
    records: tuple[Seed, ...] = field(default=(), repr=False)
    reference: str = ""


@dataclass(frozen=True)
class Difference:
    """A row against the reference row of one metric.

    Attributes:
        paired: The comparison seed by seed; differences are this row - the other.
        adjusted_p: The sign-flip test's p after Holm's correction.
        verdict: "better", "worse", "no difference shown" or "too few seeds"; in the sense of the metric, so a lower
            loss is "better".
    """

    paired: PairedComparison
    adjusted_p: float | None
    verdict: str

    @property
    def mark(self) -> str:
        """The sign in tables: † for worse, ‡ for better, nothing where no difference is shown."""
        return {"worse": "†", "better": "‡"}.get(self.verdict, "")


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Runs of one question side by side.

    Attributes:
        metrics: The columns, in order: metrics, with a view before them where one was asked for.
        rows: One per run, in the order given.
        references: Local and global training, when the runs agree on them; and runs that were named as references.
        best: Metric to the positions of the rows with the best mean (several when equal); none where runs are not
            comparable.
        against: Metric to the position of the row that the others are tested against.
        is_fixed: Whether that row was chosen beforehand; else it is the best of each metric.
        differences: Metric to one Difference per row; None for the row tested against and where nothing pairs up.
        warnings: Sentences on why the rows may not be comparable.
        notes: Settings in which the runs differ beside the method.
        is_comparable: Whether nothing of ``warnings`` forbids to compare the rows.
        columns: What each of ``metrics`` is.
        title: Of the question, where it is one of several.
        subjects: Data set, and its cut and seeds in words; several where runs differ.
        view: Whose models were scored, as a sentence.
        published: Metric to one published score per row; empty where not asked for.
        remarks: What else must be said of it, such as where published scores are from.
    """

    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    best: dict[str, tuple[int, ...]]
    against: dict[str, int]
    is_fixed: bool
    differences: dict[str, tuple[Difference | None, ...]]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    is_comparable: bool = True
    columns: tuple[Column, ...] = ()
    title: str = ""
    subjects: tuple[tuple[str, str], ...] = ()
    view: str = ""
    published: dict[str, tuple[Printed | None, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def data(self) -> str:
        """Name of the data set."""
        return join_words(dict.fromkeys(data for data, _ in self.subjects))

    @property
    def subject(self) -> str:
        """``Cora (louvain, 10 clients, 3 seeds)``."""
        return "; ".join(f"{data} ({cut})" for data, cut in self.subjects)

    def mark(self, name: str, position: int) -> str:
        """The significance sign of a row's score; empty when there is none."""
        found = self.differences.get(name, ())
        difference = found[position] if position < len(found) else None
        return "" if difference is None else difference.mark

    @property
    def legend(self) -> list[str]:
        """What bold and the signs mean, and what the number of seeds does not allow."""
        has_bytes = any(row.spent.upload_bytes is not None for row in self.rows)
        cost = ["Sent and received: for training, per seed, without evaluation."] if has_bytes else []
        return [*legend([self]), *self.remarks, *cost]


def legend(tables: Sequence[Comparison]) -> list[str]:
    """The same for several questions in one table, each a column of its own."""
    first, of_column = tables[0], " of a column" if len(tables) > 1 else ""
    percent_ = ", percent" if any(metric_of(name).is_share for name in first.metrics) else ""
    aside = ", references aside" if any(table.references for table in tables) else ""
    bold = (
        f"; bold: best mean{of_column}{aside}"
        if any(len(table.rows) > 1 and any(table.best.values()) for table in tables)
        else ""
    )
    spreads = [score for table in tables for row in table.rows for score in row.scores.values() if score is not None]
    what = "Mean ± standard deviation over seeds" if any(score.std is not None for score in spreads) else "One seed"
    sentences = [*filter(None, [first.view]), f"{what}{percent_}{bold}."]
    if apart := [table.title for table in tables if not table.is_comparable]:
        where = f" for {join_words(apart)}" if len(tables) > 1 else ""
        sentences.append(f"Nothing is bold or marked{where}: the runs are not comparable.")
    sentences += _marks(tables, of_column)
    for column in first.columns:
        shown = metric_of(column.metric)
        if not has_direction(column.metric):
            sentences.append(f"{shown.title}: nothing is bold or marked, as its own file alone says if more is better.")
        if column.metric in COSTS:
            sentences.append(f"{shown.title}: {shown.meaning}.")
        if column.metric in COURSE:
            sentences.append(
                f"{shown.title}: {shown.meaning} of {percent(column.target, 0)} %; a dash if a seed never is."
            )
    there = {row.reference for table in tables for row in table.references}
    explained = explain_references([key for key in REFERENCES if key in there])
    return [*sentences, explained] if explained else sentences


def _marks(tables: Sequence[Comparison], of_column: str) -> list[str]:
    """What the signs mean, or why there is none."""
    found = [item for table in tables for row in table.differences.values() for item in row if item is not None]
    if not found:
        return []
    is_fixed, marks = tables[0].is_fixed, {item.mark for item in found}
    counts = {len(table.rows) - 1 if is_fixed else math.comb(len(table.rows), 2) for table in tables}
    most = max(counts)
    number = str(most) if len(counts) == 1 else f"up to {most}"
    what = f"{number} comparisons" if is_fixed else f"all {number} pairs of runs"
    over = f" over {what}{of_column}" if most > 1 else ""
    test = f"paired sign-flip test over seeds, Holm-corrected{over}, p ≤ {ALPHA}"
    fixed = {table.rows[position].label for table in tables for position in table.against.values()}
    other = f"'{fixed.pop()}'" if is_fixed or (len(fixed) == 1 and not of_column) else f"the best{of_column}"
    said = [
        f"{sign}: {verdict} than {other} ({test})."
        for sign, verdict in (("†", "worse"), ("‡", "better"))
        if sign in marks
    ]
    if all(item.verdict == "too few seeds" for item in found):
        rows = max(len(table.rows) for table in tables)
        # The least p of n seeds is 2^(1 - n).
        needed, chosen = (1 + math.ceil(math.log2(count / ALPHA)) for count in (most, rows - 1))
        fewer = "" if is_fixed or chosen == needed else f" ({chosen} with a baseline chosen beforehand)"
        return [
            f"Too few common seeds for any difference to be significant: {rows} runs{of_column} need {needed} seeds"
            f"{fewer}."
        ]
    return said or [f"No difference is significant ({test})."]


def beside(
    runs: Sequence[Run],
    labels: Sequence[str],
    shown: Sequence[Column],
    *,
    fixed: int | None = None,
    published: Publisher | None = None,
    as_references: Sequence[str] = (),
    taken: Collection[str] = (),
) -> Comparison:
    """Put runs of one question side by side; what makes them incomparable all the same is warned about.

    Args:
        runs: At least one.
        labels: What they are called.
        shown: The columns.
        fixed: Position of the baseline.
        published: Finds a published score.
        as_references: Labels of runs that are rows to hold others against: never best, never tested.
        taken: Labels of other rows that no reference should have.
    """
    narrowed, shared, apart = with_shared_clients(runs, labels)
    names = [column.name for column in shown]
    rows = [_row(run, label, shown) for run, label in zip(narrowed, labels, strict=True)]
    references, reference_warnings = _references(runs, labels, shown, {*labels, *taken})
    warnings, notes = compare_settings(runs, labels, as_reported=any(column.mode is None for column in shown))
    warnings = apart + warnings
    printed: dict[str, tuple[Printed | None, ...]] = {}
    kept = [place for place, label in enumerate(labels) if label not in as_references]
    if published is not None:
        found = {
            column.name: tuple(published(runs[place], labels[place], column) for place in kept) for column in shown
        }
        printed = {name: cells for name, cells in found.items() if any(cells)}
    references = (*references, *(row for row, label in zip(rows, labels, strict=True) if label in as_references))
    rows = [rows[place] for place in kept]
    fixed = kept.index(fixed) if fixed in kept else None
    best = {name: _best(rows, name) if not warnings else () for name in names}
    against = {name: places[0] if fixed is None else fixed for name, places in best.items() if places}
    if not warnings and not reference_warnings:
        rows = [_with_shared_gap(row, references) for row in rows]
    return Comparison(
        metrics=tuple(names),
        rows=tuple(rows),
        references=references,
        best=best,
        against=against,
        is_fixed=fixed is not None,
        differences={name: _differences(rows, name, place, fixed is not None) for name, place in against.items()},
        warnings=tuple(warnings + reference_warnings),
        notes=(*shared, *notes),
        is_comparable=not warnings,
        columns=tuple(shown),
        subjects=tuple(dict.fromkeys(map(_subject, runs))),
        view=sentence(shown, runs),
        published=printed,
    )


def _subject(run: Run) -> tuple[str, str]:
    """``Cora`` and ``louvain, 10 clients, 3 seeds``."""
    cut, seeds = run.result.partition, len(run.seeds)
    facts = [
        cut.rule,
        f"{cut.clients} clients",
        "" if run.scenario == "seen" else f"scenario {run.scenario}",
        f"{seeds} seed{'' if seeds == 1 else 's'}",
    ]
    return run.result.data.name, ", ".join(filter(None, facts))


def reference_spread(run: Run, key: str, name: str, scenario: str | None = None) -> Spread | None:
    """A reference's score as the run recorded it; None when it did not."""
    means = run.result.reference_rows.get(key)
    if means is not None and scenario is not None:
        means = (means.beside.scenarios or {}).get(scenario)
    cell = None if means is None else means.metrics.get(name)
    return None if cell is None or cell.mean is None else Spread(cell.mean, cell.std, len(run.seeds))


def _reference_column(run: Run, key: str, column: Column) -> Spread | None:
    """The same for a column. A reference has one model, its own, whichever mode is asked for."""
    if column.average is None:
        return reference_spread(run, key, column.metric, column.items)
    beside_ = run.result.reference_rows[key].beside if key in run.result.reference_rows else None
    if beside_ is None or column.items is not None:
        return None
    if column.average == "pooled":
        cell = None if beside_.pooled is None else beside_.pooled.metrics.get(column.metric)
    else:
        worst = beside_.worst_client if column.metric == "accuracy" else None
        cell = None if worst is None else worst.accuracy
    return None if cell is None or cell.mean is None else Spread(cell.mean, cell.std, len(run.seeds))


def find_run(baseline: str, runs: Sequence[Run], labels: Sequence[str]) -> int:
    """Position of the run that is called so.

    Raises:
        ConfigError: None is, or several are.
    """
    if baseline in labels:
        return list(labels).index(baseline)
    names = [(run.path.name, str(run.path), run.result.method.name) for run in runs]
    found = [place for place, each in enumerate(names) if baseline in each]
    if len({labels[place] for place in found}) == 1:  # one row, of several data sets
        return found[0]
    if found:
        several_ = join_words(f"'{labels[place]}'" for place in found)
        raise ConfigError(
            f"{len(found)} of the compared runs are called '{baseline}'. Give the label of one: {several_}."
        )
    raise ConfigError(f"the baseline must be one of the compared runs, got '{baseline}': {nearest(baseline, labels)}")


def _row(run: Run, label: str, shown: Iterable[Column]) -> Row:
    values = {column.name: [column.of(seed) for seed in run.seeds] for column in shown}
    scores = {name: spread(numbers) for name, numbers in values.items()}
    for column in shown:
        if column.metric in COURSE and None in values[column.name]:
            scores[column.name] = None  # the mean of those seeds that got there would favour who rarely does
    return Row(
        label=label,
        path=run.path,
        scores=scores,
        by_seed={name: dict(zip(run.seed_names, numbers, strict=True)) for name, numbers in values.items()},
        gap={column.name: None if column.view else run.result.gap_closed.get(column.name) for column in shown},
        seeds=tuple(run.seed_names),
        spent=run.result.spent,
        records=tuple(run.seeds),
    )


def _with_shared_gap(row: Row, references: Sequence[Row]) -> Row:
    """Fill in the share of the gap from the references of another, comparable run."""
    ends = {row.reference: row.scores for row in references}
    local, central = (ends.get(key, {}) for key in ("local", "global"))
    gap = dict(row.gap)
    for name, score in row.scores.items():
        low, high = local.get(name), central.get(name)
        if score is None or low is None or high is None:
            continue
        if gap[name] is None:
            gap[name] = gap_closed(*map(metric_of(name).goodness, (score.mean, low.mean, high.mean)))
    return replace(row, gap=gap)


def _best(rows: Sequence[Row], name: str) -> tuple[int, ...]:
    means = {position: score.mean for position, row in enumerate(rows) if (score := row.scores[name]) is not None}
    if not means or not has_direction(name):
        return ()
    top = (max if metric_of(name).higher_is_better else min)(means.values())
    return tuple(position for position, value in means.items() if value == top)


def _differences(rows: Sequence[Row], name: str, against: int, is_fixed: bool) -> tuple[Difference | None, ...]:
    """Every row against one; where that one is the best, its choice was a look at all pairs, and all are corrected."""
    scored = [position for position, row in enumerate(rows) if row.scores[name] is not None]
    chosen = [
        (one, other) for one, other in combinations(scored, 2) if not is_fixed or against in (one, other)
    ]  # fmt: skip
    # Differences are a row's own score less that of the row it is tested against.
    places = [(other, one) if one == against else (one, other) for one, other in chosen]
    pairs = [compare_paired(rows[one].by_seed[name], rows[other].by_seed[name]) for one, other in places]
    adjusted = holm([pair.sign_flip_p for pair in pairs])
    # Holm multiplies the least p by the number of comparisons: beyond ALPHA, no outcome could have been significant
    least = [pair.smallest_p for pair in pairs if pair.smallest_p is not None]
    hopeless = bool(least) and len(least) * min(least) > ALPHA
    flipped = {} if metric_of(name).higher_is_better else {"better": "worse", "worse": "better"}
    found: list[Difference | None] = [None] * len(rows)
    for (one, other), pair, p in zip(places, pairs, adjusted, strict=True):
        if other == against and pair.seeds:
            verdict = "too few seeds" if hopeless else pair.verdict(ALPHA, adjusted_p=p)
            found[one] = Difference(pair, p, flipped.get(verdict, verdict))
    return tuple(found)


def _references(
    runs: Sequence[Run], labels: Sequence[str], shown: Sequence[Column], taken: Collection[str]
) -> tuple[tuple[Row, ...], list[str]]:
    names = [column.name for column in shown]
    rows, warnings = [], []
    for key in REFERENCES:
        found: dict[str, dict[str, Spread | None]] = {}
        spent: dict[str, Spent] = {}
        for run, label in zip(runs, labels, strict=True):
            scores = {column.name: _reference_column(run, key, column) for column in shown}
            if any(score is not None for score in scores.values()):
                found[label] = scores
                spent[label] = run.result.reference_rows[key].beside.spent or Spent()
        distinct = {
            repr([None if score is None else round(score.mean, 6) for score in s.values()]) for s in found.values()
        }
        if len(distinct) > 1 and key not in OF_THE_METHOD:
            warnings.append(f"The runs disagree on the reference '{key}': each has its own row.")
        kept = found if len(distinct) > 1 else dict(list(found.items())[:1])
        titled = dict(zip(labels, (run.result.method.title for run in runs), strict=True))
        for label, scores in kept.items():
            title = reference_title(key, titled[label])
            text = f"{title} (of {label})" if len(distinct) > 1 else title
            text = f"{text} (reference)" if text in taken else text
            gap = dict.fromkeys(names)
            cost = spent[label]
            rows.append(Row(label=text, path=None, scores=scores, by_seed={}, gap=gap, spent=cost, reference=key))
    return tuple(rows), warnings
