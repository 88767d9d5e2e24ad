"""Periods of the test part: how a model does as time goes on.

A period is what is later than one bound and not later than the next. The bounds are in the questions that silos are
asked, so that all of them count the same periods, and what they answer is counted like any other kind of items.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from graphsilo.data.dates import are_steps, show_time, usual_range
from graphsilo.data.partition.time_splits import last_time
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import EvaluationConfig
from graphsilo.experiments.participants import Participants
from graphsilo.federation.rank_scoring import MOST_PERIODS
from graphsilo.types import TARGET_TASKS

FEWEST, MOST = 4, 12
"""How many periods there are, where times allow it and nobody names them."""
MANY_CLASSES = 20
"""With more classes tables of hits and misses are large, and periods are scored only where they are named."""
_EPOCH = datetime.date(1970, 1, 1)


def period_bounds(config: EvaluationConfig, participants: Participants) -> list[float]:
    """Bounds of the periods of the test part, ascending, in days since 1970-01-01 or in what numbers times are; empty
    where there are none. Times far from nearly all others, such as slips of the year, are in no period.

    Raises:
        ConfigError: Those that were named are not ascending, fewer than two, or more than silos score.
    """
    if config.periods is not None:
        bounds = [last_time(moment) for moment in config.periods]
        if len(bounds) == 1 or any(first >= second for first, second in pairwise(bounds)):
            raise ConfigError(
                f"evaluation.periods are the last day before the first period and the last day of each, in order: two "
                f"days at least; got {', '.join(map(str, config.periods))}."
            )
        if len(bounds) > MOST_PERIODS + 1:
            raise ConfigError(
                f"evaluation.periods name {len(bounds) - 1} periods, and silos score {MOST_PERIODS} at most: of single "
                f"days, tables would tell when each item is looked at. Name longer ones."
            )
        return bounds
    schema = participants.schema
    if schema.task not in ("node", *TARGET_TASKS) or schema.num_classes > MANY_CLASSES:
        return []
    times = np.concatenate([np.zeros(0), *participants.test_times])
    times = times[~np.isnan(times)]
    return divide(*usual_range(times)) if len(times) else []


def divide(low: float, high: float) -> list[float]:
    """Bounds of whole years, quarters, months, weeks or days: of the longest ones of which there are ``FEWEST``, so
    many at a time that there are ``MOST`` at most; empty where there is but one.

    Example:
        >>> len(divide(19723.0, 19723.0 + 181))  # half a year from 2024-01-01 on
        7
    """
    begins: list[float] = []
    if are_steps(np.array([low, high])):
        step = 1.0 if float(low).is_integer() and float(high).is_integer() else (high - low) / FEWEST
        begins = [low] if not step else np.arange(low, high + step / 2, step).tolist()
    else:
        first, last = (_EPOCH + datetime.timedelta(days=int(np.floor(each))) for each in (low, high))
        for begin_of in _UNITS:
            days = range((last - first).days + 1)
            distinct = dict.fromkeys(begin_of(first + datetime.timedelta(days=day)) for day in days)
            begins = [float((day - _EPOCH).days) for day in distinct]
            if len(begins) >= FEWEST:
                break
    if len(begins) < 2:
        return []
    begins = begins[:: -(-len(begins) // MOST)]
    return [*np.nextafter(begins, -np.inf).tolist(), high]


_UNITS: tuple[Callable[[datetime.date], datetime.date], ...] = (
    lambda day: day.replace(month=1, day=1),
    lambda day: day.replace(month=day.month - (day.month - 1) % 3, day=1),
    lambda day: day.replace(day=1),
    lambda day: day - datetime.timedelta(days=day.weekday()),
    lambda day: day,
)
"""The day on which the year, quarter, month, week or day of a day begins."""


def name_periods(bounds: Sequence[float]) -> list[str]:
    """The first day of each; its month or year where all begin with one. Of a number that was named it is said that the
    period is later."""
    names = [
        f"> {bound:g}" if float(bound).is_integer() else show_time(float(np.nextafter(bound, np.inf)))
        for bound in bounds[:-1]
    ]
    for end in ("-01-01", "-01"):
        if all(name.endswith(end) for name in names):
            return [name.removesuffix(end) for name in names]
    return names
