from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.graph import Graph
from graphsilo.data.partition import partition
from graphsilo.data.partition.splits import (
    check_ratios,
    cut_points,
    own_split,
    ratios_for,
    stratified_split,
    stratified_splits,
)
from graphsilo.data.partition.whole_splits import global_split
from graphsilo.errors import ConfigError


def make_graph(labels: list[int], **splits: np.ndarray) -> Graph:
    n = len(labels)
    edges = np.stack([np.arange(n), np.roll(np.arange(n), 1)])
    return Graph(np.zeros((n, 1), dtype=np.float32), edges, np.array(labels), max(labels) + 1, splits=splits)


PROTOCOL = {
    (0.2, 0.4, 0.4): "Cora CiteSeer PubMed CS Physics Photo Computers citation-sbm unheard-of",
    (0.48, 0.32, 0.2): "Chameleon squirrel",
    (0.6, 0.2, 0.2): "ogbn-arxiv Flickr",
    (0.1, 0.05, 0.85): "ogbn-products ogbn_products product-sbm",
    (0.5, 0.25, 0.25): "roman-empire amazon-ratings tolokers Actor questions minesweeper genius",
    (0.8, 0.1, 0.1): "Reddit",
    (0.65, 0.1, 0.25): "Reddit2",
}


@pytest.mark.parametrize(
    ("name", "wanted"), [(name, ratios) for ratios, names in PROTOCOL.items() for name in names.split()]
)
def test_every_ratio_of_the_protocol(name: str, wanted: tuple[float, float, float]) -> None:
    assert ratios_for(name) == wanted


@pytest.mark.parametrize(
    ("count", "ratios", "wanted"),
    [
        (4, (0.2, 0.4, 0.4), (0, 2)),  # floor(0.8), floor(2.4): fewer than five nodes leave none to train on
        (5, (0.2, 0.4, 0.4), (1, 3)),
        (90, (0.4, 0.3, 0.3), (36, 63)),  # 0.7 · 90 is 62.999… in binary
        (180, (0.65, 0.1, 0.25), (117, 135)),
        (0, (0.2, 0.4, 0.4), (0, 0)),
    ],
)
def test_cut_points_are_floors_of_decimal_shares(
    count: int, ratios: tuple[float, float, float], wanted: tuple[int, int]
) -> None:
    assert cut_points(count, ratios) == wanted


@pytest.mark.parametrize("ratios", [(0.5, 0.5), (0.5, 0.6, 0.1), (-0.1, 0.6, 0.5), (0.2, 0.2, 0.2), (0.0, 0.5, 0.5)])
def test_impossible_ratios_are_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError):
        check_ratios(ratios)


def test_one_shuffle_per_class_in_ascending_order() -> None:
    labels = np.array([1, 0, 1, 0, 0, 1, 0, -1, 0, 1, 1])
    # By hand: class 0 is 1, 3, 4, 6, 8 and class 1 is 0, 2, 5, 9, 10; 1, 2 and 2 of five each.
    by_hand = np.random.RandomState(5)
    zero, one = np.array([1, 3, 4, 6, 8]), np.array([0, 2, 5, 9, 10])
    by_hand.shuffle(zero)
    by_hand.shuffle(one)
    train, val, test = stratified_split(labels, (0.2, 0.4, 0.4), np.random.RandomState(5))
    assert train.tolist() == sorted([zero[0], one[0]])
    assert val.tolist() == sorted([*zero[1:3], *one[1:3]])
    assert test.tolist() == sorted([*zero[3:], *one[3:]])


def test_clients_share_one_stream_and_keep_their_order() -> None:
    labels = np.zeros(10, dtype=np.int64)
    clients = [np.array([9, 7, 5, 3, 1]), np.array([0, 2, 4, 6, 8])]
    first, second = stratified_splits(labels, clients, (0.4, 0.2, 0.4), seed=0)
    stream = np.random.RandomState(0)
    for nodes, found in zip(clients, (first, second), strict=True):
        index = np.arange(5)
        stream.shuffle(index)
        assert found[0].tolist() == nodes[np.sort(index[:2])].tolist()
        assert found[2].tolist() == nodes[np.sort(index[3:])].tolist()


def test_an_own_split_knows_nothing_of_other_clients() -> None:
    labels = np.array([0, 1] * 15 + [-1])
    first = own_split(labels, (0.4, 0.3, 0.3), seed=3, client=1)
    again = own_split(labels, (0.4, 0.3, 0.3), seed=3, client=1)
    for one, other in zip(first, again, strict=True):
        assert one.tolist() == other.tolist()
    assert [len(part) for part in first] == [12, 8, 10]
    assert first[0].tolist() != own_split(labels, (0.4, 0.3, 0.3), seed=3, client=2)[0].tolist()
    assert first[0].tolist() != own_split(labels, (0.4, 0.3, 0.3), seed=4, client=1)[0].tolist()


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(-1, 3), max_size=60), seed=st.integers(0, 100))
def test_every_labelled_item_is_in_one_split(labels: list[int], seed: int) -> None:
    array = np.array(labels, dtype=np.int64)
    split = stratified_split(array, (0.2, 0.4, 0.4), np.random.RandomState(seed))
    assert sorted(np.concatenate(split).tolist()) == np.flatnonzero(array >= 0).tolist()
    drawn = global_split(array, (0.4, 0.3, 0.3), seed=seed)
    assert sorted(np.concatenate(drawn).tolist()) == np.flatnonzero(array >= 0).tolist()
    assert len(drawn[0]) == int(0.4 * (array >= 0).sum())


def test_partition_takes_the_split_asked_for() -> None:
    train = np.array([True, True, False, False, False, False])
    graph = replace(make_graph([0, 1, 0, 1, 0, 1]), splits={"train": train, "val": ~train, "test": train & ~train})
    found = partition(graph, "random", clients=2, split="predefined")
    assert np.sort(np.concatenate(found.train)).tolist() == [0, 1]
    assert np.sort(np.concatenate(found.val)).tolist() == [2, 3, 4, 5]
    assert (found.split, found.ratios) == ("predefined", None)
