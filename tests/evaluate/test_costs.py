"""Numbers of tables that are no scores."""

from __future__ import annotations

import pytest

from graphsilo.evaluate.costs import COSTS, COURSE
from graphsilo.evaluate.metrics import METRICS, metric_of


@pytest.mark.parametrize("name", [*COURSE, *COSTS])
def test_a_cost_is_a_plain_number_of_which_less_is_better(name: str) -> None:
    found = metric_of(f"aggregate.{name}")
    assert found is {**COURSE, **COSTS}[name]
    assert (found.is_share, found.higher_is_better, found.factor) == (False, False, 1)


def test_what_is_in_no_table_is_shown_as_it_stands() -> None:
    found = metric_of("my_number")
    assert (found.title, found.is_share, found.higher_is_better) == ("My number", False, True)
    assert "my_number" not in METRICS
