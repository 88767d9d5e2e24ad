"""What came of sweeps: curves and heat maps over settings with the points that validation chose, a table, and CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.errors import RunError, one_line
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage import disk
from graphsilo.experiments.sweep import Sweep, carry_out, short_name
from graphsilo.notebook import table as notebook_table
from graphsilo.report.curves import overlaid_curves, trade_off
from graphsilo.report.figures import label_map, per_class
from graphsilo.report.formats import (
    Spread,
    cost_texts,
    explain_references,
    in_sentence,
    join_words,
    many,
    metric,
    number,
    plus_minus,
    reference_title,
    spread,
    with_unit,
)
from graphsilo.report.html import page
from graphsilo.report.plot import METRIC, SERIES, Axis, Dots, Figure, Heat, Line, Mark, Plot, axis_title, present, short
from graphsilo.report.record import Run, load
from graphsilo.report.run_page import f1_of_classes, study_of
from graphsilo.report.sections import Block, Page, Section, Table, pair_figures, warn_of
from graphsilo.report.tables import reference_spread
from graphsilo.report.views import Column, columns, titles, whose
from graphsilo.report.views import sentence as scored_sentence
from graphsilo.settings.words import format_value
from graphsilo.spreadsheets import csv_text

_MEGABYTES = "MB sent and received"
WIDE = 30
"""From so many times the smallest value on, an axis has steps of equal factors."""
_FAR = "Where such a row is far from all points, it stands in the table alone."
_DIGITS = 1
"""Decimals in the cells of a heat map."""
_MOST = 4
"""Choices that the sentence at the top names; the table has all."""


@dataclass(frozen=True)
class Row:
    """A point of a grid that was run.

    Attributes:
        series: Which; a method, or a variant of one.
        values: By setting.
        validation: Score that points are chosen by.
        scores: Test scores, by name of the column.
        references: Title of a reference row to its test scores.
        chosen: Whether validation chose it among the values of its methods' and models' settings.
        run: Its run; ``run.path`` is the folder.
    """

    series: str
    values: dict[str, Any]
    validation: Spread | None
    scores: dict[str, Spread | None]
    references: dict[str, dict[str, Spread | None]]
    chosen: bool
    run: Run

    @property
    def label(self) -> str:
        """Its values in words; its series where nothing is swept."""
        return (
            ", ".join(f"{short_name(name)} {format_value(value)}" for name, value in self.values.items()) or self.series
        )


@dataclass(frozen=True)
class Found:
    """A sweep, as far as it was run.

    Attributes:
        sweep: What was asked for.
        shown: The scores that are drawn.
        rows: One for each point that has a result.
    """

    sweep: Sweep
    shown: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def series(self) -> list[str]:
        """Names of the series, in order."""
        return list(dict.fromkeys(row.series for row in self.rows))

    @property
    def main(self) -> str:
        """The score that stands first."""
        return self.shown[0].name

    @property
    def has_spread(self) -> bool:
        """Whether there are several seeds."""
        return any(score is not None and score.std is not None for row in self.rows for score in row.scores.values())

    def of(self, series: str) -> list[Row]:
        """The rows of a series."""
        return [row for row in self.rows if row.series == series]

    def label(self, row: Row) -> str:
        """A row in words, with its series where there are several."""
        return f"{row.series}, {row.label}" if len(self.series) > 1 and row.values else row.label


@dataclass(frozen=True, repr=False)
class Swept:
    """What came of sweeps.

    Attributes:
        found: One for each sweep that has a finished run.
        files: The page and the CSV.
        failed: Name of a point to why there is no result of it.
        out: Folder of everything.
    """

    found: tuple[Found, ...]
    files: tuple[Path, ...]
    failed: dict[str, str]
    out: Path

    @property
    def rows(self) -> list[Row]:
        """Every point that was run."""
        return [row for each in self.found for row in each.rows]

    @property
    def complaint(self) -> str:
        """What is said where points failed, in a paragraph."""
        name, error = next(iter(self.failed.items()))
        many = f"{len(self.failed)} of {len(self.failed) + len(self.rows)} points failed"
        return f"{many}; the same command tries again. First: {name}: {error}"

    def __repr__(self) -> str:
        failed = f"; {len(self.failed)} failed" if self.failed else ""
        return f"Swept({self.out}: {len(self.rows)} points{failed}; {' '.join(map(sentence, self.found))})"

    def _repr_html_(self) -> str:
        return "".join(notebook_table(each.sweep.title, *cells(each), [sentence(each)]) for each in self.found)


def sweep(
    sweeps: Sequence[Sweep],
    out: Path,
    executor: str | None = None,
    *,
    title: str = "",
    name: str = "sweep",
    notes: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    follow: Callable[[], None] | None = None,
) -> Swept:
    """Make the runs that are not made, and draw and write what came of all: a page and CSV.

    Args:
        sweeps: Which points.
        out: Folder of the page.
        executor, follow: As ``batch.run`` takes them.
        title: Heading of the page; one is made of the settings where it is empty.
        name: Of the files, without an ending.
        notes: Sentences below the heading.
        say: Called with a line for every run that ends.

    Raises:
        GraphsiloError: As ``carry_out``, before anything is run.
        RunError: A file cannot be written, or every run failed.
    """
    failed: dict[str, str] = {}
    total = sum(len(each.points) for each in sweeps)
    for count, (point, outcome) in enumerate(carry_out(sweeps, executor, follow=follow), start=1):
        if outcome.error is not None:
            failed[point.name] = outcome.error
        say(f"{count} of {total}: {point.name}: {outcome.error or 'done'}")
    found = tuple(each for one in sweeps if (each := read(one, failed)).rows)
    swept = Swept(found, (), failed, out)
    if not found:
        raise RunError(swept.complaint)
    texts = {"html": page(describe(found, title, notes, failed)), "csv": to_csv(found)}
    files = tuple(out / f"{name}.{ending}" for ending in texts)
    for path, text in zip(files, texts.values(), strict=True):
        disk.write_text(path, text)
    return Swept(found, files, failed, out)


def read(sweep: Sweep, failed: Collection[str] = ()) -> Found:
    """The finished runs of a sweep, whoever made them, but for those of points that failed now."""
    done = [
        (each, load(each.out, with_ledger=False)) for each in sweep.points if each.is_done and each.name not in failed
    ]
    shown = columns([run for _, run in done], sweep.metrics) if done else ()
    rows = []
    for point, run in done:
        validation = run.spread(run.main_metric, lambda seed: seed.validation)
        scores = {each.name: spread(each.of(seed) for seed in run.seeds) for each in shown}
        references = {
            reference_title(key, run.result.method.title): {
                each.name: reference_spread(run, key, each.metric, each.items) for each in shown
            }
            for key in run.result.reference_rows
        }
        rows.append(Row(point.series, point.values, validation, scores, references, False, run))
    questions: dict[str, list[int]] = {}  # to which settings of methods and models are the answers
    for place, row in enumerate(rows):
        fixed = {name: value for name, value in row.values.items() if name not in sweep.chosen_by_validation}
        if row.validation is not None and len(fixed) < len(row.values):
            questions.setdefault(repr((row.series, fixed)), []).append(place)
    for places in questions.values():
        best = max(places, key=lambda place: _goodness(rows[place]))
        rows[best] = replace(rows[best], chosen=True)
    return Found(sweep, shown, tuple(rows))


def _goodness(row: Row) -> float:
    """By validation."""
    return -math.inf if row.validation is None else metric_of(row.run.main_metric).goodness(row.validation.mean)


# -- words -----------------------------------------------------------------------------------------------------------


def sentence(found: Found) -> str:
    """What validation chose and what that reaches, and how far scores go over the points."""
    name, chosen = found.main, [row for row in found.rows if row.chosen]
    scored = sorted(score.mean for row in found.rows if (score := row.scores[name]) is not None)
    if not scored:
        return ""
    if len(scored) > 1 and len({str(row.scores) for row in found.rows}) == 1:
        return "All points have the same numbers: what was swept makes no difference to them."
    unit, view = " %" if metric_of(name).is_share else "", found.shown[0].words
    what = f"{'test ' if found.shown[0].is_score else ''}{in_sentence(name)}{f' ({view})' if view else ''}"
    said = "; ".join(f"{found.label(row)} ({what} {with_unit(row.scores[name], name)})" for row in chosen[:_MOST])
    more = f"; and {len(chosen) - _MOST} more" if len(chosen) > _MOST else ""
    way = f"{what[:1].upper()}{what[1:]}: from {metric(scored[0], name)} to {metric(scored[-1], name)}{unit}."
    if len(scored) == 1:
        way = f"{what[:1].upper()}{what[1:]}: {metric(scored[0], name)}{unit}."
    elif deviations := [score.std for row in found.rows if (score := row.scores[name]) and score.std is not None]:
        way += f" Seeds alone move it by up to ± {metric(max(deviations), name)}."
    return f"Validation chose {said}{more}. {way}" if chosen else way


def describe(found: Sequence[Found], title: str, notes: Sequence[str], failed: Mapping[str, str]) -> Page:
    """Everything that the page shows."""
    first = found[0]
    swept = " and ".join(map(short_name, first.sweep.grid)) or "name"
    data = ", ".join(dict.fromkeys(row.run.result.data.name for each in found for row in each.rows))
    sections = []
    # Of a study no score is the finding
    sentences = ["" if each.sweep.shows == "study" else sentence(each) for each in found]
    for place, each in enumerate(found):
        group = f"sweep-{place}"
        keys = dict.fromkeys(key for row in each.rows for key in row.run.result.reference_rows)
        explained = explain_references(keys)
        drawn = [] if each.sweep.shows == "study" else [*figures(each, group), *_beside(each, group)]
        blocks: list[Block] = [("plain", sentences[place] if len(found) > 1 else ""), *_shown(each)]
        blocks += [*pair_figures(group, drawn), ("table", _table(each)), ("note", explained and f"{explained} {_FAR}")]
        sections.append(Section(group, each.sweep.title or "Scores", blocks, each.sweep.title))
    seeds = {len(row.run.seeds) for each in found for row in each.rows}
    alone = "One seed: nothing says how much of a difference is chance." if seeds == {1} else ""
    held = _describe_common([row.run for each in found for row in each.rows])
    lede = [("finding", sentences[0] if len(found) == 1 else ""), *(("lede", text) for text in (*notes, held, alone))]
    notices = [warn_of([f"{name}: {one_line(error)}" for name, error in failed.items()])]
    title = title or f"{join_words(first.series)} by {swept} on {data}"
    return Page(title, "graphsilo sweep", lede, sections, notices=notices)


def _describe_common(runs: Sequence[Run]) -> str:
    """How the data was cut, networks, rounds and seeds, as far as all runs have them in common."""
    parts: list[Callable[[Run], str]] = [
        lambda run: run.result.data.name,
        lambda run: f"cut by {run.result.partition.rule}",
        lambda run: many(run.result.partition.clients, "client"),
        lambda run: f"scenario {run.result.config['scenario']['name']}",
        lambda run: _network(run.result.config["model"]) if run.result.method.backbone else "",
        lambda run: many(run.result.method.rounds, "round"),
        lambda run: f"seeds {', '.join(map(str, run.seed_names))}",
    ]
    common = [texts.pop() for part in parts if len(texts := {part(run) for run in runs}) == 1]
    return f"All points: {'; '.join(filter(None, common))}." if any(common) else ""


def _network(model: Mapping[str, Any]) -> str:
    return "networks of several kinds" if model["pool"] else f"network {model['name']}"


def cells(found: Found) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table: test scores, and those of the references in the first of them."""
    mains = {row.run.main_metric for row in found.rows}
    chosen_by = f"Validation {in_sentence(min(mains))}" if len(mains) == 1 else "Validation"
    as_reported = any(each.is_score and each.mode is None for each in found.shown)
    scored = {row.run.reported for row in found.rows} if as_reported else set()
    rows = []
    for row in found.rows:
        sent, _, processor, _ = cost_texts(row.run.result.spent)
        rows.append({
            **({"Method": row.series} if len(found.series) > 1 or not row.values else {}),
            **{short_name(name): format_value(value) for name, value in row.values.items()},
            **({"Chosen": "✓" if row.chosen else ""} if any(each.chosen for each in found.rows) else {}),
            **({"Scored": whose(row.run.reported)} if len(scored) > 1 else {}),
            chosen_by: plus_minus(row.validation, row.run.main_metric)
            + ("" if len(mains) == 1 else f" ({in_sentence(row.run.main_metric)})"),
            **{title: plus_minus(row.scores[name], name) for name, title in titles(found.shown).items()},
            **{
                f"{title} ({in_sentence(found.main)})": plus_minus(part.get(found.main), found.main)
                for title, part in row.references.items()
                if found.shown[0].is_score
            },
            "Sent": sent, "CPU": processor,
        })  # fmt: skip
    head = list(dict.fromkeys(title for row in rows for title in row))
    return head, [[row.get(title, "") for title in head] for row in rows]


def _table(found: Found) -> Table:
    head, rows = cells(found)
    of = "mean ± standard deviation over seeds; bytes and processor time per seed" if found.has_spread else "one seed"
    mark = " ✓: what validation chose, never the test." if "Chosen" in head else ""
    mark += f" {scored_sentence(found.shown, [row.run for row in found.rows])}"
    text = {"Method", "Chosen", "Scored", *map(short_name, found.sweep.grid)}
    columns_ = [(title, "text" if place and title in text else "") for place, title in enumerate(head)]
    return Table(f"Test scores of every point, {of}.{mark}".rstrip(), columns_, rows, is_hidden=False)


def to_csv(found: Sequence[Found]) -> str:
    """A line for each number, in full precision: ``row`` is test, validation or a reference; a column per setting."""
    settings = list(dict.fromkeys(name for each in found for name in each.sweep.grid))
    lines: list[list[Any]] = [
        ["sweep", "series", *settings, "chosen", "row", "metric", "mean", "std", "seeds", "folder"]
    ]
    for each in found:
        for row in each.rows:
            known: list[tuple[str, str, Spread | None]] = [("validation", row.run.main_metric, row.validation)]
            known += [("test", name, score) for name, score in row.scores.items()]
            known += [(title, name, score) for title, part in row.references.items() for name, score in part.items()]
            values = [format_value(row.values[name]) if name in row.values else None for name in settings]
            seeds = " ".join(map(str, row.run.seed_names))
            for kind, name, score in known:
                numbers = [None, None] if score is None else [score.mean, score.std]
                place = [each.sweep.title, row.series, *values, row.chosen]
                lines.append([*place, kind, name, *numbers, seeds, str(row.run.path)])
    return csv_text(lines)


# -- figures ---------------------------------------------------------------------------------------------------------


def figures(found: Found, group: str) -> list[Figure]:
    """One setting: a curve for each series. Two: a heat map for each. None: a dot for each. One choice per metric."""
    settings = len(found.sweep.grid)
    if settings == 2:
        return [_heat_map(found, series, f"{group}-{place}", group) for place, series in enumerate(found.series)]
    spreads = " Bands" if settings else " Lines"
    band = f"{spreads}: one standard deviation over seeds to each side." if found.has_spread else ""
    ring = " Rings: what validation chose." if any(row.chosen for row in found.rows) else ""
    draw = _curve if settings else _dots
    what = f"Test score by {short_name(next(iter(found.sweep.grid)))}" if settings else "Test scores"
    return [
        Figure(
            group, f"{what}, mean over seeds.{band}{ring}", f"{what}: {METRIC} of {len(found.series)} series",
            330 if settings else 70 + 26 * (len(found.rows) + len(found.rows[0].references)),
            {each.name: draw(found, each.name) for each in found.shown}, group,
        )
    ]  # fmt: skip


def _beside(found: Found, group: str) -> list[Figure]:
    """Scores against bytes where points differ in these, and along rounds, of as many runs as have colours."""
    if len(found.rows) > len(SERIES):
        return []
    labels, spent = [found.label(row) for row in found.rows], [row.run.result.spent for row in found.rows]
    sizes = [(each.upload_bytes, each.download_bytes or 0) for each in spent]
    megabytes = [None if up is None else (up + down) / 1e6 for up, down in sizes]
    several = any(len(seed.rounds) > 1 for row in found.rows for seed in row.run.seeds)
    along = overlaid_curves([row.run for row in found.rows], labels)[:1] if several else []
    first = next((each.name for each in found.shown if each.is_score), None)
    scores = [row.scores[first] for row in found.rows] if first else []
    drawn = present(*along, trade_off(labels, megabytes, scores, first) if first else None)
    kept = [{one.name: each.plots[one.name] for one in found.shown if one.name in each.plots} for each in drawn]
    return [
        replace(each, name=f"{group}-{each.name}", plots=plots or each.plots, group=group)
        for each, plots in zip(drawn, kept, strict=True)
    ]


def _shown(found: Found) -> list[Block]:
    """What a sweep shows beside scores."""
    run = found.rows[0].run
    if found.sweep.shows == "study":
        return study_of(run)
    if found.sweep.shows == "labels":
        return [("pair", present(label_map(run.result.partition, run.class_names, run.names)))]
    drawn = [per_class(f1_of_classes(row.run), run.class_names) for row in found.rows]
    if found.sweep.shows != "classes" or drawn[0] is None:
        return []
    dots = [
        replace(mark, name=row.series, series=place, hollow=place % 2 == 1)
        for place, (row, figure) in enumerate(zip(found.rows, drawn, strict=True))
        for mark in (figure.plots["f1"].marks if figure else ())
        if isinstance(mark, Dots)
    ]
    plots = {"f1": replace(drawn[0].plots["f1"], marks=tuple(dots))}
    return [("pair", [replace(drawn[0], height=drawn[0].height + 60, plots=plots)])]


def _curve(found: Found, name: str) -> Plot:
    [setting] = found.sweep.grid
    axis, places = axis_of(setting, found.sweep.grid[setting])
    lines: list[Mark] = []
    rings: list[Mark] = []
    for position, series in enumerate(found.series):
        rows = sorted(found.of(series), key=lambda row: places[repr(row.values[setting])])
        points = [(places[repr(row.values[setting])], found.label(row), row.scores[name]) for row in rows]
        x, y, tips, edges = _known(points, name)
        low, high = zip(*edges, strict=True) if edges else ((), ())
        lines += [Line(series, x, y, position, 0, low, high), Dots("", x, y, position, tips, small=True)]
        x, y, tips, _ = _known([point for point, row in zip(points, rows, strict=True) if row.chosen], name)
        rings += [Dots("", x, y, position, tips, hollow=True)] if x else []
    first = found.of(found.series[0])
    for place, title in enumerate(dict.fromkeys(title for row in first for title in _near(found, row, name))):
        beside = [(places[repr(row.values[setting])], title, row.references.get(title, {}).get(name)) for row in first]
        x, y, *_ = _known(sorted(beside, key=lambda point: point[0]), name)
        lines.append(Line(title, x, y, len(found.series) + place, 2))
    return Plot(axis, _axis(name), (*lines, *rings))


def _dots(found: Found, name: str) -> Plot:
    """Series, and below them the reference rows of the first."""
    shown = [(row.series, row.scores[name]) for row in found.rows]
    shown += [(title, found.rows[0].references[title][name]) for title in _near(found, found.rows[0], name)]
    points = [(float(place), label, score) for place, (label, score) in enumerate(shown)]
    marks = []
    for part, series in ((points[: len(found.rows)], 0), (points[len(found.rows) :], 5)):
        y, x, tips, edges = _known(part, name)
        marks.append(Dots("", x, y, series, tips, edges, hollow=bool(series)))
    return Plot(_axis(name), Axis(names=tuple(label for label, _ in shown)), tuple(marks))


def _near(found: Found, row: Row, name: str) -> list[str]:
    """References of a row that are not so far from all points that these could not be told apart any more."""
    known = [score.mean for each in found.rows if (score := each.scores[name]) is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scores = {title: part.get(name) for title, part in row.references.items()}
    return [t for t, score in scores.items() if score and 2 * low - high <= score.mean <= 2 * high - low]


def _known(
    points: Sequence[tuple[float, str, Spread | None]], name: str
) -> tuple[list[float], list[float], list[str], list[tuple[float, float]]]:
    """Of the points that have a score: places, means, what they say, and one standard deviation to each side."""
    known = [(at, label, score, score.std or 0.0) for at, label, score in points if score is not None]
    return (
        [at for at, *_ in known],
        [_point(score.mean, name) for _, _, score, _ in known],
        [f"{label}: {plus_minus(score, name)}" for _, label, score, _ in known],
        [(_point(score.mean - std, name), _point(score.mean + std, name)) for _, _, score, std in known],
    )


def _heat_map(found: Found, series: str, figure: str, group: str) -> Figure:
    """The first setting along x, the second along y; colours from the least to the largest score of all series."""
    across, down = ([*map(repr, values)] for values in found.sweep.grid.values())
    x, y = (Axis(short_name(name), tuple(map(format_value, values))) for name, values in found.sweep.grid.items())
    plots = {}
    for each in found.shown:
        values = np.full((len(down), len(across)), np.nan)
        framed = []
        for row in found.of(series):
            column, line = map(repr, row.values.values())
            place = down.index(line), across.index(column)
            score = row.scores[each.name]
            values[place] = np.nan if score is None else _point(score.mean, each.name)
            framed += [place] if row.chosen else []
        scores = (row.scores[each.name] for row in found.rows)
        known = [round(_point(score.mean, each.name), _DIGITS) for score in scores if score is not None]
        share = "% " if metric_of(each.name).is_share else ""
        unit = _MEGABYTES if each.name == "bytes_sent" else f"{share}{in_sentence(each.name)}"
        low, top = min(known, default=0.0), max(known, default=1.0)
        heat = Heat(values, top, unit=unit, written=True, low=low, digits=_DIGITS, framed=framed)
        plots[each.name] = Plot(x, y, (heat,))
    ring = " Frame: what validation chose." if any(row.chosen for row in found.of(series)) else ""
    caption = f"{series}: test score, mean over seeds; the weakest colour is the least of the grid, not 0.{ring}"
    return Figure(figure, caption, f"Heat map of {METRIC} of {series}", 130 + 30 * len(down), plots, group)


def axis_of(setting: str, values: Sequence[Any]) -> tuple[Axis, dict[str, float]]:
    """The axis of a setting, and where each value stands: by its size, or one beside the other."""
    known = [value for each in values if (value := number(each)) is not None]
    above = [value for value in known if value > 0]
    is_wide = bool(above) and max(above) > WIDE * min(above)
    if len(known) < len(values) or (is_wide and len(above) < len(known)):
        return Axis(short_name(setting), tuple(map(format_value, values))), {repr(v): i for i, v in enumerate(values)}
    whole = all(value.is_integer() for value in known)
    return Axis(short_name(setting), log=is_wide, whole=whole), {
        repr(v): at for v, at in zip(values, known, strict=True)
    }


def _point(value: float, name: str) -> float:
    return short(value / 1e6 if name == "bytes_sent" else metric_of(name).factor * value)


def _axis(name: str) -> Axis:
    return Axis(_MEGABYTES if name == "bytes_sent" else axis_title(name))
