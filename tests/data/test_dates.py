"""Times in days since 1970-01-01."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.dates import far_dates, show_time, usual_range


@pytest.mark.parametrize(("time", "among", "shown"), [
    (44_484.7, None, "2091-10-17"),
    (12.0, None, "12"),
    (12.0, [12.0, 20_000.0], "1970-01-13"),
    (-3.5, None, "1969-12-28"),
    (1.7e9, None, "1.7e+09"),
])  # fmt: skip
def test_a_time_is_shown_as_what_it_is(time, among, shown):
    assert show_time(time, None if among is None else np.array(among)) == shown


def test_slips_of_the_year_are_far():
    days = np.array([*np.arange(20_000.0, 20_100.0), 44_484.0, -25_567.0])
    assert usual_range(days) == (20_000, 20_099)
    before, after = far_dates(days)
    assert "long before" in before
    assert before.endswith("up to 1900-01-01: a slip, or a word for an unknown date? List such words under `empty` of "
                           "the table")  # fmt: skip
    assert "up to 2091-10-17" in after
    assert [*far_dates(days[:100])] == []
