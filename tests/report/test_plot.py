"""Colours that can be told apart, and figures of a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.report import comparison_page, plot, run_page
from graphsilo.report.grid import compare_runs
from graphsilo.report.record import load


def test_every_figure_has_a_name_of_its_own_and_a_choice(runs: dict[str, Path]) -> None:
    loaded = [load(path) for path in runs.values()]
    drawn = run_page.describe(loaded[0]).figures + comparison_page.describe(loaded, compare_runs(loaded)).figures
    assert [figure.name for figure in drawn] == [
        "curve-rounds", "client-scores", "confusion", "per-class", "label-map", "round-seconds", "compare-rounds",
        "compare-size", "trade-off", "compare-clients", "differences-drawn",
    ]  # fmt: skip
    assert all(figure.plots for figure in drawn)


def test_the_style_names_every_colour_in_light_and_dark() -> None:
    light, dark = plot.palette().split("@media")
    for names in (range(len(plot.SERIES)), range(plot.STEPS)):
        kind = "s" if len(names) == len(plot.SERIES) else "h"
        assert all(f"--{kind}{place}:#" in part for place in names for part in (light, dark))
    assert plot.ramp()[0] == ("#f2f5f9", "#1d242e")
    assert plot.ramp()[-1] == ("#08306b", "#d6ecfb")


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


@pytest.mark.parametrize("colours", plot.inks())
def test_names_in_colour_can_be_read_on_both_pages(colours: tuple[str, str]) -> None:
    light, dark = colours
    assert contrast(light, "#ffffff") >= 4.5
    assert contrast(dark, "#191f27") >= 4.5
