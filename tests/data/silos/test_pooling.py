"""One silo that holds what all clients hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, partition
from graphsilo.data.silos.perturb import perturb
from graphsilo.data.silos.pooling import pool_silos, pooled_silo
from graphsilo.data.silos.scenarios import SCENARIOS, build_silos, partition_for_scenario
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError
from kit.silos import ids, named


@pytest.mark.parametrize(("cross", "edges"), [(False, 8), (True, 10)])
def test_pooled_seen(path: Graph, cut_path: Partition, cross: bool, edges: int) -> None:
    silo = pooled_silo(path, replace(cut_path, new_part=None), cross_edges=cross)
    assert silo.graph.global_ids.tolist() == [0, 1, 2, 5, 4, 3]
    assert silo.graph.num_edges == edges
    assert silo.train.tolist() == [0, 2, 3, 4]
    assert silo.parts == 2
    assert silo.seen.graph is silo.graph
    assert silo.seen.items["val"].tolist() == [1]
    assert silo.seen.items["test"].tolist() == [5]
    assert silo.seen.part is not None
    assert silo.seen.part.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_pooling_asks_the_clients_questions(scenario: str, cross: bool, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition_for_scenario(graph, "metis", clients=3, scenario=scenario, seed=2)
    options = {"global_graph": True}
    silos = build_silos(graph, cut, scenario=scenario, options=options)
    pooled = pooled_silo(graph, cut, cross_edges=cross, scenario=scenario, options=options)
    assert isinstance(pooled.graph, Graph)
    assert len(pooled.train) == sum(len(silo.train) for silo in silos)
    wanted = np.concatenate([silo.graph.global_ids[silo.train] for silo in silos])
    assert pooled.graph.global_ids[pooled.train].tolist() == wanted.tolist()
    assert [item.name for item in pooled.evaluations] == [item.name for item in silos[0].evaluations]
    for number, item in enumerate(pooled.evaluations):
        if item.name in ("global", "new_client"):
            continue
        for name, numbers in item.items.items():
            for silo in silos:
                own = silo.evaluations[number]
                assert item.part is not None
                mine = numbers[item.part[numbers] == silo.client]
                assert item.graph.global_ids[mine].tolist() == own.graph.global_ids[own.items[name]].tolist()
    between = pooled.seen.part[pooled.seen.graph.edges]
    assert (between[0] != between[1]).any() == cross


def test_pooling_overlapping_clients_with_cross_edges_holds_every_node_once(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition(graph, "overlap", clients=10)
    pooled = pooled_silo(graph, cut, cross_edges=True)
    assert len(np.unique(pooled.graph.global_ids)) == pooled.graph.num_nodes
    assert pooled.graph.num_nodes == len(np.unique(np.concatenate(cut.nodes)))
    assert not np.isin(pooled.train, pooled.seen.items["test"]).any()
    apart = pooled_silo(graph, cut, cross_edges=False)
    assert apart.graph.num_nodes == sum(map(len, cut.nodes))


def test_one_client_is_the_graph_and_all_views_coincide(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition(graph, "louvain", clients=1)
    (silo,) = build_silos(graph, cut, options={"global_graph": True})
    pooled = pooled_silo(graph, cut, cross_edges=True)
    for view in (silo.graph, named(silo, "global").graph, pooled.graph):
        np.testing.assert_array_equal(view.edges, graph.edges)
        np.testing.assert_array_equal(view.labels, graph.labels)
    np.testing.assert_array_equal(silo.seen.items["test"], named(silo, "global").items["test"])


@pytest.mark.parametrize("cross", [False, True])
def test_pooled_links_never_show_a_hidden_link(cross: bool, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition(graph, "metis", clients=3, seed=5)
    silos = build_silos(graph, cut, task="link")
    pooled = pooled_silo(graph, cut, cross_edges=cross, task="link")
    assert pooled.links is not None
    message = set(map(tuple, pooled.graph.edges.T.tolist()))
    for hidden in (pooled.links.val, pooled.links.test, pooled.links.val_negative):
        assert not message & set(map(tuple, hidden.T.tolist()))
    assert set(map(tuple, pooled.links.train.T.tolist())) <= message
    assert len(message) - sum(silo.graph.num_edges for silo in silos) > 0 if cross else True
    assert len(pooled.seen.items["test"]) == pooled.links.test.shape[1]
    ends = pooled.graph.global_ids[pooled.links.test]
    wanted = np.concatenate([silo.graph.global_ids[silo.links.test] for silo in silos], axis=1)
    np.testing.assert_array_equal(ends, wanted)


def test_at_least_one_silo_is_pooled() -> None:
    with pytest.raises(ConfigError, match="no silo"):
        pool_silos([])


def spoil_all(silo: Silo) -> Silo:
    """No edge inside, features 10 + client, the first training label lost, class 2 for all."""
    assert isinstance(silo.graph, Graph)
    features = np.full_like(silo.graph.features, 10 + silo.client)
    graph = replace(silo.graph, features=features, edges=np.zeros((2, 0), dtype=np.int64))
    return replace(silo, graph=graph, train=silo.train[1:], noisy_labels=np.full(silo.num_items, 2))


def test_what_is_spoilt_at_the_clients_is_spoilt_in_the_pool(path: Graph, cut_path: Partition) -> None:
    cut = replace(cut_path, new_part=None)
    clean = pooled_silo(path, cut, cross_edges=True)
    pooled = pooled_silo(path, cut, cross_edges=True, spoil=spoil_all)
    assert isinstance(pooled.graph, Graph)
    assert pooled.graph.global_ids.tolist() == [0, 1, 2, 5, 4, 3]
    assert pooled.graph.features[:, 0].tolist() == [10, 10, 10, 11, 11, 11]
    # The edge between nodes 2 and 3 is no client's, so nobody spoilt it; numbers 2 and 5 in the pool.
    assert sorted(pooled.graph.edges.T.tolist()) == [[2, 5], [5, 2]]
    assert pooled.train.tolist() == [2, 4]
    assert pooled.labels.tolist() == [2] * 6
    assert (pooled.facts["edges"], pooled.facts["train"]) == (2, 2)
    for name in ("features", "edges", "labels"):
        np.testing.assert_array_equal(getattr(pooled.seen.graph, name), getattr(clean.seen.graph, name))
    apart = pooled_silo(path, cut, cross_edges=False, spoil=spoil_all)
    assert isinstance(apart.graph, Graph)
    assert apart.graph.num_edges == 0
    assert apart.seen.graph.num_edges == 8


def test_of_a_node_at_two_clients_one_that_trains_on_it_is_believed(path: Graph, cut_path: Partition) -> None:
    """Node 2 is held by both and trained on by the second; node 3 by both, trained on by nobody."""
    cut = replace(
        cut_path,
        new_part=None,
        nodes=(ids(0, 1, 2, 3), ids(2, 3, 4, 5)),
        train=(ids(0), ids(2, 5)),
        val=(ids(), ids()),
        test=(ids(1), ids(4)),
    )

    def spoil(silo: Silo) -> Silo:
        assert isinstance(silo.graph, Graph)
        kept = silo.graph.edges if silo.client else silo.graph.edges[:, :0]
        features = np.full_like(silo.graph.features, 10 + silo.client)
        return replace(silo, graph=replace(silo.graph, features=features, edges=kept))

    pooled = pooled_silo(path, cut, cross_edges=True, spoil=spoil)
    assert isinstance(pooled.graph, Graph)
    assert pooled.graph.global_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert pooled.graph.features[:, 0].tolist() == [10, 10, 11, 10, 11, 11]
    # Client 1 still has 2-3, 3-4 and 4-5, each direction once; 0-1 and 1-2 were inside client 0 and do not come back.
    assert sorted(pooled.graph.edges.T.tolist()) == [[2, 3], [3, 2], [3, 4], [4, 3], [4, 5], [5, 4]]


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_pooled_perturbations_are_those_of_the_clients(scenario: str, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    graph = replace(graph, edge_weights=np.arange(graph.num_edges, dtype=np.float32) + 2)
    cut = partition_for_scenario(graph, "metis", clients=3, scenario=scenario, seed=2)
    spoil = partial(
        perturb, options={"edge_sparsity": 0.5, "edge_noise": 0.2, "feature_sparsity": 0.5, "label_noise": 0.3}, seed=1
    )
    silos = [spoil(silo) for silo in build_silos(graph, cut, scenario=scenario)]
    pooled = pooled_silo(graph, cut, cross_edges=True, scenario=scenario, spoil=spoil)
    clean = pooled_silo(graph, cut, cross_edges=True, scenario=scenario)
    apart = pooled_silo(graph, cut, cross_edges=False, scenario=scenario)
    assert isinstance(pooled.graph, Graph)
    np.testing.assert_array_equal(pooled.graph.features, np.concatenate([silo.graph.features for silo in silos]))
    np.testing.assert_array_equal(pooled.labels, np.concatenate([silo.labels for silo in silos]))
    between = clean.graph.num_edges - apart.graph.num_edges
    assert between > 0
    assert pooled.graph.num_edges == between + sum(silo.graph.num_edges for silo in silos)
    weights = np.concatenate([silo.graph.edge_weights for silo in silos])
    np.testing.assert_array_equal(pooled.graph.edge_weights[: len(weights)], weights)


def test_pooled_links_can_be_spoilt_and_stay_hidden(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition(graph, "metis", clients=3, seed=5)
    spoil = partial(perturb, options={"edge_sparsity": 0.5, "edge_noise": 0.3}, seed=1)
    clean = pooled_silo(graph, cut, cross_edges=True, task="link")
    pooled = pooled_silo(graph, cut, cross_edges=True, task="link", spoil=spoil)
    assert pooled.links is not None
    assert clean.links is not None
    assert 0 < pooled.links.train.shape[1] < clean.links.train.shape[1]
    np.testing.assert_array_equal(pooled.links.test, clean.links.test)
    np.testing.assert_array_equal(pooled.seen.graph.edges, clean.seen.graph.edges)
    message = set(map(tuple, pooled.graph.edges.T.tolist()))
    for hidden in (pooled.links.val, pooled.links.test):
        assert not message & set(map(tuple, hidden.T.tolist()))
    assert set(map(tuple, pooled.links.train.T.tolist())) <= message
