"""Splits by time: what came first is trained on, what came last is tested on, as a model is used."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.dates import are_steps, show_time
from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.rule import Moment, TimeOptions
from graphsilo.data.partition.splits import Ratios, Split, cut_points
from graphsilo.errors import ConfigError, DataError, several
from graphsilo.types import NodeIds

_LISTED = 5
"""Clients that an error names."""


@dataclass(frozen=True)
class _Bounds:
    """The last times of training and of validation."""

    train: float
    val: float


def time_splits(
    graph: Graph, clients: Sequence[NodeIds], ratios: Ratios, options: TimeOptions, names: Sequence[str] = ()
) -> list[Split]:
    """The splits of every client by the times of its nodes; equal times are always on one side.

    Args:
        graph: With times. Nodes without a label or a time are in no split.
        clients: Global ids of each client's nodes.
        ratios: Shares of training, validation and test nodes, where there are no dates: each boundary lies between two
            times, as near to the share as these allow.
        options: The dates, or whose nodes the ratios count; all clients' unless it says ``silo``.
        names: Of all clients, where they have some.

    Returns:
        Global ids, in the order of the client's own list.

    Raises:
        ConfigError: One of the two dates is missing, or they are in the wrong order.
        DataError: Nodes have no times, or too few different ones; or no node of a client is from before the date.
    """
    if graph.time is None:
        raise DataError(
            f"{graph.name} says of no node when it is looked at, and is to be divided by time. Name the column of "
            f"nodes that says it (nodes: {{time: COLUMN}}; of a Graph, time=), or use partition.split=stratified."
        )
    known = (graph.labels >= 0) & ~np.isnan(graph.time)
    usable = [nodes[known[nodes]] for nodes in clients]
    times = [graph.time[nodes] for nodes in usable]
    who = [f"silo '{name}'" for name in names] or [f"client {client}" for client in range(len(clients))]
    if options.train_until is not None or options.val_until is not None:
        found = [_given_bounds(options, np.concatenate(times), graph.name)] * len(clients)
        _check_ranges(found[0], times, graph.name, who)
    elif options.split_by == "silo":
        alone = len(clients) == 1
        found = [_bounds_of(each, ratios, graph.name if alone else name) for name, each in zip(who, times, strict=True)]
    else:
        together = graph.time[np.unique(np.concatenate(usable))]
        found = [_bounds_of(together, ratios, graph.name)] * len(clients)
    return [
        (nodes[when <= bounds.train], nodes[(when > bounds.train) & (when <= bounds.val)], nodes[when > bounds.val])
        for nodes, when, bounds in zip(usable, times, found, strict=True)
    ]


def _given_bounds(options: TimeOptions, times: NDArray[np.float64], name: str) -> _Bounds:
    if options.train_until is None or options.val_until is None:
        given, lacking = ("train_until", "val_until")[:: 1 if options.val_until is None else -1]
        raise ConfigError(
            f"{name}: a split by time needs two dates, and has {given} alone: say {lacking}, too, or leave out both "
            f"and let ratios say it."
        )
    if len(times) and are_steps(times) and isinstance(options.train_until, str):
        raise ConfigError(
            f"{name}: {options.train_until} (train_until) is a date, and times of nodes are numbers from "
            f"{times.min():g} to {times.max():g}: give numbers of that kind."
        )
    bounds = _Bounds(last_time(options.train_until), last_time(options.val_until))
    if bounds.train >= bounds.val:
        raise ConfigError(
            f"{name}: validation ends at {options.val_until} (val_until), which is not after the end of training at "
            f"{options.train_until} (train_until)."
        )
    return bounds


def last_time(moment: Moment) -> float:
    """Days since 1970-01-01 up to which a date or time reaches; a number as it is."""
    if not isinstance(moment, str):
        return float(moment)
    parsed = datetime.datetime.fromisoformat(moment).replace(tzinfo=None)
    days = (parsed - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
    is_day = len(moment) <= len("2025-03-31")
    return float(np.nextafter(days + 1, 0.0)) if is_day else days


def _check_ranges(bounds: _Bounds, times: Sequence[NDArray[np.float64]], name: str, who: Sequence[str]) -> None:
    """Refuse dates before which a client has nothing, or after which nobody has."""
    late = [(client, each) for client, each in enumerate(times) if len(each) and each.min() > bounds.train]
    if late:
        ranges = "; ".join(
            f"{'' if len(times) == 1 else f'those of {who[client]} '}from {show_time(each.min())} to "
            f"{show_time(each.max())}"
            for client, each in late[:_LISTED]
        )
        more = f"; and those of {len(late) - _LISTED} more" if len(late) > _LISTED else ""
        raise DataError(
            f"{name}: training ends at {show_time(bounds.train)} (train_until), and labelled nodes begin later "
            f"({ranges}{more}): there would be nothing to train on. Choose a later date, give the silo dates of its "
            f"own, or let ratios divide each silo's nodes (split_by: silo)."
        )
    last = max((each.max() for each in times if len(each)), default=-np.inf)
    if last <= bounds.train:
        raise DataError(
            f"{name}: training ends at {show_time(bounds.train)} (train_until), and no labelled node is later (the "
            f"last is at {show_time(last)}): there would be nothing to validate or test on. Choose an earlier date."
        )


def _bounds_of(times: NDArray[np.float64], ratios: Ratios, name: str) -> _Bounds:
    """Boundaries between two different times, nearest to the shares."""
    if not len(times):
        return _Bounds(-np.inf, -np.inf)
    ordered = np.sort(times)
    places = np.flatnonzero(np.diff(ordered)) + 1
    parts = sum(ratio > 0 for ratio in ratios)
    if len(places) + 1 < parts:
        few = f"all have {show_time(ordered[0])}" if not len(places) else f"there are {len(places) + 1}"
        raise DataError(
            f"{name}: labelled nodes have too few different times to be divided by them into {parts} parts ({few}). "
            f"Use partition.split=stratified, or partition.ratios with fewer parts."
        )
    train_end, val_end = cut_points(len(ordered), ratios)
    # So that a later part has a time left.
    first = _nearest(places[: len(places) - (parts - 2)], train_end) if parts > 1 else len(ordered)
    if ratios[2] == 0:
        second = len(ordered)
    elif ratios[1] == 0:
        second = first
    else:
        second = _nearest(places[places > first], val_end)
    return _Bounds(float(ordered[first - 1]), float(ordered[second - 1]))


def _nearest(places: NDArray[np.int64], wanted: int) -> int:
    return int(places[np.argmin(np.abs(places - wanted))])


def describe_bounds(graph: Graph, partition: Partition) -> str:
    """Up to when items are trained on, validated and tested on; empty where that is no split by time, or each silo's
    own."""
    known = _times_of(graph, partition) if partition.split == "time" else {}
    if not len(known.get("training", ())) or _count_late(known)[0]:
        return ""
    return ", ".join(f"{what} up to {show_time(times.max())}" for what, times in known.items() if len(times))


def _times_of(graph: Graph, partition: Partition) -> dict[str, NDArray[np.float64]]:
    if graph.time is None or not partition.has_splits:
        return {}
    each = {"training": partition.train, "validation": partition.val, "tests": partition.test}
    found = {what: graph.time[np.concatenate(part).astype(np.int64)] for what, part in each.items()}
    return {what: times[~np.isnan(times)] for what, times in found.items()}


def _count_late(known: Mapping[str, NDArray[np.float64]]) -> tuple[int, float]:
    """How many training nodes are later than the first that is validated or tested on, and when that is."""
    asked = np.concatenate([known["validation"], known["tests"]])
    early = float(asked.min()) if len(asked) else np.inf
    return int((known["training"] > early).sum()), early


def time_remarks(graph: Graph, partition: Partition, names: Sequence[str] = ()) -> list[str]:
    """What a person should be warned of in times and splits, such as that the past is told from the future.

    Args:
        graph: The whole.
        partition: Its cut.
        names: Of all clients, where they have some.
    """
    known = _times_of(graph, partition)
    if graph.time is None or not known:
        return []
    said = []
    late, early = _count_late(known)
    if late:
        cause = (
            "dates are each silo's own" if partition.split == "time" else f"the split is {partition.split}"
        )  # fmt: skip
        said.append(
            f"nodes have times, and {late} of {len(known['training'])} training nodes are later than the first node "
            f"that is validated or tested on ({show_time(early)}; {cause}): scores then do not tell how well the "
            f"future is foretold. partition.split=time with one date for all silos "
            f"(partition.split_by=federation) does."
        )
    if partition.split == "time":
        unknown = int((np.isnan(graph.time) & (graph.labels >= 0)).sum())
        if unknown:
            nodes = "one labelled node has" if unknown == 1 else f"{unknown} labelled nodes have"
            said.append(f"{nodes} no time, and {'is' if unknown == 1 else 'are'} in no split")
        idle = [
            f"'{names[client]}'" if names else client
            for client in partition.present
            if len(partition.nodes[client]) and not len(partition.train[client])
        ]
        if idle:
            said.append(
                f"of client {several(idle, _LISTED)} no labelled node is from before the end of training, so that it "
                f"has nothing to train on"
            )
    return said
