"""Runs of several questions in one table: data sets (or cuts, or scenarios) as columns, methods as rows.

Each column is a comparison of its own, best means and tests included: a score on one data set is never held against
one on another. Over the columns, methods are ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from graphsilo.errors import ConfigError
from graphsilo.evaluate.costs import COURSE, has_direction
from graphsilo.evaluate.metrics import metric_of
from graphsilo.evaluate.ranks import Ranking, count_needed, rank
from graphsilo.report.comparable import distinct_labels, question_titles, questions, with_shared_clients
from graphsilo.report.formats import join_words
from graphsilo.report.published import publisher
from graphsilo.report.record import Run, load
from graphsilo.report.shown import Shown
from graphsilo.report.tables import ALPHA, Comparison, Publisher, beside, find_run, legend
from graphsilo.report.views import Column, columns, titles, whose


@dataclass(frozen=True)
class Ranked:
    """Ranks in one metric of the rows that have a score in every column that is comparable.

    Attributes:
        labels: These rows.
        ranking: Their ranks.
    """

    labels: tuple[str, ...]
    ranking: Ranking

    def mean(self, label: str) -> float | None:
        """A row's mean rank; None of a row that is not ranked."""
        return self.ranking.means[self.labels.index(label)] if label in self.labels else None


@dataclass(frozen=True, repr=False)
class Grid(Shown):
    """Several questions side by side.

    Attributes:
        tables: A comparison of each question, with its ``title``; all have the same ``metrics``.
        labels: The rows, in the order in which they came.
        references: Labels of the reference rows.
        rankings: Metric to ranks; without those in which fewer than two rows or columns can be ranked.
        remarks: What else must be said, such as where published scores are from.
    """

    tables: tuple[Comparison, ...]
    labels: tuple[str, ...]
    references: tuple[str, ...]
    rankings: dict[str, Ranked] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores of each column."""
        return self.tables[0].metrics

    @property
    def subject(self) -> str:
        """Data and cuts, for captions."""
        by_cut: dict[str, list[str]] = {}
        for table in self.tables:
            for data, cut in table.subjects:
                by_cut.setdefault(cut, []).append(data)
        return "; ".join(f"{join_words(dict.fromkeys(data))} ({cut})" for cut, data in by_cut.items())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why rows of a column may not be comparable."""
        found = self._merge_sentences(lambda table: table.warnings)
        if len(self.labels) > 1 and all(len(table.rows) < 2 for table in self.tables):
            found.append(
                "No two runs answer the same question: data, cut, split or scenario differ, so nothing is compared."
            )
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """Settings in which runs of a column differ beside the method."""
        return tuple(self._merge_sentences(lambda table: table.notes))

    @property
    def legend(self) -> list[str]:
        """What bold, signs and ranks mean."""
        return [*legend(self.tables), *(self._rank_sentences() if self.rankings else []), *self.remarks]

    def place(self, table: Comparison, label: str) -> int | None:
        """A row's position in a column; None where it has no run there."""
        return next((place for place, row in enumerate(table.rows) if row.label == label), None)

    def _merge_sentences(self, sentences: Callable[[Comparison], Sequence[str]]) -> list[str]:
        """Each sentence once; with the column's title where it does not hold of all."""
        every = dict.fromkeys(text for table in self.tables for text in sentences(table))
        of = {text: [table.title for table in self.tables if text in sentences(table)] for text in every}
        return [
            text if len(titles) == len(self.tables) else f"{join_words(titles)}: {text}" for text, titles in of.items()
        ]

    def _rank_sentences(self) -> list[str]:
        columns_ = [table for table in self.tables if table.is_comparable]
        found = [f"Mean rank over the {len(columns_)} columns: 1 is the best, equals share their places."]
        data = [table.data for table in columns_]
        if len(set(data)) < len(data):
            return [*found, "Columns of the same data are not independent of each other: ranks are not tested."]
        tests = [_rank_test(self, name) for name in self.rankings]
        return [*found, *(f"{text[:1].upper()}{text[1:]}" for text in tests)]


def _rank_test(table: Grid, name: str) -> str:
    """What the ranks in a metric say, or why they say nothing."""
    ranking, labels = table.rankings[name].ranking, table.rankings[name].labels
    of = f"{titles(table.tables[0].columns)[name]}: " if len(table.rankings) > 1 else ""
    left_out = [label for label in table.labels if label not in labels]
    if left_out:
        of += f"without {join_words(left_out)}, of which a column has no score: "
    needed = count_needed(len(labels), alpha=ALPHA)
    if ranking.data_sets < needed:
        return (
            f"{of}too few data sets for any difference of ranks to be significant: {len(labels)} methods need {needed}."
        )
    test = f"Friedman's test by permutation over {ranking.data_sets} data sets, p = {ranking.p:.2g}"
    apart = f"{ranking.critical_difference:.2f}"
    if ranking.p is not None and ranking.p <= ALPHA:
        return f"{of}mean ranks at least {apart} apart differ (Nemenyi, p ≤ {ALPHA}; {test})."
    return f"{of}no difference of ranks is significant ({test}; Nemenyi's critical difference is {apart})."


Table: TypeAlias = "Comparison | Grid"
"""Runs side by side, of one question or of several."""


def comparison(run_dirs: Sequence[Path | str], **asked: Any) -> Table:
    """Read run folders and put them side by side, as ``compare_runs`` does.

    Raises:
        ConfigError: A folder holds no finished run; and as there.
        RunError: A result cannot be read.
    """
    return compare_runs([load(run_dir, with_ledger=False) for run_dir in run_dirs], **asked)


def compare_runs(
    runs: Sequence[Run],
    *,
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    mode: str | None = None,
    target: float | None = None,
    published: bool | str = False,
) -> Table:
    """Put runs side by side: a comparison, or of several questions a grid.

    Args:
        runs: At least one.
        metrics: Test metrics to show, ``METRIC`` or ``VIEW.METRIC`` (``graphsilo.report.views``); by default the usual
            five that any run scored, and of several questions the first of them.
        baseline: Label, method or folder name of the run that others are tested against; by default the best.
        mode: View of the metrics that name none: ``own``, ``aggregate``, ``pooled``, ``worst``, and so on.
        target: Adds bytes and rounds until validation accuracy is there.
        published: Shows published scores beside; ``PAPER`` or ``PAPER/TABLE`` says whose.

    Raises:
        ConfigError: No run, or one twice; ``baseline`` names none of them; a metric, view or paper is not known.
    """
    if not runs:
        raise ConfigError("at least one run folder was wanted for a comparison, none came: give the folders.")
    _refuse_twice(runs)
    as_reported = runs
    if published:
        runs = [run.as_papers for run in runs]
    groups = questions(runs)
    labels = distinct_labels(runs, groups)
    shown = columns(with_shared_clients(runs, labels)[0] if len(groups) == 1 else runs, metrics, mode, target)
    if metrics is None and len(groups) > 1:
        shown = (shown[0], *(column for column in shown[1:] if column.metric in COURSE))
    moved = [
        f"{label} by {whose(run.reported)}, where its run reports {whose(before.reported)}"
        for label, run, before in zip(labels, runs, as_reported, strict=True)
        if run.reported != before.reported and any(each.is_score and each.mode is None for each in shown)
    ]
    fixed = None if baseline is None else find_run(baseline, runs, labels)
    publish, remarks = (
        publisher(runs, shown, published if isinstance(published, str) else None) if published else (None, ())
    )
    if moved:
        remarks = (f"Beside print the model that papers score: {'; '.join(moved)}.", *remarks)
    if len(groups) == 1:
        return replace(beside(runs, labels, shown, fixed=fixed, published=publish), remarks=remarks)
    found = grid(
        [([runs[place] for place in group], [labels[place] for place in group]) for group in groups],
        question_titles([runs[group[0]] for group in groups]),
        shown,
        baseline=None if fixed is None else labels[fixed],
        published=publish,
    )
    return replace(found, remarks=remarks)


def _refuse_twice(runs: Sequence[Run]) -> None:
    """A run beside itself would count as one run more in every test."""
    for one, other in combinations(runs, 2):
        if one.path.resolve() == other.path.resolve():
            twice = f"the folder {one.path} is named twice"
        elif one.result is other.result:
            twice = f"{one.path} and {other.path} are the same run"
        else:
            continue
        raise ConfigError(f"{twice}, and a run is not compared with itself. Name it once.")


def grid(
    groups: Sequence[tuple[Sequence[Run], Sequence[str]]],
    titles: Sequence[str],
    shown: Sequence[Column],
    *,
    baseline: str | None = None,
    published: Publisher | None = None,
    as_references: Sequence[str] = (),
) -> Grid:
    """A grid whose columns and rows are known already.

    Args:
        groups: Each question's runs and their labels.
        titles: Each question's heading.
        shown: What is shown of each.
        baseline: Label of the row that others are tested against; a column without it has no marks.
        published: Finds a published score.
        as_references: Labels of runs that are rows to hold others against.
    """
    tables, taken = [], {label for _, labels in groups for label in labels}
    for (runs, labels), title in zip(groups, titles, strict=True):
        fixed = list(labels).index(baseline) if baseline is not None and baseline in labels else None
        table = beside(runs, labels, shown, fixed=fixed, published=published,
                       as_references=as_references, taken=taken)  # fmt: skip
        if baseline is not None and fixed is None:
            table = replace(table, differences={}, against={}, is_fixed=True)
        tables.append(replace(table, title=title))
    rows = dict.fromkeys(row.label for table in tables for row in table.rows)
    references = dict.fromkeys(row.label for table in tables for row in table.references)
    return Grid(tuple(tables), tuple(rows), tuple(references), _rankings(tables, list(rows)))


def _rankings(tables: Sequence[Comparison], labels: Sequence[str]) -> dict[str, Ranked]:
    known = [table for table in tables if table.is_comparable]
    found = {}
    for name in filter(has_direction, tables[0].metrics):
        means = {
            label: [
                score.mean
                for table in known
                for row in table.rows
                if row.label == label and (score := row.scores[name]) is not None
            ]
            for label in labels
        }
        ranked = tuple(label for label in labels if len(means[label]) == len(known))
        if len(known) > 1 and len(ranked) > 1:
            better = metric_of(name).higher_is_better
            found[name] = Ranked(ranked, rank([means[label] for label in ranked], higher_is_better=better, alpha=ALPHA))
    return found
