"""From values to places in a picture: scales, round ticks, and names that keep apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphsilo.report.plot import Axis, Bars, Dots, Line, Plot


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(max(value, self.low) / self.low) / (math.log(self.high / self.low) or 1.0)
        else:
            share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + (self.end - self.start) * share

    def ticks(self, apart: float, whole: bool) -> list[float]:
        """Round values, at least ``apart`` pixels from each other unless there would be only one."""
        if self.log:
            decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            if len(decades) > 1:
                every = max(1, math.ceil(len(decades) * apart / abs(self.end - self.start)))
                every = min(every, len(decades) - 1)
                return [10.0**power for power in decades[::every]]
            return [self.low, self.high]
        room = max(1, int(abs(self.end - self.start) / apart))
        step = nice((self.high - self.low) / room)
        step = max(1.0, float(round(step))) if whole else step
        found = self._multiples(step)
        # One number alone does not say how far it is to anything.
        while len(found) < 2 and self.low < self.high and (step > 1 or not whole):
            step = nice(step / 2.5)
            step = max(1.0, float(round(step))) if whole else step
            found = self._multiples(step)
        return found

    def _multiples(self, step: float) -> list[float]:
        first = math.ceil(self.low / step - 1e-9)
        return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice(step: float) -> float:
    """The next of 1, 2, 5, 10, … at least as large.

    Example:
        >>> nice(0.3), nice(7)
        (0.5, 10.0)
    """
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def number(value: float) -> str:
    """A tick's value: 0.25, 12, 1.5 k where thousands would not fit."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.6g}".replace(",", "\u202f").replace("-", "−")


def limits(plot: Plot, direction: int) -> tuple[float, float]:
    """The ends of an axis: those that it has, else where the marks end, with a little room."""
    axis: Axis = (plot.x, plot.y)[direction]
    if axis.names:
        return -0.5, len(axis.names) - 0.5
    values: list[float] = []
    for mark in plot.marks:
        if isinstance(mark, Line):
            values += (
                mark.x if direction == 0 else [value for value in (*mark.y, *mark.low, *mark.high) if value is not None]
            )
        elif isinstance(mark, Dots):
            values += mark.x if direction == 0 else mark.y
            if bool(plot.y.names) == (direction == 0):
                values += [edge for edges in mark.reach for edge in edges]
        elif isinstance(mark, Bars):
            along_x = not mark.at
            if along_x == (direction == 0):
                values += [0.0, *(value for value in mark.values if value is not None)]
            else:
                values += [edge for at in mark.at for edge in (at - mark.width / 2, at + mark.width / 2)]
    values = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if axis.log:
        return (axis.low or low / 1.15), (axis.high or high * 1.15)
    pad = 0.0 if any(isinstance(mark, Bars) for mark in plot.marks) else 0.04 * (high - low)
    if direction == 0 and any(isinstance(mark, Line) for mark in plot.marks):
        pad = 0.0
    if high - low <= 1e-12 * max(1.0, abs(high)):
        pad = max(0.5 if axis.whole else 0.05 * abs(high), 1e-6)
    return (low - pad if axis.low is None else axis.low), (high + pad if axis.high is None else axis.high)


def apart(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Places near those wanted and at least ``least`` from each other, in the same order of size.

    Example:
        >>> apart([10, 11, 40], 8, 0, 100)
        [6.5, 14.5, 40.0]
    """
    groups: list[list[float]] = []  # of each: sum of wanted places less their offsets, and how many
    for at in sorted(wanted):
        groups.append([at, 1])
        while len(groups) > 1:
            (above, many), (below, more) = groups[-2:]
            first = above / many - least * (many - 1) / 2
            second = below / more - least * (more - 1) / 2
            if first + least * many <= second + 1e-9:
                break
            groups[-2:] = [[above + below, many + more]]
    placed: list[float] = []
    for total, many in groups:
        first = total / many - least * (many - 1) / 2
        placed += [first + least * place for place in range(int(many))]
    if placed:
        shift = max(0.0, low - placed[0]) - max(0.0, placed[-1] - high)
        placed = [at + shift for at in placed]
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    return [at for _, at in sorted(zip(order, placed, strict=True))]
