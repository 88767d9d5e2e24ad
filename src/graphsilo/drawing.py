"""Figures for papers, as matplotlib draws them: vector graphics, one column wide, in the colours of the report pages.

What is drawn comes as plain numbers; who knows runs collects them. The series colours follow Okabe and Ito,
"Color Universal Design" (2008), darkened to reach 3:1 contrast on white.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from graphsilo.errors import ConfigError, RunError, library

SERIES = ("#0072b2", "#d55e00", "#008a63", "#b0588f", "#a87400", "#5b6573", "#8c2d3a", "#6b7a00")
"""Blue, vermilion, bluish green, reddish purple, amber, slate, wine, olive."""
INK, MUTED, GRID = "#1c2430", "#5d6878", "#e3e7ed"
COLUMN = 3.35
"""Inches: 85 mm, a column of most journals."""
FORMATS = ("pdf", "svg", "png")
_DASHES = ("-", "--", ":", "-.")
_STYLE = {
    "font.family": "DejaVu Sans", "font.size": 7, "axes.titlesize": 7, "axes.labelsize": 7, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "text.color": INK, "axes.labelcolor": MUTED, "axes.edgecolor": MUTED,
    "xtick.color": MUTED, "ytick.color": MUTED, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.5, "lines.linewidth": 1.3,
    "pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "graphsilo",
}  # fmt: skip

Panel: TypeAlias = "Callable[[Any], None]"
"""Draws itself into matplotlib's axes."""


@dataclass(frozen=True)
class Curve:
    """A line along rounds: the mean over seeds, and a band from the lowest to the highest.

    Attributes:
        label: Stands at the end of the line.
        points: Of every seed, round to value.
    """

    label: str
    points: Sequence[dict[int, float]]

    def summary(self) -> list[tuple[int, float, float, float]]:
        """Round, mean, lowest and highest, over the rounds that all seeds reached."""
        common = sorted(set.intersection(*map(set, self.points))) if self.points else []
        return [
            (x, fmean(each), min(each), max(each)) for x in common for each in [[seed[x] for seed in self.points]]
        ]  # fmt: skip


def curves(series: Sequence[Curve], *, x: str, y: str, title: str = "") -> Panel:
    """Lines with bands, named where they end."""

    def draw(axes: Any) -> None:
        ends = []
        for place, one in enumerate(series):
            found = one.summary()
            if not found:
                continue
            rounds, means, lows, highs = zip(*found, strict=True)
            colour = SERIES[place % len(SERIES)]
            axes.plot(rounds, means, color=colour, linestyle=_DASHES[place // len(SERIES) % len(_DASHES)])
            if len(one.points) > 1:
                axes.fill_between(rounds, lows, highs, color=colour, alpha=0.18, linewidth=0)
            ends.append((means[-1], one.label, colour))
        _name_ends(axes, ends)
        axes.set(xlabel=x, ylabel=y)
        axes.set_title(title, loc="left")
        axes.grid(visible=False, axis="x")
        axes.xaxis.get_major_locator().set_params(integer=True)

    return draw


def _name_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names to the right of the lines' ends, moved apart where they would cover each other."""
    low, high = axes.get_ylim()
    least = 0.085 * (high - low)
    places: list[float] = []
    ordered = sorted(ends)
    for value, _, _ in ordered:
        places.append(max(value, places[-1] + least) if places else value)
    excess = max(0.0, places[-1] - high) if places else 0.0
    for place, (value, label, colour) in zip(places, ordered, strict=True):
        axes.annotate(
            label, (1.0, value), (1.02, place - excess * (place > low + least)), color=colour, va="center",
            xycoords=axes.get_yaxis_transform(), textcoords=axes.get_yaxis_transform(), annotation_clip=False,
        )  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One line of ``changes``: a name, and its value before and after."""

    name: str
    before: float
    after: float


def changes(rows: Sequence[Change], *, x: str, before: str, after: str, title: str = "") -> Panel:
    """An arrow for each row, from before to after, in the order of gain; those that lose are vermilion."""
    ordered = sorted(rows, key=lambda row: row.after - row.before)

    def draw(axes: Any) -> None:
        for place, row in enumerate(ordered):
            colour = SERIES[1] if row.after < row.before else SERIES[0]
            axes.plot([row.before, row.after], [place, place], color=colour, linewidth=1.0, zorder=1)
            axes.scatter([row.before], [place], s=14, facecolor="white", edgecolor=colour, linewidth=1.0, zorder=2)
            axes.scatter([row.after], [place], s=14, color=colour, zorder=3)
        axes.set_yticks(range(len(ordered)), [row.name for row in ordered])
        axes.set_ylim(-0.6, len(ordered) - 0.4)
        axes.set(xlabel=f"{x}: ○ {before}, ● {after}")
        axes.set_title(title, loc="left")
        axes.grid(visible=False, axis="y")

    return draw


@dataclass(frozen=True)
class Score:
    """One line of ``scores``: a name, its mean and its deviation, or None."""

    name: str
    mean: float
    std: float | None


def scores(rows: Sequence[Score], *, x: str, title: str = "") -> Panel:
    """A dot and its deviation for each row, the first row on top; the value stands beside it."""

    def draw(axes: Any) -> None:
        for place, row in enumerate(rows):
            colour = SERIES[place % len(SERIES)]
            if row.std is not None:
                axes.plot([row.mean - row.std, row.mean + row.std], [place, place], color=colour, linewidth=1.0)
            axes.scatter([row.mean], [place], s=16, color=colour, zorder=3)
            axes.annotate(f"{row.mean:.1f}", (row.mean, place), (0, 4), textcoords="offset points", ha="center")
        axes.set_yticks(range(len(rows)), [row.name for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.8)
        axes.set(xlabel=x)
        axes.set_title(title, loc="left")
        axes.grid(visible=False, axis="y")

    return draw


def figure(panels: Sequence[tuple[Panel, float]], *, width: float = COLUMN) -> Any:
    """A figure of panels, one below the other.

    Args:
        panels: Each with its height in inches.
        width: Inches.

    Returns:
        A ``matplotlib.figure.Figure``, which shows itself in a notebook.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    matplotlib = library("matplotlib", "figures")
    with matplotlib.rc_context(_STYLE):
        made = _figure_class()(figsize=(width, sum(height for _, height in panels)), layout="constrained")
        heights = [height for _, height in panels]
        grid = made.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
        for (draw, _), axes in zip(panels, grid[:, 0], strict=True):
            draw(axes)
    return made


def _figure_class() -> Any:
    """A figure that notebooks show without pyplot, whose state is the whole process's."""
    import io

    from matplotlib import rc_context
    from matplotlib.figure import Figure

    class Drawing(Figure):
        def _repr_svg_(self) -> str:
            text = io.StringIO()
            with rc_context(_STYLE):
                self.savefig(text, format="svg", metadata={"Date": None})
            return text.getvalue()

    return Drawing


def save(drawn: Any, path: Path) -> Path:
    """Write a figure as PDF, SVG or PNG, by the file's name. The same figure gives the same bytes.

    Raises:
        ConfigError: Its name ends otherwise.
        RunError: It cannot be written.
    """
    check_path(path)
    from matplotlib import rc_context

    date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(path.suffix[1:].lower())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context(_STYLE):
            drawn.savefig(path, dpi=300, metadata=date)
    except OSError as error:
        raise RunError(f"the figure {path} cannot be written ({error.strerror}).") from None
    return path


def check_path(path: Path) -> None:
    """Refuse a file whose name does not say what it is to be.

    Raises:
        ConfigError: It does not.
    """
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"a figure is a .pdf, .svg or .png file; got '{path}'.")
