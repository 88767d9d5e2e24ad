"""The papers' figures, run again as sweeps: ``figures.yaml`` says what each one varies and shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.config import load_config
from graphsilo.experiments.reproduce.description import find_tables, tree
from graphsilo.experiments.reproduce.runs import QUICK, folder_of, shorten, with_protocol
from graphsilo.experiments.sweep import FREE, Sweep, places, point
from graphsilo.federation.registry import plain_name

QUICK_VALUES = 2
"""Values of each setting that a quick look sweeps, from the first on."""
_NUMBER = re.compile(r"fig(?:ure)?\.?\s*(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Attributes:
        paper, number: Which; a figure of several parts has one number for each, as ``5a``.
        said: What ``figures.yaml`` says of it.
    """

    paper: str
    number: str
    said: dict[str, Any]

    @property
    def title(self) -> str:
        """Heading of its page."""
        return f"{self.paper}, figure {self.number}: {self.said['title']}"

    @property
    def is_count(self) -> bool:
        """Whether nodes of whole graphs are counted and nothing is run."""
        return self.said.get("shows") == "groups"


@cache
def figures() -> tuple[Figure, ...]:
    """Every figure that is described."""
    return tuple(
        Figure(paper, number, {**entries.get(said.get("like"), {}), **said})
        for paper, entries in tree("figures").items()
        for number, said in entries.items()
    )


def is_figure(text: str | None) -> bool:
    """Whether a number is a figure's and no table's: ``fig4``, ``figure 5a``."""
    return text is not None and _NUMBER.fullmatch(text.strip()) is not None


def find_figures(paper: str, text: str) -> list[Figure]:
    """A figure of a paper, or all of its parts.

    Raises:
        ConfigError: There is no such paper or figure.
    """
    mine = [each for each in figures() if plain_name(each.paper) == plain_name(paper)]
    if not mine:
        known = dict.fromkeys(each.paper for each in figures())
        raise ConfigError(f"a paper whose figures can be drawn was wanted, got '{paper}': {nearest(paper, known)}")
    found = _NUMBER.fullmatch(text.strip())
    number = found[1].lower() if found else ""
    chosen = [each for each in mine if number in (each.number, each.number.rstrip("abcdef"))]
    if not chosen:
        numbers = ", ".join(each.number for each in mine)
        raise ConfigError(
            f"a figure of {mine[0].paper} was wanted, got '{text}'; those that can be drawn are {numbers}."
        )
    return chosen


def plan(
    figure: Figure,
    *,
    data: Sequence[str] | None = None,
    quick: bool = False,
    out: Path | None = None,
    **asked: Any,
) -> tuple[list[Sweep], Path, list[str]]:
    """What is run for a figure.

    Args:
        figure: Which.
        data: Other data sets than the figure's.
        quick: Shortened runs on the first data set with the first seed.
        out: Folder; None is ``runs/reproduce-PAPER``.
        asked: ``clients``, ``methods`` (series), ``seeds`` and ``data_root``, as ``runs.plan`` takes them.

    Returns:
        A sweep for each data set, the folder of the page, and what must be said of the figure. No sweeps where it is
        counted on graphs as they are.

    Raises:
        ConfigError: There is no such series, or what is run cannot be.
    """
    said = figure.said
    names = data_of(figure, data, quick=quick)
    folder = (out or folder_of(figure.paper)) / "figures" / ("quick" if quick else "full") / figure.number
    if figure.is_count:
        return [], folder, []
    sweeps = [_sweep(figure, name, folder / name, quick=quick, **asked) for name in names]
    cut = f"Protocol of its table {said['table']}, with one cut and split for all seeds."
    look = f"{QUICK} Of each setting that is swept it has two values." if "grid" in said else QUICK
    return sweeps, folder, [text for text in (look if quick else "", cut, said.get("note", "")) if text]


def data_of(figure: Figure, asked: Sequence[str] | None, *, quick: bool) -> list[str]:
    """The data sets that a figure is drawn for: those that were asked for, or its own; one of them for a quick look."""
    return [name for text in asked or figure.said["data"] for name in text.split(",")][: 1 if quick else None]


def _sweep(
    figure: Figure,
    data: str,
    out: Path,
    *,
    quick: bool,
    clients: int | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    data_root: Path | str | None = None,
) -> Sweep:
    said = figure.said
    rows = [row for table in find_tables(figure.paper, said["table"]) for row in table.rows]
    row = next((row for row in rows if row.data == data), rows[0])  # of other data the protocol of the first
    lines = {line.label: line.settings for line in row.lines if line.paper is not None}
    own = lines[figure.paper]
    series = {label: lines[label] for label in said.get("methods", [figure.paper]) if label in lines}
    series = {label: {**own, **more} for label, more in said["variants"].items()} if "variants" in said else series
    asked = [name.strip().lower() for text in methods or () for name in ([text] if text in series else text.split(","))]
    if strange := next((name for name in asked if name not in map(str.lower, series)), None):
        raise ConfigError(f"a series of this figure was wanted, got '{strange}': {nearest(strange, series)}")
    common = {**said.get("set", {}), "data.name": data}
    common |= {} if clients is None else {"partition.clients": clients}
    chosen = list(seeds or row.seeds)[: 1 if quick and seeds is None else None]
    references = {} if common.get("task") == "link" else {"run.references": [FREE]}
    grid = {name: tuple(values[: QUICK_VALUES if quick else None]) for name, values in said.get("grid", {}).items()}
    points, bases = [], {}
    for label, settings in series.items():
        if asked and label.lower() not in asked:
            continue
        # What a variant says stands over what the figure says of all
        fixed = {**settings, **common, **said.get("variants", {}).get(label, {})}
        fixed = {**fixed, **(shorten(fixed) if quick else {})}
        bases[label] = {**with_protocol(fixed, chosen[0], data_root), "run.seeds": chosen, **references}
        for values in places(grid):
            config = load_config({**bases[label], **values}).with_explicit(grid)
            points.append(point(label, values, config, out, within=data))
    metrics = said.get("metrics")
    return Sweep(data, grid, tuple(points), bases, out, metrics and tuple(metrics), said.get("shows", ""))
