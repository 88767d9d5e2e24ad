"""Colours that can be told apart, and figures that plotly takes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from graphsilo.report import comparison_page, plot, run_page
from graphsilo.report.record import load


def test_plotly_accepts_every_figure(runs: dict[str, Path]) -> None:
    import plotly.graph_objects as graph_objects

    loaded = [load(path) for path in runs.values()]
    drawn = run_page.describe(loaded[0])[1] + comparison_page.describe(loaded)[1]
    assert len(drawn) == 14
    assert len({figure.name for figure in drawn}) == len(drawn)
    for figure in drawn:
        for each in figure.plots.values():
            graph_objects.Figure(each)  # raises on an unknown property


def test_every_colour_has_a_dark_one(runs: dict[str, Path]) -> None:
    _, drawn = run_page.describe(load(runs["fedavg"]))
    used = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", repr([figure.plots for figure in drawn])))
    assert used
    assert used <= set(plot.DARK)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", list(plot.SERIES.items()))
def test_series_stand_out_from_both_pages(colours: tuple[str, str]) -> None:
    light, dark = colours
    assert contrast(light, "#ffffff") >= 3
    assert contrast(dark, "#191f27") >= 3
