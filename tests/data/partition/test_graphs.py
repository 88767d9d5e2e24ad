from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition.graphs import graph_rules, mean_degrees, mean_features, partition_graphs
from graphsilo.errors import ConfigError, PartitionError


def make_paths(
    sizes: Sequence[int], labels: Sequence[int], *, name: str = "paths", value: float = 1.0
) -> GraphCollection:
    """Graph i is a path of ``sizes[i]`` nodes whose features are i · value."""
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    starts = np.concatenate([np.arange(a, b - 1) for a, b in pairwise(pointer)])
    edges = np.concatenate([[starts, starts + 1], [starts + 1, starts]], axis=1).astype(np.int64)
    features = (value * np.repeat(np.arange(len(sizes)), sizes)).astype(np.float32)[:, None]
    union = Graph(features, edges, np.full(pointer[-1], -1, dtype=np.int64), max(labels) + 1, name=name)
    return GraphCollection(union, pointer, np.array(labels, dtype=np.int64), max(labels) + 1, name=name)


def test_means_of_degree_and_feature() -> None:
    paths = make_paths([1, 2, 4], [0, 1, 0])
    # A path of n nodes has 2(n - 1) edge columns.
    np.testing.assert_allclose(mean_degrees(paths), [0.0, 1.0, 1.5])
    np.testing.assert_allclose(mean_features(paths), [0.0, 1.0, 2.0])


def test_topology_gives_segments_of_the_mean_degree() -> None:
    found = partition_graphs(make_paths([5, 2, 4, 3], [0, 0, 0, 0]), "topology", clients=2)
    assert [part.tolist() for part in found.nodes] == [[1, 3], [0, 2]]
    assert found.kind == "graph"


def test_features_gives_segments_of_the_mean_feature() -> None:
    found = partition_graphs(make_paths([2] * 5, [0] * 5, value=-1.0), "features", clients=2)
    assert [part.tolist() for part in found.nodes] == [[2, 3, 4], [0, 1]]


def test_the_order_of_the_file_decides_nothing_among_equal_graphs() -> None:
    """Forty paths of three nodes, the classes apart, before one of two: both clients have both classes."""
    paths = make_paths([3] * 40 + [2], [0] * 20 + [1] * 21)
    cuts = [partition_graphs(paths, "topology", clients=2, seed=seed).nodes for seed in (0, 1)]
    for first, second in cuts:
        assert 40 in first
        assert all({0, 1} == set(paths.labels[part].tolist()) for part in (first, second))
    assert cuts[0][0].tolist() != cuts[1][0].tolist()


@pytest.mark.parametrize(("rule", "what"), [("features", "mean feature value"), ("topology", "mean degree")])
def test_graphs_that_are_all_alike_are_not_sorted(rule: str, what: str) -> None:
    """As one-hot features are: the order of the file would decide, by which PROTEINS has its classes apart."""
    with pytest.raises(PartitionError, match=f"sorted by their {what}, and it is .* for all 4 graphs of paths"):
        partition_graphs(make_paths([3] * 4, [0, 0, 1, 1], value=0.0), rule, clients=2)


@pytest.mark.parametrize("rule", ["random", "dirichlet", "topology", "features"])
def test_every_graph_has_one_owner_and_one_split(rule: str) -> None:
    paths = make_paths([2 + i % 5 for i in range(60)], [i % 3 for i in range(60)])
    found = partition_graphs(paths, rule, clients=4, seed=3)
    found.check(paths)
    assert sorted(np.concatenate(found.nodes).tolist()) == list(range(60))
    for nodes, *splits in zip(found.nodes, found.train, found.val, found.test, strict=True):
        assert sorted(np.concatenate(splits).tolist()) == sorted(nodes.tolist())


def test_domains_gives_one_data_set_to_each_client() -> None:
    both = [make_paths([2, 3], [0, 1]), make_paths([4, 5, 6], [0, 1, 2])]
    found = partition_graphs(both, "domains")
    assert [part.tolist() for part in found.nodes] == [[0, 1], [2, 3, 4]]
    with pytest.raises(ConfigError, match="one data set to each client"):
        partition_graphs(both, "domains", clients=3)
    with pytest.raises(ConfigError, match="'domains'"):
        partition_graphs(both, "random", clients=2)


def test_mistakes_are_named() -> None:
    paths = make_paths([2, 3], [0, 1])
    with pytest.raises(ConfigError, match="did you mean 'topology'"):
        partition_graphs(paths, "topolgy", clients=2)
    with pytest.raises(ConfigError, match="number of clients"):
        partition_graphs(paths, "random")
    with pytest.raises(PartitionError, match="at most 2"):
        partition_graphs(paths, "random", clients=3)
    assert len({rule.name for rule in graph_rules()}) == 6
