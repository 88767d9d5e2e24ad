"""Which number of a run a column shows: whose model was scored, on which items, and how clients were averaged.

A column is named ``VIEW.METRIC``. The view is any of a mode (``own``, ``aggregate``, ``own_global``,
``aggregate_global``), a kind of items of the scenario (``unseen_node``), and ``pooled`` (of the summed counts) or
``worst`` (the client with the least), joined by dots; without one it is what each run reports: its first mode, the
node-weighted mean over clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from graphsilo.errors import ConfigError, nearest
from graphsilo.evaluate.costs import COSTS, COURSE
from graphsilo.evaluate.metrics import metric_of, select_main, sort_metrics
from graphsilo.experiments.storage.records import RoundCost, Scores, Seed
from graphsilo.report.formats import MODES, join_words, words
from graphsilo.report.record import Run

ALIASES = {"own": "own_local", "aggregate": "aggregate_local", "worst_client": "worst"}
"""Short and other names of a view's parts."""
AVERAGES = {"pooled": "counts of all clients summed", "worst": "the client with the least"}


@dataclass(frozen=True)
class Column:
    """One number per seed.

    Attributes:
        metric: As in the table of metrics, or of ``COURSE`` or ``COSTS``.
        mode: Whose model on whose test data; None is what each run reports.
        items: Kind of test items of the scenario; None is the main one.
        average: ``pooled``, ``worst``, or None for the node-weighted mean over clients.
        target: Validation accuracy to be reached, for ``COURSE``.
    """

    metric: str
    mode: str | None = None
    items: str | None = None
    average: str | None = None
    target: float | None = None

    @property
    def view(self) -> str:
        """The parts before the metric; empty for what each run reports."""
        return ".".join(part for part in (self.mode, self.items, self.average) if part)

    @property
    def name(self) -> str:
        """The column's name in tables: the view, if there is one, and the metric."""
        return f"{self.view}.{self.metric}" if self.view else self.metric

    @property
    def is_score(self) -> bool:
        """Whether it says how right a model is."""
        return self.metric not in COURSE and self.metric not in COSTS

    @property
    def words(self) -> str:
        """The view for a reader; empty for what each run reports."""
        parts = [
            whose(self.mode) if self.mode else "",
            words(self.items).lower() if self.items else "",
            AVERAGES[self.average] if self.average else "",
        ]
        return "; ".join(filter(None, parts))

    def of(self, seed: Seed) -> float | None:
        """The number; None where the seed has none."""
        if self.metric in COURSE:
            return self._course(seed)
        if self.metric in COSTS:
            return _READ_COST[self.metric](seed)
        scores = self._scores(seed)
        if scores is None:
            return None
        if self.average == "worst":
            return self._worst(seed, scores)
        if self.average == "pooled":
            scores = scores.beside.pooled
        return None if scores is None else scores.numbers.get(self.metric)

    def _scores(self, seed: Seed) -> Scores | None:
        place = seed if self.mode is None else seed.modes.get(self.mode)
        if place is None or self.items is None:
            return None if place is None else place.test
        return place.scenarios.get(self.items)

    def _worst(self, seed: Seed, scores: Scores) -> float | None:
        if self.metric == "accuracy" and scores.beside.worst_client is not None:
            return scores.beside.worst_client.accuracy
        if self.items is not None or self.mode not in (None, seed.mode):
            return None  # Clients' other scores are recorded for the reported mode alone
        known = [value for row in seed.clients if (value := row.test.numbers.get(self.metric)) is not None]
        return min(known, key=metric_of(self.metric).goodness, default=None)

    def _course(self, seed: Seed) -> float | None:
        """Bytes or rounds until validation accuracy is at the target; None where it never is."""
        size = seed.setup.upload_bytes + seed.setup.download_bytes
        for row in seed.rounds:
            size += row.upload_bytes + row.download_bytes
            reached = seed.curve(row, "validation", self.mode).get("accuracy")
            if reached is not None and self.target is not None and reached >= self.target:
                return float(size if self.metric == "bytes_to_target" else row.round)
        return None


def mean_of_study(study: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """The mean over nodes of a number in clients' studies; None where none has it.

    Args:
        study: Numbers by client; ``nodes`` is what each weighs, ``nodes_lacking`` where the number is about these.
        name: Of the number, ``..._lacking`` where it is about nodes that lack neighbours.
    """
    about = "nodes_lacking" if name.endswith("_lacking") else "nodes"
    known = [(client[name], client[about]) for client in study.values() if name in client]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _sent(rows: Iterable[RoundCost], *, both_ways: bool) -> int:
    return sum(row.upload_bytes + both_ways * row.download_bytes for row in rows)


_READ_COST: dict[str, Callable[[Seed], float | None]] = {
    "bytes_sent": lambda seed: _sent([seed.setup, *seed.rounds], both_ways=True) or None,
    "values_sent": lambda seed: (
        _sent(seed.rounds, both_ways=False) / 4 / max(len(seed.rounds) * len(seed.clients), 1) or None
    ),
    "training_seconds": lambda seed: seed.wall_seconds,
    "parameters": lambda seed: mean_of_study(seed.study or {}, "parameters"),
    "distance_local": lambda seed: mean_of_study(seed.study or {}, "distance_local"),
    "distance_mended": lambda seed: mean_of_study(seed.study or {}, "distance_mended"),
}


def columns(
    runs: Sequence[Run], metrics: Sequence[str] | None, mode: str | None = None, target: float | None = None
) -> tuple[Column, ...]:
    """The columns that were asked for.

    Args:
        runs: What is compared.
        metrics: Names, with or without a view; None takes the main ones that any run scored in the view.
        mode: View of the names without one; None is what each run reports.
        target: Adds bytes and rounds until validation accuracy is there.

    Raises:
        ConfigError: A view or metric that no run has, or a target that is no share.
    """
    if target is not None and not 0 < target <= 1:
        meant = f": did you mean {target / 100:g}?" if 1 < target <= 100 else "."
        raise ConfigError(f"a target is a validation accuracy as a share, such as 0.8 for 80 %; got {target:g}{meant}")
    base = Column("", target=target) if mode is None else _view(mode, runs, target)
    if metrics is None:
        # What all runs were chosen by comes first: it is what the comparison opens with.
        chosen = {run.main_metric for run in runs}
        common = chosen.pop() if len(chosen) == 1 else ""
        names = sorted(select_main(_find_metrics(runs, base), common), key=lambda name: name != common)
        found = [replace(base, metric=name) for name in names]
        if not found and mode is not None:
            raise ConfigError(f"no run was scored so: mode '{mode}'. {_describe_modes(runs)}")
    else:
        found = [_column(name, base, runs) for name in metrics]
    if target is not None:
        found += [replace(base, metric=name) for name in COURSE if name not in {each.metric for each in found}]
    return tuple(dict.fromkeys(found))


def titles(shown: Sequence[Column]) -> dict[str, str]:
    """Headings: the metric's title, with the view where the columns differ in it."""
    several = len({column.words for column in shown}) > 1
    return {
        column.name: metric_of(column.metric).title
        + (f" ({column.words or 'as reported'})" if several and column.is_score else "")
        for column in shown
    }


def sentence(shown: Sequence[Column], runs: Sequence[Run]) -> str:
    """What a table says about the view: whose models, and how clients were averaged."""
    views = list(dict.fromkeys(column.words for column in shown if column.is_score))
    if not views:
        return ""
    if len(views) > 1:
        return f"Scored: {join_words(view or 'what each run reports' for view in views)}."
    column = next(column for column in shown if column.is_score)
    models = []
    if column.mode is None:
        reported = {whose(run.reported) for run in runs if run.modes}
        models = [reported.pop() if len(reported) == 1 else "the model that each method reports"]
    how = [] if column.average else ["node-weighted mean over clients"]
    undefined = [] if column.average or column.mode else map(partial(_describe_undefined, runs=runs), shown)
    return " ".join(filter(None, [f"Scored: {'; '.join(filter(None, [*models, column.words, *how]))}.", *undefined]))


def _describe_undefined(column: Column, runs: Sequence[Run]) -> str:
    """Over how many clients a mean is, where some have no such score: who finds nothing has no precision."""
    scored = [rows for run in runs for seed in run.seeds if (rows := [row for row in seed.clients if row.test.metrics])]
    known = [sum(row.test.numbers.get(column.metric) is not None for row in rows) for rows in scored]
    if not any(known) or all(count == len(rows) for count, rows in zip(known, scored, strict=True)):
        return ""
    fewest, most = min(known), max(known)
    counts = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{metric_of(column.metric).title}: over the {counts} of {max(map(len, scored))} clients that have one."


def whose(mode: str) -> str:
    """Whose model a mode scores, in words."""
    return MODES.get(mode, mode)


def _column(name: str, base: Column, runs: Sequence[Run]) -> Column:
    view, _, metric = name.rpartition(".")
    if ALIASES.get(metric, metric) in AVERAGES or metric in MODES or metric in ALIASES:
        view, metric = name, "accuracy"  # `worst_client` is a score in result.json
    found = replace(_view(view, runs, base.target) if view else base, metric=metric)
    if metric in COURSE:
        if base.target is None:
            raise ConfigError(f"'{metric}' needs a validation accuracy to be reached: give a target, such as 0.8.")
        return found
    if metric in COSTS and not view and any(found.of(seed) is not None for run in runs for seed in run.seeds):
        return found
    scored = _find_metrics(runs, found)
    if metric not in scored:
        where = f" in the view '{found.view}'" if found.view else ""
        raise ConfigError(
            f"a test metric that the runs scored{where} was wanted, got '{name}': {nearest(metric, scored)}"
        )
    return found


def _view(text: str, runs: Sequence[Run], target: float | None) -> Column:
    found = Column("", target=target)
    modes, items = _collect_views(runs)
    for part in text.split("."):
        part = ALIASES.get(part, part)
        if part in AVERAGES:
            found = replace(found, average=part)
        elif part in modes:
            found = replace(found, mode=part)
        elif part in items:
            found = replace(found, items=part)
        elif part in MODES:
            raise ConfigError(
                f"no run was scored so: '{part}'. {_describe_modes(runs)} `evaluation.modes` of a run adds others."
            )
        else:
            choices = [*ALIASES, *AVERAGES, *MODES, *items]
            raise ConfigError(
                f"a view such as own, aggregate, pooled or worst was wanted, got '{part}': {nearest(part, choices)}"
            )
    return found


def _collect_views(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """Modes and kinds of items of all runs."""
    modes = dict.fromkeys(mode for run in runs for mode in run.modes)
    return list(modes), list(dict.fromkeys(kind for run in runs for seed in run.seeds for kind in seed.scenarios))


def _describe_modes(runs: Sequence[Run]) -> str:
    modes = join_words(f"'{mode}'" for mode in _collect_views(runs)[0])
    return f"The runs have {modes}."


def _find_metrics(runs: Sequence[Run], view: Column) -> list[str]:
    """Metrics of which any seed has a number in this view."""
    names = sort_metrics(name for run in runs for name in run.metrics())
    columns_ = {name: replace(view, metric=name) for name in names}
    return [
        name
        for name, column in columns_.items()
        if any(column.of(seed) is not None for run in runs for seed in run.seeds)
    ]
