"""Runs side by side: the finding in a sentence, differences with their intervals, and every client under every run."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.evaluate.metrics import metric_of, select_main
from graphsilo.report.finding import interval, points, unit_of
from graphsilo.report.formats import in_sentence, mean, metric
from graphsilo.report.plot import Axis, Dots, Figure, Plot, short
from graphsilo.report.record import Run
from graphsilo.report.tables import Comparison

MOST_CLIENTS = 40
"""Above this, a row for each client is no figure any more."""
_METRICS = 3


def sentence(table: Comparison) -> str:
    """Who leads, by how much, and how certain that is; empty where there is nobody to compare with."""
    name = table.metrics[0] if table.metrics else ""
    if not name or name not in table.against or len(table.rows) < 2:
        return ""
    each = metric_of(name)
    place = table.against[name]
    against = table.rows[place]
    scored = [
        (score.mean, other, table.differences[name][other])
        for other, row in enumerate(table.rows)
        if other != place and (score := row.scores.get(name)) is not None
    ]
    mine = against.scores.get(name)
    if not scored or mine is None:
        return ""
    _, other, item = (max if each.higher_is_better else min)(scored, key=lambda found: found[0])
    rival = table.rows[other].label
    reached = f"{metric(mine.mean, name)}{' %' if each.is_share else ''} {in_sentence(name)}"
    if item is None or item.paired.difference is None:
        return f"{against.label} reaches {reached}; no seed is common with {rival}."
    # Differences are those of the others from this one
    ahead = -item.paired.difference
    way = "more" if ahead >= 0 else "less"
    text = (
        f"{against.label} reaches {reached}, {points(abs(ahead), name).lstrip('+')}{unit_of(name)} {way} than {rival}"
    )
    text += interval(item.paired, name, flip=True)
    p = item.adjusted_p
    if item.verdict == "too few seeds":
        return f"{text}. There are too few seeds to tell this from chance by a test."
    shown = "" if p is None else f" (sign-flip p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}, corrected)"
    if item.verdict == "no difference shown":
        return f"{text}. No difference is shown{shown}."
    return f"{text}. That is more than chance explains{shown}."


def differences(table: Comparison) -> Figure | None:
    """How far every run is from the one that it is tested against, with its interval; one choice per metric."""
    plots = {}
    for name in table.metrics:
        if name not in table.against:
            continue
        rows = [
            (row.label, item.paired)
            for row, item in zip(table.rows, table.differences.get(name, ()), strict=False)
            if item is not None and item.paired.difference is not None
        ]
        if not rows:
            continue
        factor = metric_of(name).factor
        values = [short(factor * (paired.difference or 0.0)) for _, paired in rows]
        reach = [
            (value, value)
            if paired.ci_low is None or paired.ci_high is None
            else (short(factor * paired.ci_low), short(factor * paired.ci_high))
            for value, (_, paired) in zip(values, rows, strict=True)
        ]
        tips = [f"{label}: {points(paired.difference or 0.0, name)}{interval(paired, name)}" for label, paired in rows]
        dots = Dots("", values, list(range(len(rows))), 0, tips, reach)
        ends = [edge for edges in reach for edge in edges]
        pad = 0.06 * (max(*ends, 0.0) - min(*ends, 0.0)) or 1.0
        x = Axis(
            f"Difference in {in_sentence(name)}{', points' if metric_of(name).is_share else ''}",
            low=min(*ends, 0.0) - pad,
            high=max(*ends, 0.0) + pad,
        )
        plots[name] = Plot(x, Axis(names=tuple(label for label, _ in rows)), (dots,))
    if not plots:
        return None
    rows_drawn = max(len(plot.y.names) for plot in plots.values())
    bases = {table.rows[table.against[name]].label for name in plots}
    base = f"'{bases.pop()}'" if len(bases) == 1 else "the best of each metric"
    return Figure(
        "differences-drawn",
        f"Difference from {base}, seed by seed; lines: 95 % interval of the mean over seeds (Student's t). A line that "
        "crosses 0 may be chance.",
        f"Differences of {rows_drawn} runs from {base}, with intervals",
        90 + 26 * rows_drawn,
        plots,
        "differences",
    )


def clients(runs: Sequence[Run], labels: Sequence[str]) -> Figure | None:
    """Every client's score under every run, where the runs have the same clients; one choice per metric."""
    each = [_by_client(run) for run in runs]
    common = set.intersection(*(set(found) for found in each)) if each else set()
    if len(runs) < 2 or not 2 <= len(common) <= MOST_CLIENTS or any(set(found) != common for found in each):
        return None
    names = select_main(name for found in each for scores in found.values() for name in scores)[:_METRICS]
    called, plots = runs[0].names, {}
    for name in names:
        factor = metric_of(name).factor
        middle = {who: mean(found[who].get(name) for found in each) for who in common}
        order = sorted((who for who in common if middle[who] is not None), key=lambda who: (-(middle[who] or 0.0), who))
        marks = []
        for series, (label, found) in enumerate(zip(labels, each, strict=True)):
            known = [
                (place, short(factor * value))
                for place, who in enumerate(order)
                if (value := found[who].get(name)) is not None
            ]
            tips = [f"{called.title(order[place])}, {label}: {value:.1f}" for place, value in known]
            marks.append(Dots(label, [value for _, value in known], [place for place, _ in known], series, tips,
                              hollow=series % 2 == 1))  # fmt: skip
        if order:
            title = f"{metric_of(name).title}{', %' if metric_of(name).is_share else ''}"
            plots[name] = Plot(Axis(title), Axis(names=tuple(map(called.title, order))), tuple(marks))
    if not plots:
        return None
    return Figure(
        "compare-clients",
        "Every client's own test score under every run, mean over seeds; the best served first.",
        f"Scores of {len(common)} clients under {len(runs)} runs",
        80 + 22 * len(common) + 18 * len(runs),
        plots,
        "compare-clients",
    )


def _by_client(run: Run) -> dict[int, dict[str, float]]:
    """Client to metric to its mean over seeds."""
    found: dict[int, dict[str, list[float]]] = {}
    for seed in run.seeds:
        for row in seed.clients:
            for name, value in row.test.numbers.items():
                if value is not None:
                    found.setdefault(row.client, {}).setdefault(name, []).append(value)
    return {who: {name: sum(values) / len(values) for name, values in scores.items()} for who, scores in found.items()}
