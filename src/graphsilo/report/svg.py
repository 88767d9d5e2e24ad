"""Figures as SVG, drawn once for a wide and once for a narrow place, so that text keeps its size on a phone.

No script is needed to see them and none of their text is markup. What a script may add (a value under the pointer)
finds what it needs in ``data-`` attributes.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape

import numpy as np

from graphsilo.report.formats import integer
from graphsilo.report.plot import SERIES, STEPS, Bars, Dots, Figure, Heat, Line, Mark, Plot, ramp
from graphsilo.report.scales import Scale, apart, limits, number

WIDTHS = {"wide": 540, "narrow": 326}
"""Pixels of a figure in one of two columns of a page, and on a phone."""
MAX_CELLS = 1200
"""Above this a heat map is an image: a shape for each cell would be a megabyte."""
_LETTER = 6.4
"""About what a letter takes in 12-pixel text."""
_LINE = 14.0


def draw(figure: Figure) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every choice of a figure: its name, and its picture for each of ``WIDTHS`` as (class, SVG)."""
    return [
        (name, [(kind, _picture(plot, width, figure.height)) for kind, width in WIDTHS.items()])
        for name, plot in figure.plots.items()
    ]


def _picture(plot: Plot, width: int, height: int) -> str:
    frame = _Frame(plot, width, height)
    parts = [*frame.axes()]
    for mark in plot.marks:
        parts += _DRAWN[type(mark)](mark, frame)
    parts += frame.names()
    x, y = frame.x, frame.y
    data = ""
    if any(isinstance(mark, Line) for mark in plot.marks):
        ends = [x.low, x.high, x.start, x.end, y.low, y.high, y.start, y.end]
        log = f"{int(x.log)}{int(y.log)}"
        data = (
            f' data-scales="{",".join(f"{end:.6g}" for end in ends)}" data-log="{log}" data-x="{_text(plot.x.title)}"'
        )
    return (
        f'<svg viewBox="0 0 {width} {frame.height:g}" width="{width}" height="{frame.height:g}" aria-hidden="true"'
        f"{data}>{''.join(parts)}</svg>"
    )


class _Frame:
    """Where things are: scales, margins, and the names of lines."""

    def __init__(self, plot: Plot, width: int, height: int):
        self.plot, self.width, self.height = plot, width, float(height)
        self.taken: list[tuple[float, float, float]] = []  # labels of points: from, to, at
        self.lines = [mark for mark in plot.marks if isinstance(mark, Line) and not mark.quiet]
        self.dots = [mark for mark in plot.marks if isinstance(mark, Dots) and mark.name]
        heat = next((mark for mark in plot.marks if isinstance(mark, Heat)), None)
        named = [line.name for line in self.lines if line.name]
        end = max((_wide(name) for name in named), default=0.0) + 10
        # Names stand at the ends of lines; where they would take the plot's place, above it
        self.above = end > 0.27 * width
        self.keys = [(line.name, line.series, "line", line.dash) for line in self.lines] if self.above else []
        if len(self.dots) > 1 or (self.dots and self.lines):
            self.keys += [(mark.name, mark.series, "ring" if mark.hollow else "dot", 0) for mark in self.dots]
        names = plot.y.names
        top = 8.0 + (_LINE if plot.y.title else 0)
        self.key_rows = _rows([name for name, *_ in self.keys], width)
        top += (_LINE + 4) * len(self.key_rows) + (30 if heat is not None else 0)
        bottom = 24.0 + (_LINE + 2 if plot.x.title else 0)
        right = 12.0 if self.above or not named else end
        dots = [mark for mark in plot.marks if isinstance(mark, Dots)]
        labels = max((_wide(label) for mark in dots for label in mark.labels), default=0.0)
        x_low, x_high = limits(plot, 0)
        y_low, y_high = limits(plot, 1)
        left = 12.0
        if names:
            left = min(0.42 * width, max(map(_wide, names), default=0.0)) + 12
        self.y = Scale(y_low, y_high, self.height - bottom, top, plot.y.log)
        if names:  # from top to bottom, as a table
            self.y = replace(self.y, start=top, end=self.height - bottom)
        self.y_ticks = [] if names else self.y.ticks(34, plot.y.whole)
        if not names:
            left = max((_wide(number(tick)) for tick in self.y_ticks), default=0.0) + 12
        self.left, self.right, self.top, self.bottom = left, width - right, top, self.height - bottom
        self.x = Scale(x_low, x_high, left, self.right - (min(labels + 6, 0.3 * width) if labels else 0), plot.x.log)
        wanted = 34 + 7 * len(f"{x_high:.0f}" if x_high >= 10 else number(x_high))
        self.x_ticks = [] if plot.x.names else self.x.ticks(wanted, plot.x.whole)

    def axes(self) -> list[str]:
        """Grid, ticks and titles; names of places instead of ticks where an axis has them."""
        plot, found = self.plot, []
        if plot.y.title:
            found.append(_label(0, 12, plot.y.title, "axis"))
        row = 12 + (_LINE + 4 if plot.y.title else 0)
        for keys in self.key_rows:
            at = 0.0
            for position in keys:
                name, series, kind, dash = self.keys[position]
                series %= len(SERIES)
                sign = {
                    "line": f'<path class="s{series} d{dash}" d="M{at:g} {row - 4:g}h18"/>',
                    "dot": f'<circle class="f{series}" cx="{at + 9:g}" cy="{row - 4:g}" r="4"/>',
                    "ring": f'<circle class="ring s{series}" cx="{at + 9:g}" cy="{row - 4:g}" r="4"/>',
                }[kind]
                found.append(sign + _label(at + 23, row, name, f"t{series % len(SERIES)}"))
                at += 23 + _wide(name) + 16
            row += _LINE + 4
        if not plot.y.names:
            for tick in self.y_ticks:
                at = self.y(tick)
                found.append(f'<path class="grid" d="M{self.left:g} {at:.1f}H{self.right:g}"/>')
                found.append(_label(self.left - 7, at + 4, number(tick), "tick", "end"))
        else:
            step = abs(self.y(1) - self.y(0))
            apart = max(1, math.ceil(12 / step)) if step else 1
            room = int((self.left - 10) / _LETTER)
            for place, name in list(enumerate(plot.y.names))[::apart]:
                short = name if len(name) <= room else f"{name[: max(1, room - 1)]}…"
                found.append(_label(self.left - 8, self.y(place) + 4, short, "name", "end"))
        if plot.x.names:
            found += self._x_names()
        else:
            for tick in self.x_ticks:
                at = self.x(tick)
                if plot.y.names:
                    kind = "grid zero" if tick == 0 and self.x.low < 0 else "grid"
                    found.append(f'<path class="{kind}" d="M{at:.1f} {self.top:g}V{self.bottom:g}"/>')
                else:
                    found.append(f'<path class="grid" d="M{at:.1f} {self.bottom:g}v4"/>')
                found.append(_label(at, self.bottom + 17, number(tick), "tick", "middle"))
        if plot.x.title:
            found.append(_label(self.right, self.height - 3, plot.x.title, "axis", "end"))
        return found

    def _x_names(self) -> list[str]:
        names = self.plot.x.names
        if not any(names):
            return []
        step = abs(self.x(1) - self.x(0))
        room = max(1, int((step - 3) / _LETTER))
        longest = max(map(len, names))
        if longest <= room or self.plot.x.thinned:
            every = max(1, math.ceil((longest * _LETTER + 3) / step)) if step else 1
            shown = list(enumerate(names))[::every]
            return [_label(self.x(i), self.bottom + 15, name, "name", "middle") for i, name in shown]
        # Too long to stand side by side: numbered, with the numbers' names in the rows
        return [_label(self.x(i), self.bottom + 15, str(i + 1), "name", "middle") for i in range(len(names))]

    def names(self) -> list[str]:
        """Names of lines at their ends, none on another; a single point has its name beside it."""
        ends, found = [], []
        for line in () if self.above else self.lines:
            known = _drop_missing(line)
            if len(known) == 1:
                found.append(_label(*self.beside(*known[0], line.name), line.name, f"t{line.series % len(SERIES)}"))
            elif known and line.name:
                ends.append((self.y(known[-1][1]), line))
        places = apart([at for at, _ in ends], _LINE, self.top + 4, self.bottom)
        for place, (_, line) in zip(places, ends, strict=True):
            found.append(_label(self.right + 7, place + 4, line.name, f"t{line.series % len(SERIES)}"))
        return found

    def beside(self, x: float, y: float, text: str) -> tuple[float, float]:
        """Where the label of a point stands: right of it, on no other label, as near as that allows."""
        left, wanted = self.x(x) + 9, self.y(y) + 4
        others = [at for start, end, at in self.taken if start < left + _wide(text) and left < end]
        steps = (wanted + sign * count * _LINE / 2 for count in range(2 * len(others) + 2) for sign in (1, -1))
        inside = (at for at in steps if self.top + 8 <= at <= self.bottom + 4)
        found = next((at for at in inside if all(abs(at - other) >= _LINE - 1 for other in others)), wanted)
        self.taken.append((left, left + _wide(text), found))
        return left, found


# -- marks -----------------------------------------------------------------------------------------------------------


def _line(line: Line, frame: _Frame) -> list[str]:
    points = [(frame.x(x), frame.y(y)) for x, y in _drop_missing(line)]
    if not points:
        return []
    series = line.series % len(SERIES)
    found = []
    if line.low:
        upper = [(frame.x(x), frame.y(y)) for x, y in zip(line.x, line.high, strict=True)]
        lower = [(frame.x(x), frame.y(y)) for x, y in zip(line.x, line.low, strict=True)]
        found.append(f'<path class="band f{series}" d="{_path([*upper, *reversed(lower)])}Z"/>')
    if len(points) == 1:
        return [*found, f'<circle class="f{series}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="4.5"/>']
    quiet = " quiet" if line.quiet else ""
    name = "" if line.quiet else f' data-name="{_text(line.name)}"'
    return [*found, f'<path class="s{series} d{line.dash % 4}{quiet}"{name} d="{_path(points)}"/>']


def _drop_missing(line: Line) -> list[tuple[float, float]]:
    """Its points that have a value."""
    return [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None and math.isfinite(y)]


def _dots(mark: Dots, frame: _Frame) -> list[str]:
    series, found = mark.series % len(SERIES), []
    across = bool(frame.plot.y.names)
    for place, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
        at = frame.x(x), frame.y(y)
        if mark.reach:
            low, high = mark.reach[place]
            span = (
                f"M{frame.x(low):.1f} {at[1]:.1f}H{frame.x(high):.1f}"
                if across
                else f"M{at[0]:.1f} {frame.y(low):.1f}V{frame.y(high):.1f}"
            )
            found.append(f'<path class="reach s{series}" d="{span}"/>')
        tip = f' data-tip="{_text(mark.tips[place])}"' if mark.tips else ""
        size = 2.6 if mark.small else 4.5
        kind = f"ring s{series}" if mark.hollow else f"f{series}"
        found.append(f'<circle class="{kind}"{tip} cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{size}"/>')
    for x, y, text in zip(mark.x, mark.y, mark.labels, strict=False):
        found.append(_label(*frame.beside(x, y, text), text, f"t{series}"))
    return found


def _bars(mark: Bars, frame: _Frame) -> list[str]:
    series, found = mark.series % len(SERIES), []
    for place, value in enumerate(mark.values):
        if value is None:
            continue
        tip = f' data-tip="{_text(mark.tips[place])}"' if mark.tips else ""
        if mark.at:
            left, right = frame.x(mark.at[place] - mark.width / 2), frame.x(mark.at[place] + mark.width / 2)
            top = frame.y(value)
            shape = (
                f'x="{left + 0.5:.1f}" y="{top:.1f}" width="{right - left - 1:.1f}" height="{frame.bottom - top:.1f}"'
            )
        else:
            thick = min(16.0, 0.7 * abs(frame.y(1) - frame.y(0)))
            start = frame.x(max(0.0, frame.x.low))
            shape = (
                f'x="{start:.1f}" y="{frame.y(place) - thick / 2:.1f}" width="{frame.x(value) - start:.1f}" '
                f'height="{thick:.1f}"'
            )
        found.append(f'<rect class="f{series}"{tip} {shape}/>')
    return found


def _heat(mark: Heat, frame: _Frame) -> list[str]:
    rows, columns = mark.values.shape
    shares = np.clip((mark.values - mark.low) / ((mark.top - mark.low) or 1.0), 0, 1)
    steps = np.rint(np.nan_to_num(shares) * (STEPS - 1)).astype(int)
    wide, high = frame.x(1) - frame.x(0), frame.y(1) - frame.y(0)
    left, top = frame.x(mark.left) - wide / 2, frame.y(0) - high / 2
    found = [] if mark.left else _heat_key(mark, frame)
    if mark.values.size > MAX_CELLS:
        place = f'x="{left:.1f}" y="{top:.1f}" width="{wide * columns:.1f}" height="{high * rows:.1f}"'
        data = base64.b64encode(_png(steps)).decode()
        return [*found, f'<image {place} preserveAspectRatio="none" href="data:image/png;base64,{data}"/>']
    x_names, y_names = frame.plot.x.names, frame.plot.y.names
    gap = 1.0 if min(wide, high) > 6 else 0.0
    for row in range(rows):
        for column in np.flatnonzero(~np.isnan(mark.values[row])).tolist():
            count = "" if mark.counts is None else f"{integer(int(mark.counts[row, column]))}, "
            value = f"{mark.values[row, column]:.1f} {mark.unit}".strip()
            tip = f"{y_names[row]}, {x_names[column + mark.left]}: {count}{value}"
            step = steps[row, column]
            found.append(
                f'<rect class="h{step}" data-tip="{_text(tip)}" x="{left + column * wide:.1f}" '
                f'y="{top + row * high:.1f}" width="{wide - gap:.1f}" height="{high - gap:.1f}"/>'
            )
            if mark.written and wide > 22:
                ink = "on" if step > STEPS // 2 else "off"
                found.append(
                    _label(
                        left + (column + 0.5) * wide, top + (row + 0.5) * high + 4,
                        f"{mark.values[row, column]:.{mark.digits}f}", ink, "middle",
                    )
                )  # fmt: skip
    for row, column in mark.framed:
        place = f'x="{left + column * wide + 1:.1f}" y="{top + row * high + 1:.1f}"'
        found.append(f'<rect class="frame" {place} width="{wide - gap - 2:.1f}" height="{high - gap - 2:.1f}"/>')
    return found


def _heat_key(mark: Heat, frame: _Frame) -> list[str]:
    """A cell of each colour, from the least to the top, above the map."""
    y, least = frame.top - 24, number(mark.low)
    start = 21 + _wide(least)
    cells = "".join(
        f'<rect class="h{step}" x="{start + 9 * step:g}" y="{y:g}" width="9" height="9"/>' for step in range(STEPS)
    )
    end = start + 9 * STEPS
    return [
        _label(start - 8, y + 9, least, "tick", "end"),
        cells,
        _label(end + 7, y + 9, f"{number(mark.top)} {mark.unit}", "tick"),
    ]


_DRAWN: dict[type[Mark], Callable[..., list[str]]] = {Line: _line, Dots: _dots, Bars: _bars, Heat: _heat}


# -- pieces ----------------------------------------------------------------------------------------------------------


def _rows(names: Sequence[str], width: float) -> list[list[int]]:
    """Which keys stand in which row above the plot."""
    rows: list[list[int]] = []
    at = 0.0
    for position, name in enumerate(names):
        wide = 23 + _wide(name) + 16
        if not rows or at + wide > width:
            rows.append([])
            at = 0.0
        rows[-1].append(position)
        at += wide
    return rows


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _label(x: float, y: float, text: str, kind: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{where}>{_text(text)}</text>'


def _wide(text: str) -> float:
    return _LETTER * len(text)


def _text(text: str) -> str:
    return escape(str(text), quote=True)


def _png(steps: np.ndarray) -> bytes:
    """A picture with a pixel per cell, in the colours of a heat map."""
    height, width = steps.shape
    colours = b"".join(bytes.fromhex(light[1:]) for light, _ in ramp())
    rows = b"".join(b"\0" + row.tobytes() for row in steps.astype(np.uint8))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, data)
        for kind, data in ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    )
