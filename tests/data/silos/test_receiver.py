"""One client that cannot learn a class, others that train on chosen nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition
from graphsilo.data.silos.receiver import choose_by_class, choose_by_links, count_chosen
from graphsilo.data.silos.scenarios import ScenarioOptions, build_silos, partition_for_scenario
from graphsilo.errors import ConfigError
from graphsilo.random import numpy_generator
from kit.fedsage_plus import graph_of
from kit.silos import ids, named

LABELS = ids(0, 0, 0, 0, 1, 1, 1, 1, 1)
EDGES = [(0, 1), (0, 2), (1, 3), (4, 5), (4, 6)]
LINKS = ids(2, 2, 1, 1, 2, 1, 1, 0, 0)


@pytest.mark.parametrize(
    ("which", "many", "few"),
    # Of class 0 two nodes have more than one link and two no more, of class 1 one and four.
    [("many", [2, 1], [0, 0]), ("half", [1, 1], [1, 0]), ("few", [0, 0], [2, 1])],
)
def test_each_choice_has_as_many_nodes_of_a_class(which: str, many: list[int], few: list[int]) -> None:
    graph = graph_of(EDGES, 9, labels=LABELS)
    options = ScenarioOptions(links=which, degree=1)
    chosen = choose_by_links(np.arange(9), graph, options, numpy_generator(0, "test"))
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    for label in (0, 1):
        mine = LINKS[chosen[LABELS[chosen] == label]]
        assert [int((mine > 1).sum()), int((mine <= 1).sum())] == [many[label], few[label]]
    everybody = choose_by_links(np.arange(9), graph, ScenarioOptions(), numpy_generator(0, "test"))
    assert everybody.tolist() == list(range(9))


@pytest.mark.parametrize(("rate", "other"), [(-5, 0), (-2.5, 1), (0, 2), (5, 4)])
def test_other_classes_have_more_than_the_target_where_the_rate_is_above_zero(rate: float, other: int) -> None:
    # The smallest class has 4 nodes: of the target 2, of the other 2 + r / 10 * 4.
    for target in (0, 1):
        options = ScenarioOptions(target=target, class_rate=rate)
        chosen = choose_by_class(np.arange(9), LABELS, options, numpy_generator(0, "test"))
        assert np.bincount(LABELS[chosen], minlength=2)[[target, 1 - target]].tolist() == [2, other]


def test_the_receiver_is_asked_about_what_it_cannot_learn(path: Graph, cut_path: Partition) -> None:
    # Client 1 holds nodes 5, 4 and 3 of classes 2, 0 and 1, trains on the first two and tests on the third.
    for target, train, asked in ((0, [0], []), (1, [0, 1], [2]), (2, [1], [])):
        first, second = build_silos(path, cut_path, scenario="receiver", options={"receiver": 1, "target": target})
        assert second.train.tolist() == second.seen.items["train"].tolist() == train
        assert named(second, "receiver").items["missing_class"].tolist() == asked
        assert named(first, "receiver").items["missing_class"].tolist() == []
        assert first.train.tolist() == [0, 2]


def test_what_is_left_to_train_on_is_what_pages_count(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition_for_scenario(graph, "metis", clients=2, scenario="receiver", seed=1)
    silos = build_silos(graph, cut, scenario="receiver", options={"target": 1, "links": "few", "degree": 2})
    rows = [{"client": client, "train": -1} for client in (0, 2, 1)]
    count_chosen(rows, silos)
    assert [row["train"] for row in rows] == [len(silos[0].train), -1, len(silos[1].train)]  # 2 is left out
    assert 1 in rows[0]["missing_classes"]


def test_who_and_what_are_there(path: Graph, cut_path: Partition) -> None:
    with pytest.raises(ConfigError, match=r"scenario\.receiver=2: there are 2 clients, numbered from 0"):
        build_silos(path, cut_path, scenario="receiver", options={"receiver": 2})
    with pytest.raises(ConfigError, match=r"scenario\.receiver=0 is left out of this run"):
        build_silos(path, replace(cut_path, absent=frozenset([0])), scenario="receiver")
    with pytest.raises(ConfigError, match=r"scenario\.target=7: there are 3 classes, numbered from 0"):
        build_silos(path, cut_path, scenario="receiver", options={"target": 7})


def test_draws_follow_the_seed_of_the_cut(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition_for_scenario(graph, "metis", clients=2, scenario="receiver", seed=1)
    both = [build_silos(graph, cut, scenario="receiver", options={"class_rate": -2}) for _ in range(2)]
    assert [silo.train.tolist() for silo in both[0]] == [silo.train.tolist() for silo in both[1]]
