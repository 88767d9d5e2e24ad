"""Periods of the test part: which there are, and what is scored of them."""

from __future__ import annotations

import datetime
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphsilo.errors import ConfigError
from graphsilo.experiments.config import EvaluationConfig, load_config
from graphsilo.experiments.periods import divide, name_periods, period_bounds
from graphsilo.experiments.runner import run
from graphsilo.report import write
from kit.pages import Page


def days(text: str) -> float:
    return float((datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days)


@pytest.mark.parametrize(("low", "high", "names"), [
    ("2024-01-05", "2024-06-20", [f"2024-{month:02}" for month in range(1, 7)]),
    ("2019-03-01", "2023-06-20", ["2019", "2020", "2021", "2022", "2023"]),
    ("2024-01-10", "2024-02-04", ["2024-01-08", "2024-01-15", "2024-01-22", "2024-01-29"]),
    ("2024-01-10", "2024-01-11", ["2024-01-10", "2024-01-11"]),
])  # fmt: skip
def test_whole_years_months_weeks_or_days(low, high, names):
    assert name_periods(divide(days(low), days(high))) == names


def test_steps_that_are_numbers():
    assert name_periods(divide(40.0, 49.0)) == [f"{step}" for step in range(40, 50)]
    assert divide(40.0, 40.0) == divide(days("2024-01-10"), days("2024-01-10")) == []


@given(st.floats(0, 20000), st.floats(0, 3000))
def test_every_time_is_in_one_of_few_periods(low, length):
    bounds = divide(low, low + length)
    assert len(bounds) != 1
    assert len(bounds) <= 13
    times = np.linspace(low, low + length, 50)
    place = np.searchsorted(bounds, times, side="left") - 1
    assert not len(bounds) or (place.min() >= 0 and place.max() < len(bounds) - 1)


def test_a_slip_of_the_year_is_in_no_period():
    times = np.array([*np.arange(days("2025-01-01"), days("2025-07-01")), days("2091-10-17")])
    participants = SimpleNamespace(test_times=[times], schema=SimpleNamespace(task="node", num_classes=2))
    found = name_periods(period_bounds(EvaluationConfig(), participants))
    assert found == [f"2025-0{month}" for month in range(1, 7)]


def test_periods_that_are_named():
    named = EvaluationConfig(periods=["2025-06-30", "2025-07-31", "2025-08-31"])
    assert name_periods(period_bounds(named, None)) == ["2025-07", "2025-08"]
    assert name_periods(period_bounds(EvaluationConfig(periods=[29, 39, 49]), None)) == ["> 29", "> 39"]
    for wrong in (["2025-06-30"], ["2025-06-30", "2025-06-01"]):
        with pytest.raises(ConfigError, match="last day before the first period"):
            period_bounds(EvaluationConfig(periods=wrong), None)


@pytest.mark.slow
@pytest.mark.parametrize("report", ["silos", "federation"])
def test_a_run_by_periods_and_its_page(tmp_path, report):
    config = {
        "data.name": "bank", "data.generator": {"transfers": 20_000}, "partition.split": "time",
        "method.name": "fedridge", "evaluation.report": report,
    }  # fmt: skip
    result = run(load_config(overrides=config), out=tmp_path / "run")
    seed = result.tree["seeds"][0]
    assert sum(period["items"] for period in seed["periods"]) == sum(map(sum, seed["score_bins"]["places"]))
    shares = [period["items"] * period["share"] for period in seed["periods"]]
    assert sum(shares) == pytest.approx(sum(seed["score_bins"]["places"][1]))
    assert json.loads((tmp_path / "run" / "result.json").read_text())["seeds"][0]["periods"] == seed["periods"]
    page = Page(write(tmp_path / "run").read_text())
    assert page.open == []
    for text in ("As time goes on", "Share of the class looked for", "What is found of the class", "On the thin line"):
        assert text in page.words
