"""How numbers become text."""

from __future__ import annotations

import math

import pytest

from graphsilo.report import formats


def test_spread_is_the_sample_deviation_over_the_known_values() -> None:
    # (0.5, 1.0): mean 0.75, squares 2 * 0.25^2 = 0.125, divided by n - 1 = 1
    found = formats.spread([0.5, None, 1.0, math.nan])
    assert found is not None
    assert (found.mean, found.count) == (0.75, 2)
    assert found.std == pytest.approx(math.sqrt(0.125))


def test_one_seed_has_no_spread() -> None:
    assert formats.plus_minus(formats.spread([0.7934])) == "79.3"
    assert formats.spread([None]) is None
    assert formats.plus_minus(None) == formats.MISSING


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_999, "1.0 MB"), (2.5e12, "2.5 TB")],
)
def test_data_size(value: float, text: str) -> None:
    assert formats.data_size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.02, "20 ms"), (10.72, "10.7 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (None, "–")]
)
def test_duration(value: float | None, text: str) -> None:
    assert formats.duration(value) == text


def test_true_is_not_a_number() -> None:
    assert formats.number(True) is None
    assert formats.number("0.5") is None
    assert formats.number(math.inf) is None


def test_a_number_that_is_no_metric_is_not_shown_as_a_percentage() -> None:
    assert formats.metric(0.5, "loss") == "0.500"
    assert formats.metric(0.5, "macro_f1") == "50.0"


def test_names_in_sentences() -> None:
    assert formats.in_sentence("accuracy") == "accuracy"
    assert formats.in_sentence("macro_f1") == "Macro-F1"
    assert formats.join_words(["a", "b", "c"]) == "a, b and c"
    assert formats.integer(13264) == "13\u202f264"
