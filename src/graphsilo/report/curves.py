"""Figures along rounds and bytes: scores of one run, of several runs, and what a round costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphsilo.evaluate.metrics import metric_of, ordered
from graphsilo.experiments.storage.records import Seed
from graphsilo.report.formats import MODES, in_sentence, mean, words
from graphsilo.report.plot import (
    DASHES,
    HOVER,
    Figure,
    Plot,
    axis_title,
    colour,
    dash,
    layout_of,
    line_trace,
    plain,
    short,
    size_unit,
    spaced,
    symbol,
)
from graphsilo.report.record import Run

_POINTS = 400
_SEED_LINES = 10


def curves(run: Run) -> list[Figure]:
    """Validation and test scores by round and by megabytes sent, one choice per metric.

    Thin lines are seeds, the thick line is their mean over the rounds that all of them reached; diamonds mark the
    round that validation chose.
    """
    tracks = [_Track(seed) for seed in run.seeds]
    names = ordered(name for track in tracks for name in track.metrics)
    if not any(len(track.rounds) for track in tracks) or not names:
        return []
    if run.main_metric in names:
        names = [run.main_metric] + [name for name in names if name != run.main_metric]
    kinds = (
        ("rounds", "round", "By communication round. Thin lines are single seeds, thick lines their mean; diamonds "
         "mark the round that validation chose."),
        ("size", "cumulative megabytes", "By megabytes that crossed the silos' boundaries so far, both directions and "
         "all clients together, set-up included."),
    )  # fmt: skip
    chart = f"Line chart of validation and test {in_sentence(names[0])}"
    return [
        Figure(
            f"curve-{key}", caption, f"{chart} by {along}", 330,
            {name: _curve(tracks, name, by_size=key == "size") for name in names}, "curves",
        )
        for key, along, caption in kinds
    ]  # fmt: skip


def overlaid_curves(runs: Sequence[Run], labels: Sequence[str]) -> list[Figure]:
    """Mean test scores of several runs, by round and by megabytes; one choice per metric."""
    tracks = [[_Track(seed) for seed in run.seeds] for run in runs]
    names = ordered(name for group in tracks for track in group for name in track.metrics)
    figures = []
    for key, by_size, caption in (
        ("compare-rounds", False, "Test score by communication round, mean over seeds."),
        ("compare-size", True, "Test score by megabytes sent so far, both directions, set-up included."),
    ):
        plots = {}
        for name in names:
            data = []
            for position, (group, label) in enumerate(zip(tracks, labels, strict=True)):
                x, y = _mean_line(group, "test", name, by_size=by_size)
                if x:
                    style = {"color": colour(position), "dash": dash(position), "width": 2.2}
                    data.append(line_trace(x, y, label, style))
            if data:
                title = axis_title(name)
                layout = layout_of("MB sent and received", title) if by_size else _round_layout(title, data)
                plots[name] = {"data": data, "layout": layout}
        if plots:
            first = next(iter(plots))
            figures.append(
                Figure(key, caption, f"Line chart of test {in_sentence(first)} of all runs", 380, plots, "compare")
            )
    return figures


def trade_off(
    labels: Sequence[str], megabytes: Sequence[float | None], scores: Sequence[Any], name: str
) -> Figure | None:
    """Score against megabytes per run, deviations as whiskers; None with fewer than two complete pairs."""
    data = []
    for position, (label, size, score) in enumerate(zip(labels, megabytes, scores, strict=True)):
        if size is None or score is None:
            continue
        factor = metric_of(name).factor
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": [size],
                "y": [short(factor * score.mean)],
                "error_y": {
                    "type": "data",
                    "array": [short(factor * (score.std or 0))],
                    "color": colour(position),
                    "thickness": 1.2,
                },
                "marker": {"color": colour(position), "size": 11, "symbol": symbol(position)},
                "hovertemplate": f"%{{y:.1f}}, %{{x:,.2f}} MB<extra>{plain(label)}</extra>",
            }
        )
    if len(data) < 2:
        return None
    layout = layout_of("MB sent and received per seed", axis_title(name))
    positive = all(trace["x"][0] > 0 for trace in data)  # type: ignore[index]
    if positive and max(trace["x"][0] for trace in data) > 30 * min(trace["x"][0] for trace in data):  # type: ignore[index]
        layout["xaxis"] |= {"type": "log", "dtick": 1}
    return Figure(
        "trade-off",
        "Score against communication: up and to the left is better. Whiskers are one standard deviation over seeds.",
        f"Scatter of {in_sentence(name)} against megabytes per run",
        360,
        {name: {"data": data, "layout": layout}},
    )


_SECONDS = {"cpu_seconds": "processor", "server_cpu_seconds": "of it server", "wall_seconds": "clock"}


def round_cost(run: Run) -> list[Figure]:
    """Bytes and seconds of each round, mean over seeds."""
    rounds = _mean_rounds(run, ("upload_bytes", "download_bytes", *_SECONDS))
    figures = []
    sizes = [value for key in ("upload_bytes", "download_bytes") for value in rounds[key] if value]
    if sizes:
        factor, unit = size_unit(max(sizes))
        figures.append(
            Figure(
                "round-bytes",
                "Bytes per round, all clients together, mean over seeds.",
                "Line chart of bytes sent and received per round",
                260,
                {"bytes": _cost_plot(rounds, {"upload_bytes": "sent", "download_bytes": "received"}, factor, unit)},
            )
        )
    if any(value for key in _SECONDS for value in rounds[key]):
        figures.append(
            Figure(
                "round-seconds",
                "Seconds per round, mean over seeds: processor time of all, of it the server and scoring; "
                "and the clock.",
                "Line chart of processor and clock seconds per round",
                260,
                {"seconds": _cost_plot(rounds, _SECONDS, 1, "Seconds")},
            )
        )
    return figures


def server_work(run: Run) -> list[Figure]:
    """What the server noted along its long pieces of work in set-up, a figure for each, a line for each seed."""
    found: dict[str, dict[str, list[tuple[int, list[Any]]]]] = {}
    for seed in run.seeds:
        for work in seed.setup.works or ():
            for name, points in work.curves.items():
                found.setdefault(work.name, {}).setdefault(name, []).append((seed.seed, list(points)))
    figures = []
    for title, curves_of in found.items():
        plots = {}
        for name, lines in curves_of.items():
            data = []
            for position, (number, points) in enumerate(lines):
                style = {"color": colour(position), "dash": DASHES[position % len(DASHES)], "width": 2}
                y = [None if value is None else short(value) for _, value in points]
                data.append(line_trace([float(step) for step, _ in points], y, f"seed {number}", style, digits=3))
            plots[name] = {"data": data, "layout": layout_of("Step", words(name))}
        figures.append(
            Figure(
                f"work-{title}",
                f"The server's work in set-up ({title}), step by step.",
                f"Line chart of the server's {title} along its steps",
                260,
                plots,
            )
        )
    return figures


class _Track:
    """Scores and cumulative bytes of one seed along its rounds."""

    def __init__(self, seed: Seed) -> None:
        rows = seed.rounds
        picked = spaced(len(rows), _POINTS)
        self.rows = [rows[i] for i in picked]
        self.rounds = [row.round for row in self.rows]
        self.best, self.seed = seed.best_round, seed.seed
        self.metrics = ordered(
            name
            for row in self.rows
            for group in ("test", "validation")
            for name, value in row.curve(group).items()
            if value is not None
        )
        each = [row.upload_bytes + row.download_bytes for row in rows]
        start = seed.setup.upload_bytes + seed.setup.download_bytes
        self.size: list[float] = ((start + np.cumsum(each)) / 1e6)[picked].tolist() if rows else []

    def line(self, group: str, name: str, mode: str | None = None) -> dict[int, float]:
        """Score by round, where it was recorded; of the reported mode or another."""
        values = zip(self.rounds, (row.curve(group, mode).get(name) for row in self.rows), strict=True)
        return {when: score for when, score in values if score is not None}

    def sizes(self) -> dict[int, float]:
        """Megabytes so far by round."""
        return dict(zip(self.rounds, self.size, strict=True))


def _curve(tracks: Sequence[_Track], name: str, *, by_size: bool) -> Plot:
    factor = metric_of(name).factor
    data: list[Plot] = []
    for position, group in enumerate(("validation", "test")):
        style = {"color": colour(position), "dash": "dash" if group == "validation" else "solid"}
        if len(tracks) > 1:
            for track in tracks[:_SEED_LINES]:
                x, y = _mean_line([track], group, name, by_size=by_size)
                if x:
                    thin = line_trace(x, y, f"{group}, seed {track.seed}", {**style, "dash": "solid", "width": 1})
                    data.append(
                        thin | {"opacity": 0.45, "hoverinfo": "skip", "showlegend": False, "legendgroup": group}
                    )
        x, y = _mean_line(tracks, group, name, by_size=by_size)
        if x:
            data.append(line_trace(x, y, words(group), {**style, "width": 2.4}) | {"legendgroup": group})
    modes = dict.fromkeys(mode for track in tracks for row in track.rows for mode in row.modes or {})
    for position, mode in enumerate(modes, start=2):
        x, y = _mean_line(tracks, "test", name, by_size=by_size, mode=mode)
        if x:
            dotted: Plot = {"color": colour(position), "dash": "dot", "width": 1.8}
            data.append(line_trace(x, y, f"Test, {MODES.get(mode, words(mode))}", dotted))
    chosen: list[tuple[float, float]] = []
    for track in tracks:
        line, sizes = track.line("test", name), track.sizes()
        if track.best in line:
            where = sizes[track.best] if by_size else track.best
            chosen.append((where, short(factor * line[track.best])))
    if chosen:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "chosen round",
                "x": [short(x) for x, _ in chosen],
                "y": [y for _, y in chosen],
                "marker": {
                    "symbol": "diamond",
                    "size": 9,
                    "color": colour(1),
                    "line": {"color": HOVER, "width": 1.2},
                },
                "hovertemplate": "%{y:.1f} at %{x}<extra>chosen round</extra>",
            }
        )
    layout = layout_of("MB sent and received", axis_title(name)) if by_size else _round_layout(axis_title(name), data)
    return {"data": data, "layout": layout}


def _mean_line(
    tracks: Sequence[_Track], group: str, name: str, *, by_size: bool, mode: str | None = None
) -> tuple[list[float], list[float]]:
    """Mean over the seeds that recorded the score, at the rounds that all of these reached."""
    lines = [(line, track.sizes()) for track in tracks if (line := track.line(group, name, mode))]
    if not lines:
        return [], []
    common = sorted(set.intersection(*(set(line) for line, _ in lines)))
    factor = metric_of(name).factor
    y = [short(factor * float(np.mean([line[when] for line, _ in lines]))) for when in common]
    if not by_size:
        return [float(when) for when in common], y
    return [short(float(np.mean([sizes[when] for _, sizes in lines]))) for when in common], y


def _mean_rounds(run: Run, keys: Iterable[str]) -> dict[str, list[Any]]:
    seeds = [{row.round: row for row in seed.rounds} for seed in run.seeds]
    common: list[int] = sorted(set.intersection(*(set(rows) for rows in seeds)))
    common = [common[place] for place in spaced(len(common), _POINTS)]
    return {
        "round": common,
        **{key: [mean(getattr(rows[when], key) for rows in seeds) for when in common] for key in keys},
    }


def _cost_plot(rounds: Mapping[str, list[Any]], series: Mapping[str, str], factor: float, unit: str) -> Plot:
    data = []
    for position, (key, title) in enumerate(series.items()):
        if any(value is not None for value in rounds[key]):
            y = [None if value is None else short(value / factor) for value in rounds[key]]
            style = {"color": colour(position), "dash": DASHES[position], "width": 2}
            data.append(line_trace(rounds["round"], y, title, style, digits=3))
    layout = _round_layout(unit, data)
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def _round_layout(y_title: str, data: Sequence[Plot]) -> Plot:
    """A layout over rounds; few rounds get a tick each, for there is no round 1.5."""
    layout = layout_of("Round", y_title)
    if max((x for trace in data for x in trace["x"]), default=0) <= 12:
        layout["xaxis"]["dtick"] = 1
    return layout
