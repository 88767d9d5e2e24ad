"""Figures along rounds and bytes: scores of one run, of several runs, and what a round costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphsilo.evaluate.metrics import metric_of, sort_metrics
from graphsilo.experiments.storage.records import Seed
from graphsilo.report.formats import MODES, in_sentence, join_words, mean, when_scored, words
from graphsilo.report.plot import METRIC, Axis, Dots, Figure, Line, Mark, Plot, axis_title, short, size_unit, thin
from graphsilo.report.record import Run

_POINTS = 200
_EVEN = 0.02
"""Largest part by which the bytes of rounds may differ for megabytes to say no more than rounds do."""

_SILO = "silo_"
"""Modes of which each silo has its own."""

_Band = tuple[list[float], list[float], list[float], list[float]]
"""x, mean, and the edges of one standard deviation to each side; these are empty with one seed."""


def curves(run: Run) -> list[Figure]:
    """Validation and test scores by round, and by megabytes where rounds differ in these; one choice per metric.

    Lines are of the reported model, means over the seeds at the rounds that all of them reached, bands one standard
    deviation to each side; dots mark the rounds that validation chose. Other models have a test line each.
    """
    tracks = [_Track(seed) for seed in run.seeds]
    names = sort_metrics(name for track in tracks for name in track.metrics)
    if max((len(track.rounds) for track in tracks), default=0) < 2 or not names:
        return []
    if run.main_metric in names:
        names = [run.main_metric] + [name for name in names if name != run.main_metric]
    band = "; bands: one standard deviation over seeds to each side" if len(tracks) > 1 else ""
    dots = when_scored(run.seeds, "rounds").removeprefix("at ")
    kinds = [("rounds", "round", f"By communication round, mean over seeds{band}. {_say_whose(run, tracks, dots)}")]
    if not all(track.is_even for track in tracks):
        kinds.append(("size", "cumulative megabytes", "By megabytes that crossed the silos' boundaries so far, both "
                      "directions and all clients together, set-up included."))  # fmt: skip
    return [
        Figure(
            f"curve-{key}", caption, f"Line chart of validation and test {METRIC} by {along}", 330,
            {name: _curve(tracks, name, by_size=key == "size") for name in names}, "curves",
        )
        for key, along, caption in kinds
    ]  # fmt: skip


def overlaid_curves(runs: Sequence[Run], labels: Sequence[str], mode: str | None = None) -> list[Figure]:
    """Mean test scores of several runs, by round and by megabytes; one choice per metric.

    Args:
        runs, labels: What is drawn.
        mode: Whose model; None takes what each run reports.
    """
    tracks = [[_Track(seed, mode) for seed in run.seeds] for run in runs]
    names = sort_metrics(name for group in tracks for track in group for name in track.metrics)
    band = "; bands: one standard deviation to each side" if any(len(group) > 1 for group in tracks) else ""
    chosen = when_scored((seed for run in runs for seed in run.seeds), "rounds").removeprefix("at ")
    lacking = [label for group, label in zip(tracks, labels, strict=True) if not any(track.is_drawn for track in group)]
    without = f" Without {join_words(lacking)}: what is reported there is not scored by round." if lacking else ""
    caption = f"Test score of the model in the table by communication round, mean over seeds{band}. Rings: {chosen}."
    kinds = [("compare-rounds", False, caption + without)]
    costs = [track.per_round for group in tracks for track in group]
    if not all(track.is_even for group in tracks for track in group) or max(costs) > (1 + _EVEN) * min(costs):
        kinds.append(("compare-size", True, "Test score by megabytes sent so far, both directions, set-up included."))
    figures = []
    for key, by_size, caption in kinds:
        plots = {}
        for name in names:
            lines: list[Mark] = []
            rings: list[Mark] = []
            for position, (group, label) in enumerate(zip(tracks, labels, strict=True)):
                x, y, low, high = _mean_line(group, "test", name, by_size=by_size)
                if x:
                    lines.append(Line(label, x, y, position, position % 4, low, high))
                if len(x) > 1:
                    rings += _chosen(group, name, position, by_size=by_size, label=f"{label}, ", hollow=True)
            if lines:
                x_axis = Axis("MB sent and received") if by_size else Axis("Round", whole=True)
                plots[name] = Plot(x_axis, Axis(axis_title(name)), (*lines, *rings))
        if plots:
            figures.append(Figure(key, caption, f"Line chart of test {METRIC} of all runs", 380, plots, "compare"))
    return figures


def trade_off(
    labels: Sequence[str], megabytes: Sequence[float | None], scores: Sequence[Any], name: str
) -> Figure | None:
    """Score against megabytes per run, where runs differ in these; None with fewer than two complete pairs."""
    known = [
        (position, label, size, score)
        for position, (label, size, score) in enumerate(zip(labels, megabytes, scores, strict=True))
        if size is not None and score is not None
    ]
    sizes = [size for _, _, size, _ in known]
    if len(known) < 2 or max(sizes) <= (1 + _EVEN) * min(sizes):
        return None
    factor = metric_of(name).factor
    dots = []
    for position, label, size, score in known:
        y, wide = factor * score.mean, factor * (score.std or 0)
        dots.append(Dots("", [size], [short(y)], position, [f"{label}: {y:.1f}, {size:,.2f} MB"],
                         [(short(y - wide), short(y + wide))], [label]))  # fmt: skip
    log = min(sizes) > 0 and max(sizes) > 30 * min(sizes)
    band = " Lines: one standard deviation over seeds to each side." if any(score.std for *_, score in known) else ""
    return Figure(
        "trade-off",
        f"Score against communication: up and to the left is better.{band}",
        f"Scatter of {in_sentence(name)} against megabytes per run",
        360,
        {name: Plot(Axis("MB sent and received per seed", log=log), Axis(axis_title(name)), tuple(dots))},
    )


_SECONDS = {"cpu_seconds": "processor", "server_cpu_seconds": "of it server", "wall_seconds": "clock"}


def round_cost(run: Run) -> list[Figure]:
    """Bytes of each round where these vary, and seconds, mean over seeds."""
    rounds = _mean_rounds(run, ("upload_bytes", "download_bytes", *_SECONDS))
    if len(rounds["round"]) < 2:
        return []
    figures = []
    sizes = [value for key in ("upload_bytes", "download_bytes") for value in rounds[key] if value]
    if sizes and any(_varies(rounds[key]) for key in ("upload_bytes", "download_bytes")):
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
            marks = tuple(
                Line(
                    f"seed {number}",
                    [float(step) for step, _ in points],
                    [None if value is None else short(value) for _, value in points],
                    position,
                    position % 4,
                )
                for position, (number, points) in enumerate(lines)
            )
            plots[name] = Plot(Axis("Step", whole=True), Axis(words(name)), marks)
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


def _say_whose(run: Run, tracks: Sequence[_Track], dots: str) -> str:
    """Whose model the lines are, where there is more than one; and what the dots are."""
    reported = MODES.get(run.reported, run.reported)
    if not all(track.is_drawn for track in tracks):
        return f"Reported: {reported}; that choice is scored at the chosen round alone and has no line."
    if run.reported.startswith(_SILO):
        return f"Validation and test: {reported} by then. What is reported is of these models' best rounds."
    whose = f"Validation and test: {reported}. " if len(run.modes) > 1 else ""
    return f"{whose}Dots: {dots}."


class _Track:
    """Scores and cumulative bytes of one seed along its rounds, of the reported mode or the one that is given."""

    def __init__(self, seed: Seed, mode: str | None = None) -> None:
        rows = seed.rounds
        picked = thin(len(rows), _POINTS)
        self.rows = [rows[i] for i in picked]
        self.rounds = [row.round for row in self.rows]
        self.mode, self.seed, self._of = mode or seed.mode, seed.seed, seed
        self.best = seed.best_round if mode is None or mode not in seed.modes else seed.modes[mode].best_round
        if self.mode.startswith(_SILO):  # several rounds together are no dot of the line
            self.best = 0
        # A round's own scores are of the first mode
        self.modes = list(
            dict.fromkeys([next(iter(seed.modes), ""), *(key for row in rows for key in row.modes or {})])
        )
        self.is_drawn = self.mode in self.modes
        self.metrics = sort_metrics(
            name
            for row in self.rows
            for group in ("test", "validation")
            for each in self.modes
            for name, value in seed.curve(row, group, each).items()
            if value is not None
        )
        each = [row.upload_bytes + row.download_bytes for row in rows]
        start = seed.setup.upload_bytes + seed.setup.download_bytes
        self.size: list[float] = ((start + np.cumsum(each)) / 1e6)[picked].tolist() if rows else []
        self.per_round = sum(each) / max(1, len(each))
        # Where every round costs the same and set-up nothing to speak of, bytes are rounds in another unit
        self.is_even = not _varies(each) and start <= max(self.per_round, 1)

    def line(self, group: str, name: str, mode: str | None = None) -> dict[int, float]:
        """Score by round, where it was recorded; of the track's mode or another."""
        wanted = mode or self.mode
        if wanted not in self.modes:
            return {}
        values = zip(self.rounds, (self._of.curve(row, group, wanted).get(name) for row in self.rows), strict=True)
        return {when: score for when, score in values if score is not None}

    def sizes(self) -> dict[int, float]:
        """Megabytes so far by round."""
        return dict(zip(self.rounds, self.size, strict=True))


def _varies(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and max(known) - min(known) > _EVEN * max(known)


def _curve(tracks: Sequence[_Track], name: str, *, by_size: bool) -> Plot:
    marks: list[Mark] = []
    for position, group in enumerate(("validation", "test")):
        x, y, low, high = _mean_line(tracks, group, name, by_size=by_size)
        if x:
            dash = int(group == "validation")
            marks.append(Line(words(group), x, y, position, dash, low, high))
    modes = dict.fromkeys(mode for track in tracks for mode in track.modes)
    others = [mode for mode in modes if any(track.mode != mode for track in tracks)]
    for position, mode in enumerate(others, start=2):
        x, y, *_ = _mean_line(tracks, "test", name, by_size=by_size, mode=mode)
        if x:
            marks.append(Line(f"Test, {MODES.get(mode, words(mode))}", x, y, position, 2))
    marks += _chosen(tracks, name, 1, by_size=by_size)
    x_axis = Axis("MB sent and received") if by_size else Axis("Round", whole=True)
    return Plot(x_axis, Axis(axis_title(name)), tuple(marks))


def _chosen(
    tracks: Sequence[_Track], name: str, series: int, *, by_size: bool, label: str = "", hollow: bool = False
) -> list[Mark]:
    """A dot at the round that validation chose in each seed."""
    found: list[tuple[float, float, int]] = []
    for track in tracks:
        line, sizes = track.line("test", name), track.sizes()
        if track.best in line:
            where = sizes[track.best] if by_size else track.best
            found.append((where, short(metric_of(name).factor * line[track.best]), track.seed))
    tips = [f"{label}seed {seed}: {y:.1f} at the chosen round" for _, y, seed in found]
    return (
        [Dots("", [short(x) for x, *_ in found], [y for _, y, _ in found], series, tips, hollow=hollow)]
        if found
        else []
    )


def _mean_line(tracks: Sequence[_Track], group: str, name: str, *, by_size: bool, mode: str | None = None) -> _Band:
    """Mean over the seeds that recorded the score, at the rounds that all of these reached, and its band."""
    lines = [(line, track.sizes()) for track in tracks if (line := track.line(group, name, mode))]
    if not lines:
        return [], [], [], []
    common = sorted(set.intersection(*(set(line) for line, _ in lines)))
    values = metric_of(name).factor * np.array([[line[when] for line, _ in lines] for when in common]).reshape(
        len(common), len(lines)
    )
    middle = values.mean(axis=1)
    wide = values.std(axis=1, ddof=1) if len(lines) > 1 else None
    edges = ([], []) if wide is None else (_short(middle - wide), _short(middle + wide))
    at: Callable[[int], float] = float
    if by_size:
        at = lambda when: short(float(np.mean([sizes[when] for _, sizes in lines])))  # noqa: E731
    return [at(when) for when in common], _short(middle), *edges


def _short(values: Any) -> list[float]:
    return [short(value) for value in values.tolist()]


def _mean_rounds(run: Run, keys: Iterable[str]) -> dict[str, list[Any]]:
    seeds = [{row.round: row for row in seed.rounds} for seed in run.seeds]
    common: list[int] = sorted(set.intersection(*(set(rows) for rows in seeds)))
    common = [common[place] for place in thin(len(common), _POINTS)]
    return {
        "round": common,
        **{key: [mean(getattr(rows[when], key) for rows in seeds) for when in common] for key in keys},
    }


def _cost_plot(rounds: Mapping[str, list[Any]], series: Mapping[str, str], factor: float, unit: str) -> Plot:
    lines = [
        Line(title, rounds["round"], [None if value is None else short(value / factor) for value in rounds[key]],
             position, position)
        for position, (key, title) in enumerate(series.items())
        if any(value is not None for value in rounds[key])
    ]  # fmt: skip
    return Plot(Axis("Round", whole=True), Axis(unit, low=0.0), tuple(lines))
