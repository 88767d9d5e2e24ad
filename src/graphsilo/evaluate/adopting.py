"""Metrics that persons bring along, made of the counts that clients send anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphsilo.errors import ConfigError
from graphsilo.evaluate.counts import CELLS
from graphsilo.evaluate.metrics import ADOPTED, GROUPS, METRICS, Metric, Values, group_margins


def adopt(name: str, thing: Any) -> str:
    """Make a metric known that a person brought along; returns its name. ``name`` is where it comes from.

    Raises:
        ConfigError: It is no metric of counts, or has the name of one that graphsilo has.
    """
    if not isinstance(thing, Metric) or thing.counts is None or thing.selects:
        raise ConfigError(
            f"a metric of your own is METRIC = Metric(name, title, meaning, counts=...), computed from counts, which "
            f"silos send anyway, and not from scores; it chooses no round (selects). {name} is another thing."
        )
    for what in ("name", "title"):
        mine = getattr(thing, what)
        if mine in {getattr(each, what) for key, each in METRICS.items() if key not in ADOPTED}:
            raise ConfigError(f"there is a metric with the {what} '{mine}' already; give yours ({name}) another one.")
    wanted = (3, len(GROUPS), 2)[: 3 if thing.per_class or thing.of_rare else 2]
    try:
        found = str(np.shape(thing.counts(group_margins(np.ones((3, CELLS, 2, 2), dtype=np.int64)))))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    if found != str(wanted):
        raise ConfigError(f"metric '{thing.name}' ({name}) gives {found} of margins of two classes, not {wanted}.")
    counts = thing.counts

    def count(margins: Any) -> Values:
        value = np.asarray(counts(margins), dtype=np.float64)
        return np.where(np.isfinite(value), value, np.nan)  # an infinite one is missing, too

    ADOPTED[thing.name] = replace(thing, counts=count)
    return thing.name
