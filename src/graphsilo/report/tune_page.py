"""The trials of a study: which settings mattered, by validation alone."""

from __future__ import annotations

from pathlib import Path

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage import disk
from graphsilo.experiments.sweep import short_name
from graphsilo.experiments.tuning.record import MethodRecord, TuneRecord
from graphsilo.report.formats import MISSING, in_sentence, metric
from graphsilo.report.html import page
from graphsilo.report.plot import Axis, Bars, Dots, Figure, Line, Mark, Plot, axis_title, short
from graphsilo.report.sections import SELF_CONTAINED, Page, Section, Table
from graphsilo.report.sweep_page import axis_of
from graphsilo.settings.words import format_value

_LEDE = (
    "Every trial by its best validation score; no test score was looked at. Settings were drawn together, so what a "
    "picture of one shows is also the others' doing."
)


def write(found: TuneRecord, folder: Path) -> Path:
    """Draw ``tune.html`` into a study's folder.

    Raises:
        RunError: It cannot be written.
    """
    disk.write_text(folder / "tune.html", page(describe(found)))
    return folder / "tune.html"


def describe(found: TuneRecord) -> Page:
    """Everything that the page shows."""
    sections = [
        Section(method.name, method.title, [
            ("plain", _sentence(method, found.metric)), ("pair", _figures(method, found.metric)),
            ("table", _table(method, found.metric)),
        ], method.title)
        for method in found.methods
    ]  # fmt: skip
    drawn = "" if found.sampler == "grid" else f" Settings by {found.sampler} with seed {found.seed}."
    title = f"Trials on {found.data}" if found.data else "Trials"
    return Page(title, "graphsilo tune", [("lede", f"{_LEDE}{drawn}")], sections, SELF_CONTAINED)


def _sentence(method: MethodRecord, name: str) -> str:
    best, first = method.best_trial, method.trials[0] if method.trials else None
    if best is None:
        return "No trial came to its end."
    unit = " %" if metric_of(name).is_share else ""
    said = (
        f"Best is trial {best.trial}, with a validation {in_sentence(name)} of {metric(best.validation, name, 2)}{unit}"
    )
    if first is None or first.validation is None or best is first:
        return f"{said}{'; no setting that was drawn is better than the configuration' if best is first else ''}."
    return f"{said}; as configured it is {metric(first.validation, name, 2)}{unit}."


def _figures(method: MethodRecord, name: str) -> list[Figure]:
    """Validation by each setting, and the share of each in the spread of the scores where it is known."""
    settings = dict.fromkeys(setting for trial in method.trials for setting in trial.settings)
    found = [_by_setting(method, name, setting) for setting in settings]
    if method.importance:
        bars = Bars([short(100 * share) for share in method.importance.values()])
        plot = Plot(Axis("Share of the spread, %"), Axis(names=tuple(map(short_name, method.importance))), (bars,))
        caption = "What the scores of the trials hang on, by fANOVA over them."
        height = 80 + 26 * len(method.importance)
        found.append(
            Figure(f"{method.name}-importance", caption, "Bars of each setting's share", height, {"share": plot})
        )
    return found


def _by_setting(method: MethodRecord, name: str, setting: str) -> Figure:
    drawn = [each for each in method.trials if setting in each.settings and each.validation is not None]
    values = {
        repr(each.settings[setting]): each.settings[setting] for each in method.trials if setting in each.settings
    }
    axis, places = axis_of(setting, [values[key] for key in sorted(values)])
    factor, marks = metric_of(name).factor, list[Mark]()
    kinds = {"as tried": (0, False), "stopped early": (5, True), "best": (1, True)}
    for kind, (series, hollow) in kinds.items():
        shown = [
            each for each in drawn
            if (each.trial == method.best if kind == "best" else (each.state == "pruned") == hollow)
        ]  # fmt: skip
        y = [short(factor * (each.validation or 0.0)) for each in shown]
        tips = [
            f"trial {each.trial}: {_settings(each.settings)}, {value:.2f}" for each, value in zip(shown, y, strict=True)
        ]
        x = [places[repr(each.settings[setting])] for each in shown]
        marks += [Dots(kind, x, y, series, tips, hollow=hollow)] if shown else []
    first = method.trials[0].validation
    if first is not None and places:
        ends = [min(places.values()), max(places.values())]
        marks.insert(0, Line("as configured", ends, [short(factor * first)] * 2, 2, 2))
    label = f"Scatter of validation {in_sentence(name)} by {short_name(setting)}"
    return Figure(f"{method.name}-{setting}", f"Validation score of every trial by {short_name(setting)}.", label, 300,
                  {name: Plot(axis, Axis(f"Validation {axis_title(name)}"), tuple(marks))})  # fmt: skip


def _table(method: MethodRecord, name: str) -> Table:
    rows = [
        [
            f"{each.trial}{' (best)' if each.trial == method.best else ''}", _settings(each.settings),
            MISSING if each.validation is None else metric(each.validation, name, 2), each.state, each.error or "",
        ]
        for each in method.trials
    ]  # fmt: skip
    head = [("Trial", ""), ("Settings", "text wrap"), ("Validation", ""), ("State", "text"), ("Why", "text wrap")]
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    caption = f"Trials of {method.title}; trial 0 has the settings of the configuration."
    return Table(caption, [head[p] for p in kept], [[row[p] for p in kept] for row in rows], is_hidden=False)


def _settings(values: dict[str, object]) -> str:
    return ", ".join(f"{short_name(key)} {format_value(value)}" for key, value in values.items()) or "as configured"
