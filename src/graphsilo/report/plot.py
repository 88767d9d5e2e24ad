"""What all figures share: plain plotly.js descriptions, one palette, one layout.

A figure is data and layout in dictionaries; nothing here needs plotly, which only draws them in the reader's browser.
Colours are named once, for light pages; ``DARK`` says what the page's script puts in their place in the dark. The
series colours follow Okabe and Ito, "Color Universal Design" (2008), darkened to reach 3:1 contrast on white.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.metrics import metric_of

Plot: TypeAlias = "dict[str, Any]"
"""``{"data": [traces], "layout": {...}}`` as plotly.js takes it."""

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
INK, MUTED, GRID, HOVER, CLEAR = "#1c2430", "#5d6878", "#e3e7ed", "#fdfdfe", "rgba(0,0,0,0)"
DARK = SERIES | {
    INK: "#e6e9ee",
    MUTED: "#9aa5b4",
    GRID: "#2c3440",
    HOVER: "#222a34",
    "#f2f5f9": "#1d242e",
    "#c6dbef": "#1f4467",
    "#6baed6": "#2a6fa6",
    "#2171b5": "#63aede",
    "#08306b": "#d6ecfb",
}
"""Light colour to dark colour."""
_COLOURS = list(SERIES)
DASHES = ("solid", "dash", "dot", "dashdot")
SCALE = [[0, "#f2f5f9"], [0.25, "#c6dbef"], [0.5, "#6baed6"], [0.75, "#2171b5"], [1, "#08306b"]]


CATEGORIES = {"type": "category", "gridcolor": CLEAR, "ticks": ""}
"""An axis of names."""


@dataclass(frozen=True)
class Figure:
    """One figure of a page.

    Attributes:
        name: Its id on the page.
        caption: What is shown and how to read it.
        label: The same for those who cannot see it.
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


def colour(position: int) -> str:
    """The colour of the series at a position; they repeat after eight, see ``dash``."""
    return _COLOURS[position % len(SERIES)]


def dash(position: int) -> str:
    """The line pattern that tells a repeated colour from its first use."""
    return DASHES[position // len(SERIES) % len(DASHES)]


def choices(drawn: Sequence[Figure]) -> list[tuple[str, str]]:
    """What the reader can choose among figures of one group: plot name and title."""
    names = dict.fromkeys(name for figure in drawn for name in figure.plots)
    return [(name, metric_of(name).title) for name in names]


def present(*found: Figure | None) -> list[Figure]:
    """The figures that had something to show."""
    return [figure for figure in found if figure is not None]


def layout_of(x_title: str, y_title: str, *, legend: bool = True) -> Plot:
    """Axes, fonts and margins that all figures share."""
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "automargin": True,
        "tickfont": {"color": MUTED, "size": 12},
    }
    title = {"font": {"color": MUTED, "size": 12.5}, "standoff": 10}
    return {
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
        "margin": {"l": 52, "r": 12, "t": 12, "b": 44},
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
            "traceorder": "normal",
        },
        "hoverlabel": {"bgcolor": HOVER, "bordercolor": GRID, "font": {"color": INK, "size": 12}},
        "hovermode": "closest",
        "xaxis": {**axis, "title": {**title, "text": x_title}},
        "yaxis": {**axis, "title": {**title, "text": y_title}},
    }


def line_trace(x: Sequence[Any], y: Sequence[Any], name: str, style: Plot, *, digits: int = 1) -> Plot:
    """A line; a single point is drawn as a marker, which a line of one point would not be."""
    return {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "name": plain(name),
        "x": list(x),
        "y": list(y),
        "line": style,
        "marker": {"color": style["color"], "size": 9},
        "hovertemplate": f"%{{y:,.{digits}f}}<extra>{plain(name)}</extra>",
    }


def axis_title(name: str) -> str:
    """A metric as an axis names it."""
    return f"{metric_of(name).title} in percent" if metric_of(name).is_share else metric_of(name).title


def size_unit(largest: float) -> tuple[float, str]:
    """Bytes per unit, and the unit, in which the largest value reads well."""
    return next(((f, unit) for f, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if largest >= f), (1.0, "Bytes"))


def spaced(count: int, limit: int) -> NDArray[np.int64]:
    """At most ``limit`` of ``count`` places, evenly chosen."""
    return np.arange(count) if count <= limit else np.linspace(0, count - 1, limit).astype(np.int64)


def plain(text: str) -> str:
    """Text without what plotly.js reads as markup or as a template."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")


def short(value: float) -> float:
    """Five significant digits: nobody reads more in a figure, and pages stay small."""
    return float(f"{value:.5g}")


def symbol(position: int) -> str:
    """The marker shape that goes with the colour at a position."""
    return ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")[position % 8]
