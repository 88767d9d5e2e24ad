"""What the page says of a score as time goes on."""

from __future__ import annotations

import pytest

from graphsilo.report.periods import describe_fall

MONTHS = [f"2025-{month:02}" for month in range(1, 9)]


@pytest.mark.parametrize(("values", "name", "text"), [
    ([0.6, 0.62, 0.61, 0.6, 0.41, 0.4, 0.42, 0.4], "ap", "From 2025-05 on average precision is lower: 40.8 % on "
     "average, after 60.7 %."),
    ([0.6, 0.62, 0.61, 0.6, 0.41, 0.4, 0.42, 0.4], "mae", "MAE does not rise by more than it varies from period to "
     "period."),
    ([3.0, 3.1, 2.9, 3.0, 5.1, 5.0, 5.0, 4.9], "mae", "From 2025-05 on MAE is higher"),
    ([0.6, 0.4, 0.6, 0.4, 0.6, 0.4, 0.6, 0.4], "ap", "Average precision does not fall by more than it varies"),
    ([0.6, None, 0.4, 0.3, None], "ap", "There are too few periods to say whether average precision falls."),
    ([0.5, 0.5, 0.5, 0.5], "ap", "does not fall"),
])  # fmt: skip
def test_when_the_score_falls(values, name, text):
    assert text in describe_fall(MONTHS[: len(values)], values, [10.0] * len(values), name)
