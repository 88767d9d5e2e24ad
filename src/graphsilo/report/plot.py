"""What a figure is: axes and marks as plain values, and one palette. ``svg`` draws them.

The series colours follow Okabe and Ito, "Color Universal Design" (2008), darkened to reach 3:1 contrast on white. A
mark names its colour by position; the page's style says what it is, in the light and in the dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.metrics import metric_of

SERIES = {
    "#0072b2": "#5ab4e6",  # blue
    "#d55e00": "#ff9a4d",  # vermilion
    "#008a63": "#3ecf9f",  # bluish green
    "#b0588f": "#e59cc6",  # reddish purple
    "#a87400": "#f2c14e",  # amber
    "#5b6573": "#a7b1bf",  # slate
    "#8c2d3a": "#f08a94",  # wine
    "#6b7a00": "#c3d154",  # olive
}
"""Light colour to dark colour."""
SCALE = {
    "#f2f5f9": "#1d242e",
    "#c6dbef": "#1f4467",
    "#6baed6": "#2a6fa6",
    "#2171b5": "#63aede",
    "#08306b": "#d6ecfb",
}
"""From no share to the largest, evenly spaced."""
INK = ("#1c2430", "#e6e9ee")
"""Of text, in the light and in the dark."""
STEPS = 13
"""Colours of a heat map."""


@dataclass(frozen=True)
class Axis:
    """One direction of a plot.

    Attributes:
        title: What is shown along it, with its unit.
        names: Of the places 0, 1, 2, … along it; empty where it shows numbers.
        low, high: Its ends; by default where the marks end.
        log: Whether equal steps are equal factors.
        whole: Whether there is nothing between whole numbers.
        thinned: Whether names are in an order, so that some of them are enough where not all have room.
    """

    title: str = ""
    names: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    thinned: bool = False


@dataclass(frozen=True)
class Line:
    """A line, named at its end; a single point is drawn as a dot.

    Attributes:
        series: Position of its colour.
        low, high: Edges of the band around it; empty without one.
        quiet: A thin line without a name, which stands behind the others.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    series: int = 0
    dash: int = 0
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    quiet: bool = False


@dataclass(frozen=True)
class Dots:
    """Points, each with what it says to who points at it.

    Attributes:
        reach: (from, to) of the line through each point, along ``x`` where y has names, else along ``y``.
        labels: Text beside each point.
        small: Many points.
        hollow: Rings instead of discs.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    series: int = 0
    tips: Sequence[str] = ()
    reach: Sequence[tuple[float, float]] = ()
    labels: Sequence[str] = ()
    small: bool = False
    hollow: bool = False


@dataclass(frozen=True)
class Bars:
    """Bars from 0: along x for each name of the y axis, or along y at ``at``, ``width`` wide."""

    values: Sequence[float | None]
    series: int = 0
    tips: Sequence[str] = ()
    at: Sequence[float] = ()
    width: float = 1.0


@dataclass(frozen=True)
class Heat:
    """Cells [rows, columns] under the names of the axes, from ``low`` (pale) to ``top``; NaN is no cell.

    Attributes:
        counts: What a cell says to who points at it, beside its value.
        unit: Of the values, in the key.
        written: Whether the values stand in the cells.
        left: Where the first column stands along x.
        digits: Decimals of what is written.
        framed: (row, column) of cells that have a frame.
    """

    values: NDArray[np.float64]
    top: float
    counts: NDArray[np.int64] | None = None
    unit: str = "%"
    written: bool = False
    left: int = 0
    low: float = 0.0
    digits: int = 0
    framed: Sequence[tuple[int, int]] = ()


Mark: TypeAlias = Line | Dots | Bars | Heat


@dataclass(frozen=True)
class Plot:
    """Marks on two axes, the first ones behind."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]


METRIC = "{metric}"


@dataclass(frozen=True)
class Figure:
    """One figure of a page.

    Attributes:
        name: Its id on the page.
        caption: What is shown and how to read it.
        label: The same for those who cannot see it; ``METRIC`` in it stands for the metric of each plot.
        height: Pixels.
        plots: One plot per choice; the choice named first is drawn first.
        group: Figures of one group change together when the reader chooses.
    """

    name: str
    caption: str
    label: str
    height: int
    plots: dict[str, Plot] = field(default_factory=dict)
    group: str = ""


def choices(drawn: Sequence[Figure]) -> list[tuple[str, str]]:
    """What the reader can choose among figures of one group: plot name and title."""
    names = dict.fromkeys(name for figure in drawn for name in figure.plots)
    views = {name: name.rpartition(".")[0].replace("_", " ") for name in names}
    return [(name, metric_of(name).title + (f" ({views[name]})" if views[name] else "")) for name in names]


def present(*found: Figure | None) -> list[Figure]:
    """The figures that had something to show."""
    return [figure for figure in found if figure is not None]


def axis_title(name: str) -> str:
    """A metric as an axis names it."""
    return f"{metric_of(name).title}, %" if metric_of(name).is_share else metric_of(name).title


def size_unit(largest: float) -> tuple[float, str]:
    """Bytes per unit, and the unit, in which the largest value reads well."""
    return next(((f, unit) for f, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if largest >= f), (1.0, "Bytes"))


def thin(count: int, limit: int) -> NDArray[np.int64]:
    """At most ``limit`` of ``count`` places, evenly chosen."""
    return np.arange(count) if count <= limit else np.linspace(0, count - 1, limit).astype(np.int64)


def short(value: float) -> float:
    """Five significant digits: nobody reads more in a figure, and pages are smaller."""
    return float(f"{value:.5g}")


def ramp() -> list[tuple[str, str]]:
    """The colours of a heat map, light and dark, ``STEPS`` of them."""
    places = np.linspace(0, 1, STEPS).tolist()
    return list(zip(_between(list(SCALE), places), _between(list(SCALE.values()), places), strict=True))


def _between(colours: Sequence[str], places: Sequence[float]) -> list[str]:
    """Colours at places from 0 to 1 along a row of others."""
    known = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], dtype=float)
    at = np.asarray(places) * (len(colours) - 1)
    mixed = np.stack([np.interp(at, np.arange(len(colours)), part) for part in known.T], axis=1).round().astype(int)
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed.tolist()]


def inks() -> list[tuple[str, str]]:
    """The series colours for text, light and dark: nearer to the ink, since letters are thinner than lines."""
    light, dark = INK
    return [(_between([one, light], [0.35])[0], _between([other, dark], [0.35])[0]) for one, other in SERIES.items()]


def palette() -> str:
    """The colours as a style: ``--s0`` … of series, ``--t0`` … of their names, ``--h0`` … of a heat map."""
    light, dark = (
        "".join(
            [
                *(f"--s{i}:{pair[shade]};" for i, pair in enumerate(SERIES.items())),
                *(f"--t{i}:{pair[shade]};" for i, pair in enumerate(inks())),
                *(f"--h{i}:{pair[shade]};" for i, pair in enumerate(ramp())),
            ]
        )
        for shade in (0, 1)
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
