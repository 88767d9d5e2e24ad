"""Times of nodes and links, in days since 1970-01-01, and which of them can hardly be meant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_STEPS = 3650
"""Days since 1970-01-01 below which numbers are taken for steps, such as weeks, and not for dates."""
_LAST = 2_932_896
"""9999-12-31, the last day that has a name."""
_STAND_INS = [float(np.datetime64(day, "D").astype(np.int64)) for day in (
    "0001-01-01", "1753-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1970-01-01", "2099-12-31", "9999-12-31",
)]  # fmt: skip
"""Days that programs write for one that nobody knows."""


def are_steps(days: NDArray[np.float64]) -> bool:
    """Whether times are numbers of something else than days since 1970-01-01."""
    return bool((days.min() >= 0 and days.max() < _STEPS) or np.abs(days).max() > _LAST)


def show_time(time: float, among: NDArray[np.float64] | None = None) -> str:
    """For people: the date, or the number where times are steps.

    Args:
        time: Days since 1970-01-01, or steps.
        among: The times that it stands among; none: it is alone.

    Example:
        >>> show_time(20_000.5), show_time(44_484), show_time(12)
        ('2024-10-04', '2091-10-17', '12')
    """
    if are_steps(np.array([time]) if among is None else among):
        return f"{time:g}"
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(time)), "D"))


def usual_range(days: NDArray[np.float64]) -> tuple[float, float]:
    """The first and the last time but for those that lie further from nearly all others than these lie apart."""
    low, high = np.quantile(days, (0.02, 0.98), method="nearest")
    span = max(high - low, 1.0)
    near = days[(days >= low - span) & (days <= high + span)]
    return float(near.min()), float(near.max())


def far_dates(days: NDArray[np.float64]) -> Iterator[str]:
    """A sentence for those that are far before, and far after, nearly all others, such as 1900-01-01 for an unknown
    one."""
    stands_in = np.isin(np.floor(days), () if are_steps(days) else _STAND_INS)
    usual = days if stands_in.all() else days[~stands_in]
    first, last = usual_range(usual)
    low, high = np.quantile(usual, (0.02, 0.98), method="nearest")
    before = (days < first) | (stands_in & (days < low))
    after = (days > last) | (stands_in & (days > high))
    for what, far in (("before", before), ("after", after)):
        if far.any():
            edge = days[far].min() if what == "before" else days[far].max()
            begin, end, furthest = (show_time(float(each), days) for each in (low, high, edge))
            yield (
                f"{_rows(far)} dated long {what} nearly all others ({begin} to {end}), up to {furthest}: a slip, or a "
                f"word for an unknown date? List such words under `empty` of the table"
            )


def later_than(days: NDArray[np.float64], today: float) -> Iterator[str]:
    """A sentence for times of what has happened that are later than today."""
    ahead = days >= today + 2  # today may have begun elsewhere
    if ahead.any() and not are_steps(days):
        yield f"{_rows(ahead)} dated later than today, up to {show_time(days.max(), days)}: is the year right?"


def _rows(which: NDArray[np.bool_]) -> str:
    return "one row is" if which.sum() == 1 else f"{which.sum()} rows are"
