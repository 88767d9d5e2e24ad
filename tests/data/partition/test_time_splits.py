"""Splits by time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphsilo
from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, partition
from graphsilo.data.partition.rule import TimeOptions
from graphsilo.data.partition.time_splits import describe_bounds, time_remarks
from graphsilo.data.silos.union import own_partition
from graphsilo.errors import ConfigError, DataError
from kit.link_tables import dated_graph


def days(graph: Graph, shift: float = 20_000) -> Graph:
    """The same with its times as days from October 2024 on."""
    assert graph.time is not None
    return replace(graph, time=graph.time + shift)


def times(graph: Graph, made: Partition) -> list[list[np.ndarray]]:
    assert graph.time is not None
    return [[graph.time[part] for part in parts] for parts in zip(made.train, made.val, made.test, strict=True)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("split_by", ["silo", "federation"])
def test_earlier_nodes_train_and_equal_times_stay_together(seed: int, split_by: str) -> None:
    graph = dated_graph(seed, nodes=200)
    made = partition(graph, "random", clients=3, split="time", times={"split_by": split_by})
    parts = times(graph, made)
    groups = [[np.concatenate(each) for each in zip(*parts, strict=True)]] if split_by == "federation" else parts
    for train, val, test in groups:
        assert train.max() < val.min() <= val.max() < test.min()
        total = len(train) + len(val) + len(test)
        # Some 20 of 200 nodes may share a day.
        np.testing.assert_allclose([len(train) / total, len(val) / total], [0.6, 0.2], atol=0.06)
    assert sum(len(part) for each in parts for part in each) == 200


def test_dates_are_the_last_of_their_part() -> None:
    graph = days(dated_graph(1, nodes=200))
    assert graph.time is not None
    graph = replace(graph, time=graph.time + 0.5)  # at noon
    how = {"train_until": "2024-11-10", "val_until": "2024-12-01T12:00:00"}
    made = graphsilo.partition(graph, "random", clients=2, split="time", **how)
    train, val, test = (np.concatenate(each) for each in zip(*times(graph, made), strict=True))
    last = 20_037.5  # 2024-11-10, noon
    assert train.max() == last
    assert val.min() > last
    assert (val.max(), made.ratios) == (20_058.5, None)
    assert test.min() > 20_058.5
    assert time_remarks(graph, made) == []
    said = describe_bounds(graph, made)
    assert said.startswith("training up to 2024-11-10, validation up to 2024-12-01, tests up to ")


def test_nodes_without_label_or_time_are_in_no_split() -> None:
    graph = dated_graph(2, nodes=100)
    assert graph.time is not None
    graph = replace(graph, labels=np.where(np.arange(100) < 30, -1, graph.labels), time=graph.time.copy())
    graph.time[90:] = np.nan
    made = partition(graph, "random", clients=2, split="time", ratios=(0.5, 0.0, 0.5))
    assert sorted(np.concatenate([*made.train, *made.test]).tolist()) == list(range(30, 90))
    assert any("10 labelled nodes have no time" in text for text in time_remarks(graph, made))
    late = replace(graph, time=np.where(np.isin(np.arange(100), made.nodes[1]), 99.0, np.arange(100.0) % 90))
    late.time[made.nodes[0].min()] = np.nan
    made = partition(replace(late, labels=np.abs(graph.labels)), "random", clients=2, split="time")
    said = " ".join(time_remarks(replace(late, labels=np.abs(graph.labels)), made, ("adler", "birch")))
    assert "one labelled node has no time, and is in no split" in said
    assert "of client 'birch' no labelled node is from before" in said


def test_what_cannot_be_divided_is_said() -> None:
    graph = days(dated_graph(3, nodes=100))
    assert graph.time is not None

    def divide(data: Graph, ratios: tuple[float, float, float] | None = None, **how: object) -> Partition:
        return partition(data, "random", clients=2, split="time", times=how, ratios=ratios)

    with pytest.raises(DataError, match="says of no node when it is looked at"):
        divide(replace(graph, time=None))
    with pytest.raises(ConfigError, match="has train_until alone: say val_until, too"):
        divide(graph, train_until="2024-11-10")
    with pytest.raises(ConfigError, match="not after the end of training"):
        divide(graph, train_until="2024-11-10", val_until="2024-11-10")
    with pytest.raises(DataError, match=r"labelled nodes begin later \(those of client 0 from 2024-10-06"):
        divide(graph, train_until="2023-01-01", val_until="2023-06-01")
    early = TimeOptions(train_until="2023-01-01", val_until="2023-06-01")
    for how, text in ((early, r"begin later \(those of silo 'adler' from .*; those of silo 'birch' from"),
                      (TimeOptions(), r"^silo 'birch': labelled nodes have too few different times")):  # fmt: skip
        alike = replace(graph, time=np.where(np.arange(100) < 50, graph.time, 30_000.0))
        with pytest.raises(DataError, match=text):
            own_partition(
                alike, [50, 50], mode="time", ratios=(0.6, 0.2, 0.2), seed=0, times=how, names=("adler", "birch")
            )
    with pytest.raises(DataError, match="no labelled node is later"):
        divide(graph, train_until="2026-01-01", val_until="2026-06-01")
    with pytest.raises(ConfigError, match="is a date, and times of nodes are numbers from 2 to 99"):
        divide(days(graph, -20_000), train_until="2026-01-01", val_until="2026-06-01")
    with pytest.raises(DataError, match=r"too few different times .* \(all have 5\)"):
        divide(replace(graph, time=np.full(100, 5.0)))
    with pytest.raises(ConfigError, match=r"train_until must be a day such as 2025-03-31, or a number"):
        divide(graph, train_until="March", val_until="2026-06-01")
    with pytest.raises(ConfigError, match="Leave out one"):
        divide(graph, ratios=(0.5, 0.2, 0.3), train_until="2024-11-10", val_until="2024-12-01")


def test_a_split_that_tells_the_past_from_the_future_is_remarked() -> None:
    graph = dated_graph(4, nodes=100)
    made = partition(graph, "random", clients=2)
    [said] = time_remarks(graph, made)
    assert describe_bounds(graph, made) == ""
    assert "training nodes are later than the first node" in said
    assert "the split is stratified" in said
