"""A sweep: a run at every point of a grid over one or two settings, with one method or several.

A folder holds one::

    sweep.yaml             what is swept, and what is the same at all points; a sweep that goes on is the same in it
    points/SERIES/POINT    a run each, named by its values, so that a grid may grow
    sweep.html, sweep.csv  what came of it; see ``report.sweep_page``
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphsilo import documents
from graphsilo.errors import ConfigError, GraphsiloError, quote
from graphsilo.experiments import batch
from graphsilo.experiments.config import NO_NUMBERS, RunConfig
from graphsilo.experiments.doors import NAMES, RECORDS
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.options import spell_name
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.place import Place
from graphsilo.experiments.storage.resume import differences, some
from graphsilo.experiments.tuning.plan import FINAL_SEEDS, LEAN
from graphsilo.experiments.tuning.space import SCALE, TUNED, complete_base, trial_config
from graphsilo.federation import registry
from graphsilo.settings.words import format_value

SWEEP = "sweep.yaml"
MOST_SETTINGS = 2
"""A curve shows one setting, a heat map two."""
FREE = "majority"
"""The reference row that costs nothing: it stands at every point."""


@dataclass(frozen=True)
class Point:
    """A place of the grid, with one series.

    Attributes:
        name: What messages call it.
        series: Which; a method, or a variant of one.
        values: By setting.
        config: Of its run.
        out: Its folder.
    """

    name: str
    series: str
    values: dict[str, Any]
    config: RunConfig
    out: Path

    @property
    def is_done(self) -> bool:
        """Whether there is a result."""
        return (self.out / "result.json").is_file()


@dataclass(frozen=True)
class Sweep:
    """A grid and its runs.

    Attributes:
        title: What it is of, where a page shows several.
        grid: Settings to their values, two at most; none where series alone are compared.
        points: In the order of series, then of the grid.
        bases: Series to what is the same at all of its points.
        out: Folder of everything.
        metrics: What is drawn; none stands for the usual ones.
        shows: What is drawn of its first run beside scores: clients' ``study``, their ``labels``, F1 of ``classes``.
    """

    title: str
    grid: dict[str, tuple[Any, ...]]
    points: tuple[Point, ...]
    bases: dict[str, dict[str, Any]]
    out: Path
    metrics: tuple[str, ...] | None = None
    shows: str = ""

    @property
    def chosen_by_validation(self) -> tuple[str, ...]:
        """Settings that validation may choose: those of methods and models. Other data is another question."""
        return tuple(name for name in self.grid if name.partition(".")[0] in TUNED or name == SCALE)


def read_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Settings and their values as a person writes them, ``method.mu=0.01,0.1,1``.

    Raises:
        ConfigError: It is written otherwise, or a setting comes twice.

    Example:
        >>> read_grid(["method.mu=0.1,1", "model.name=gcn,sage"])
        {'method.mu': [0.1, 1], 'model.name': ['gcn', 'sage']}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, sign, values = (part.strip() for part in text.partition("="))
        if not sign:
            raise ConfigError(f"a sweep takes settings with their values, such as method.mu=0.01,0.1,1; got '{text}'.")
        if name in grid:
            raise ConfigError(f"{name} is swept twice. List all of its values behind one equals sign.")
        grid[name] = documents.parse(f"[{values}]", f"the values of {name}")
    return grid


def plan(config: RunConfig, grid: Mapping[str, Sequence[Any]], methods: Sequence[str], out: Path) -> Sweep:
    """The points of a grid, each as ``check`` and ``carry_out`` take it.

    Args:
        config: What every run has, but for what is swept.
        grid: One or two settings by dotted name, and their values.
        methods: By name, a series each; none stands for the configuration's own.
        out: The sweep's folder.

    Raises:
        ConfigError: The grid cannot be, or a value of it.
    """
    full = {f"{name}.{NAMES[name]}" if name in NAMES else name: tuple(values) for name, values in grid.items()}
    _check_grid(config, full)
    methods = list(dict.fromkeys(spell_name("method", name) for name in methods or [config.method.name]))
    others = {name for name in config.explicit if name.partition(".")[0] not in TUNED} - full.keys()
    drop_idle(config.with_explicit(others), out=out)  # what is said of methods and models is looked at with each
    base = complete_base(config, methods)
    run: dict[str, Any] = {"seeds": config.run.seeds if config.is_given("run.seeds") else list(FINAL_SEEDS)}
    if config.task != "link":
        run["references"] = list(dict.fromkeys([*config.run.references, FREE]))
    points, bases = [], {}
    for method in methods:
        series = registry.load(method).title
        for values in places(full):
            made = trial_config(base, method, values, run=run, evaluation=LEAN)
            points.append(point(series, values, made.with_explicit(full), out))
        bases[series] = trial_config(base, method, {}, run=run, evaluation=LEAN).complete()
    return Sweep("", full, tuple(points), bases, out)


def places(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values; one without any where nothing is swept."""
    return (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))


def point(series: str, values: dict[str, Any], config: RunConfig, out: Path, within: str = "") -> Point:
    """A point, whose folder and name say what it is.

    Args:
        series, values, config: Its own.
        out: The sweep's folder.
        within: What to call the sweep, where there are several.
    """
    said = [f"{short_name(name)} {format_value(value)}" for name, value in values.items()]
    folder = ",".join(f"{name}={format_value(value)}" for name, value in values.items()) or "run"
    parts = (re.sub(r"[^\w.,=+-]+", "_", text) for text in (series, folder))
    return Point(
        ", ".join(filter(None, [within, series, *said])), series, values, config, out.joinpath("points", *parts)
    )


def short_name(setting: str) -> str:
    """A setting without its section; the name of a section's thing is called by the section.

    Example:
        >>> short_name("method.mu"), short_name("model.name")
        ('mu', 'model')
    """
    section, _, key = setting.partition(".")
    return section if key == NAMES.get(section) else key


def _check_grid(config: RunConfig, grid: Mapping[str, Sequence[Any]]) -> None:
    if not 1 <= len(grid) <= MOST_SETTINGS:
        raise ConfigError(
            f"a sweep is over one setting, which makes a curve, or over two, which make a heat map; got "
            f"{len(grid)}{': ' if grid else ''}{', '.join(grid)}. Hold the others with --set, or draw from more with "
            f"graphsilo tune."
        )
    for name, values in grid.items():
        if name == "run.seeds":
            raise ConfigError("every point of a sweep is run with all seeds: say them with --seeds 0,1,2.")
        if name == "method.name":
            raise ConfigError("methods are no values of a setting here: name each with --method, for a curve each.")
        if name in NO_NUMBERS:
            raise ConfigError(f"{name} changes no number of a run, so that there is nothing to sweep over.")
        if name in config.explicit:
            raise ConfigError(
                f"{name} is swept, and is also said to be {quote(config.get(name))}. Leave one of them out."
            )
        if len({repr(value) for value in values}) < max(2, len(values)):
            raise ConfigError(
                f"a sweep needs two different values or more of a setting, each once; got {name}="
                f"{','.join(map(format_value, values))}. One run is made by graphsilo run."
            )


def check(sweep: Sweep) -> None:
    """Refuse what a run of any point would refuse before it begins; data is loaded once for every cut and series.

    Raises:
        GraphsiloError: As the runs do. ``ConfigError`` also where two points are one run.
    """
    from graphsilo.experiments.runner import check_settings, check_with_data

    seen: dict[str, str] = {}
    loaded: set[str] = set()
    for each in sweep.points:
        try:
            tree = {key: value for key, value in each.config.complete().items() if key not in RECORDS}
            cut = json.dumps([tree.get(part) for part in ("data", "partition", "scenario", "perturb", "task")])
            new = {cut, each.series} - loaded
            folder = Place.of(each.out, resume=True)
            config = check_settings(each.config, folder, remote=False)
            if new and not each.is_done:
                check_with_data(config, folder, None)
        except GraphsiloError as error:
            raise type(error)(f"at {each.name}: {error}") from None
        text = json.dumps(tree, sort_keys=True)
        if text in seen:
            raise ConfigError(f"{seen[text]} and {each.name} are the same run. Leave one of them out.")
        seen[text] = each.name
        loaded |= new


def _read_sweep(sweep: Sweep) -> dict[str, Any]:
    """What its folder says of it: which settings are swept, and what is the same at all points of each series."""
    place = sweep.out / SWEEP
    return dict(documents.read(place, "the sweep")) if place.exists() else {"series": {}}


def find_changes(sweep: Sweep) -> list[str]:
    """In what the sweep that the folder holds differs from this one, as sentences."""
    held = _read_sweep(sweep)
    before, swept = held["series"], set(held.get("swept", sweep.grid))
    if swept != sweep.grid.keys():
        return [f"what is swept was {' and '.join(sorted(swept))}, and is {' and '.join(sweep.grid)}"]
    return [text for name in sweep.bases if name in before for text in differences(before[name], sweep.bases[name])]


def carry_out(
    sweeps: Sequence[Sweep], executor: str | None = None, *, follow: Callable[[], None] | None = None
) -> Iterator[tuple[Point, batch.Outcome]]:
    """Make every run that is not made, and give what became of each.

    Args:
        sweeps: With folders of their own.
        executor, follow: As ``batch.run`` takes them.

    Raises:
        GraphsiloError: As ``check``, before anything is run; or a folder holds another sweep, or is held.
    """
    points = {each.name: each for sweep in sweeps for each in sweep.points}
    with closing(batch.executor_of(executor)) as place, ExitStack() as stack:
        for sweep in sweeps:
            if changed := find_changes(sweep):
                raise ConfigError(
                    f"{sweep.out} holds another sweep: {some(changed)}. Its points do not belong into one picture with "
                    f"these: choose another --out."
                )
            check(sweep)
        for sweep in sweeps:
            stack.enter_context(
                disk.hold_folder(sweep.out, f"another process leads the sweep in {sweep.out}. Wait for it, or stop it.")
            )
            series = {**_read_sweep(sweep)["series"], **sweep.bases}
            disk.write_text(sweep.out / SWEEP, documents.write({"swept": list(sweep.grid), "series": series}))
        tasks = [batch.Task(each.name, each.config.complete(), each.out) for each in points.values()]
        for outcome in batch.run(tasks, place, follow=follow):
            yield points[outcome.name], outcome
