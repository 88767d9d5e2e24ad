"""The section of periods: how good a model is as time goes on, and how often the class looked for occurs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage.records import Period, RunRecord
from graphsilo.report.formats import in_sentence, integer, mean, metric
from graphsilo.report.plot import Axis, Bars, Dots, Figure, Line, Mark, Plot, axis_title, present, short
from graphsilo.report.record import Run
from graphsilo.report.sections import Block

_FEW = 5
"""Items of the class looked for below which a period's score is chance."""
_SURE = 3.0
"""Standard errors by which later periods have to be worse for the page to say so: the worst of several places to divide
them is looked for."""
_CHANGED = 2.0
"""Times by which the share of the class differs between periods for average precision to be compared with care."""


def period_blocks(run: Run) -> list[Block]:
    """One sentence, and figures; nothing where periods were not scored."""
    periods = _periods_of(run.result)
    if len(periods) < 2:
        return []
    name = _metric_of(run, periods)
    values = _values(periods, name)
    if all(value is None for value in values):
        return []
    counts = [_count(each) for each in periods]
    text = f"{describe_fall([each[0].name for each in periods], values, counts, name)}{_describe_share(periods, name)}"
    return [("note", text), ("pair", present(_draw_scores(run, periods, name), _draw_share(periods)))]


def _periods_of(result: RunRecord | None) -> list[list[Period]]:
    """Each period as every seed has it."""
    found = [] if result is None else [seed.periods for seed in result.seeds if seed.periods]
    return [list(each) for each in zip(*found, strict=False)]


def _metric_of(run: Run, periods: Sequence[Sequence[Period]]) -> str:
    ranked = any(one.scores.get("ap") is not None for each in periods for one in each)
    return "ap" if ranked and periods[0][0].share is not None else run.main_metric


def _values(periods: Sequence[Sequence[Period]], name: str) -> list[float | None]:
    return [mean(one.scores.get(name) for one in each) for each in periods]


def _count(each: Sequence[Period]) -> float:
    """What a score rests on: items of the class looked for, where there is one, else items."""
    return float(each[0].items * (1.0 if each[0].share is None else each[0].share))


def describe_fall(
    names: Sequence[str], values: Sequence[float | None], counts: Sequence[float], name: str
) -> str:  # fmt: skip
    """When the score falls, in one sentence.

    Args:
        names: Of the periods, the first one first.
        values: Their scores.
        counts: What these rest on.
        name: Of the metric.
    """
    known = [place for place, value in enumerate(values) if value is not None and counts[place] > 0]
    y, w = np.array([values[place] for place in known], dtype=float), np.array([counts[place] for place in known])
    worse = -1 if metric_of(name).higher_is_better else 1
    best: tuple[float, int, float, float] | None = None
    for place in range(1, len(known)):
        before, after = (float(np.average(y[part], weights=w[part])) for part in (slice(place), slice(place, None)))
        rest = y - np.where(np.arange(len(y)) < place, before, after)
        spread = float(w @ rest**2) / max(len(y) - 2, 1)
        error = math.sqrt(spread * (1 / w[:place].sum() + 1 / w[place:].sum())) or 1e-12
        found = worse * (after - before) / error, place, before, after
        best = max(best or found, found)
    title, unit = in_sentence(name), " %" if metric_of(name).is_share else ""
    falls, lower = ("fall", "lower") if worse < 0 else ("rise", "higher")
    if best is None or len(known) < 4:
        return f"There are too few periods to say whether {title} {falls}s."
    if best[0] < _SURE:
        return f"{title[:1].upper()}{title[1:]} does not {falls} by more than it varies from period to period."
    return (
        f"From {names[known[best[1]]]} on {title} is {lower}: {metric(best[3], name)}{unit} on average, after "
        f"{metric(best[2], name)}{unit}."
    )


def _describe_share(periods: Sequence[Sequence[Period]], name: str) -> str:
    shares = [each[0].share for each in periods if each[0].share]
    if name != "ap" or not shares or max(shares) < _CHANGED * min(shares):
        return ""
    return (
        f" Average precision moves with the share of the class, too, which is {100 * min(shares):.2g} to "
        f"{100 * max(shares):.2g} %."
    )


def _draw_scores(run: Run, periods: Sequence[Sequence[Period]], name: str) -> Figure:
    names = tuple(each[0].name for each in periods)
    marks: list[Mark] = []
    is_few = False
    for series, (title, of) in enumerate({"together": periods, "alone": _periods_of(run.alone)}.items()):
        known = [(place, value) for place, value in enumerate(_values(of, name)) if value is not None]
        if not known:
            continue
        x, y = [float(place) for place, _ in known], [short(metric_of(name).factor * value) for _, value in known]
        marks.append(Line(title, x, y, series, series))
        for few in (False, True):
            rows = [row for row, (place, _) in enumerate(known) if (_count(of[place]) < _FEW) == few]
            is_few |= few and bool(rows)
            tips = [f"{title}, {names[known[row][0]]}: {y[row]:.1f}; {_items(of[known[row][0]][0])}" for row in rows]
            dots = Dots("", [x[row] for row in rows], [y[row] for row in rows], series, tips, small=True, hollow=few)
            marks += [dots] if rows else []
    note = f" Rings: fewer than {_FEW} items of the class, so that the score is chance." if is_few else ""
    return Figure(
        "period-scores", f"Test {in_sentence(name)} by period, mean over silos and seeds.{note}",
        f"Line chart of {in_sentence(name)} by period", 280,
        {name: Plot(Axis(names=names, thinned=True), Axis(axis_title(name)), tuple(marks))},
    )  # fmt: skip


def _items(period: Period) -> str:
    text = f"{integer(period.items)} items"
    return text if period.share is None else f"{text}, {integer(round(period.items * period.share))} of the class"


def _draw_share(periods: Sequence[Sequence[Period]]) -> Figure | None:
    if all(each[0].share is None for each in periods):
        return None
    names = tuple(each[0].name for each in periods)
    values = [None if each[0].share is None else short(100 * each[0].share) for each in periods]
    tips = [f"{names[place]}: {_items(each[0])}" for place, each in enumerate(periods)]
    bars = Bars(values, 5, tips, at=[float(place) for place in range(len(names))], width=0.7)
    return Figure(
        "period-shares", "Share of the class looked for among the test items of each period, all silos together.",
        "Bar chart of the share of the class by period", 280,
        {"share": Plot(Axis(names=names, thinned=True), Axis("Share of the class, %", low=0), (bars,))},
    )  # fmt: skip
