"""Figures as pictures: ticks, places of names, and text that stays text."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graphsilo.report.plot import Axis, Bars, Dots, Figure, Heat, Line, Plot
from graphsilo.report.svg import draw


def pictures(plot: Plot, height: int = 200) -> list[str]:
    [(_, found)] = draw(Figure("x", "", "", height, {"a": plot}))
    return [picture for _, picture in found]


def test_a_line_is_where_its_values_are() -> None:
    wide, narrow = pictures(Plot(Axis("Round", whole=True), Axis(low=0, high=100), (Line("Test", [1, 3], [0, 100]),)))
    for picture in (wide, narrow):
        [path] = re.findall(r'<path class="s0 d0" data-name="Test" d="M([^"]+)"', picture)
        (x0, y0), (x1, y1) = (map(float, point.split()) for point in path.split("L"))
        ends = [float(end) for end in re.findall(r'data-scales="([^"]+)"', picture)[0].split(",")]
        assert ends == [1, 3, x0, x1, 0, 100, y0, y1]
        assert re.findall(r'class="tick"[^>]*text-anchor="middle">([^<]+)', picture) == ["1", "2", "3"]  # no round 1.5
        assert picture.count(">Test</text>") == 1


def test_a_band_goes_there_and_back() -> None:
    wide, _ = pictures(Plot(Axis(), Axis(low=0, high=10), (Line("", [0, 1], [5, 5], low=[4, 4], high=[6, 6]),)))
    [band] = re.findall(r'class="band f0" d="M([^"]+)Z"', wide)
    heights = [float(point.split()[1]) for point in band.split("L")]
    assert heights[:2] == heights[:1] * 2
    assert heights[2:] == heights[2:3] * 2
    assert heights[0] < heights[2]  # upper edge first


def test_long_names_stand_above_the_plot() -> None:
    line = Line("a name that would take half of the width of it", [0, 1], [0, 1])
    for picture in pictures(Plot(Axis(), Axis(), (line,))):
        x = re.findall(r'class="t0" x="([0-9.]+)"', picture)
        assert [float(at) for at in x] == [23.0]


def test_a_large_heat_map_is_an_image_and_a_small_one_has_cells() -> None:
    names = tuple(map(str, range(40)))
    small = Heat(np.full((2, 2), 50.0), 100.0, np.array([[1, 2], [3, 4000]]), written=True)
    wide, _ = pictures(Plot(Axis(names=("a", "b")), Axis(names=("c", "d")), (small,)))
    assert re.findall(r'data-tip="([^"]+)"', wide) == [
        "c, a: 1, 50.0 %", "c, b: 2, 50.0 %", "d, a: 3, 50.0 %", "d, b: 4\u202f000, 50.0 %",
    ]  # fmt: skip
    assert wide.count('<rect class="h6"') == 4 + 1  # of them one in the key: half of 0 to 12
    large = Heat(np.full((40, 40), 50.0), 100.0)
    wide, _ = pictures(Plot(Axis(names=names), Axis(names=names), (large,)))
    assert "data:image/png;base64,iVBOR" in wide
    assert len(wide) < 20_000


def test_bars_begin_at_zero_and_dots_have_their_reach() -> None:
    plot = Plot(Axis(), Axis(names=("north", "south")), (Bars([1.0, 2.0]),))
    widths = [float(width) for width in re.findall(r'<rect class="f0"[^>]* width="([0-9.]+)"', pictures(plot)[0])]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    plot = Plot(Axis(low=0, high=100), Axis(names=("a",)), (Dots("", [50.0], [0], reach=[(0.0, 100.0)]),))
    wide = pictures(plot)[0]
    [(left, right)] = re.findall(r'class="reach s0" d="M([0-9.]+) [0-9.]+H([0-9.]+)"', wide)
    [middle] = re.findall(r'<circle class="f0" cx="([0-9.]+)"', wide)
    assert (float(left) + float(right)) / 2 == pytest.approx(float(middle), abs=0.1)


HOSTILE = "</svg><script>alert(1)</script>\"'&"


@pytest.mark.parametrize(
    "plot",
    [
        Plot(Axis(HOSTILE), Axis(HOSTILE), (Line(HOSTILE, [0, 1], [0, 1]),)),
        Plot(Axis(), Axis(names=(HOSTILE,)), (Dots(HOSTILE, [1], [0], tips=[HOSTILE], labels=[HOSTILE]), Bars([1.0]))),
        Plot(Axis(names=(HOSTILE,)), Axis(names=(HOSTILE,)), (Heat(np.ones((1, 1)), 1.0, unit=HOSTILE),)),
    ],
)
def test_text_stays_text(plot: Plot) -> None:
    for picture in pictures(plot):
        assert "<script" not in picture
        assert picture.count("</svg>") == 1
        assert not re.search(r'"[^"<>=]*"[^\s/>]', picture)  # no attribute is left early


def test_nothing_is_not_a_number() -> None:
    for values in ([], [1.0], [1.0, 1.0], [float("nan"), 1.0]):
        for picture in pictures(Plot(Axis(), Axis(), (Line("a", range(len(values)), values),))):
            assert not re.search("inf|nan", picture)
