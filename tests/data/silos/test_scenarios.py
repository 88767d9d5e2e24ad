from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, partition
from graphsilo.data.silos.pooling import pooled_silo
from graphsilo.data.silos.scenarios import build_silos, check_scenario, partition_for_scenario
from graphsilo.data.sources import catalog
from graphsilo.data.sources.transforms import largest_component
from graphsilo.errors import ConfigError, PartitionError, UnsupportedError
from kit.silos import ids, named


def test_seen_holds_the_clients_own_graph(path: Graph, cut_path: Partition) -> None:
    first, second = build_silos(path, replace(cut_path, new_part=None))
    assert second.graph.edges.T.tolist() == [[2, 1], [1, 2], [1, 0], [0, 1]]
    assert second.graph.labels.tolist() == [2, 0, 1]
    assert second.graph.global_ids.tolist() == [5, 4, 3]
    assert second.graph.features[:, 0].tolist() == [5.0, 4.0, 3.0]
    assert second.train.tolist() == [0, 1]
    assert {name: items.tolist() for name, items in second.seen.items.items()} == {
        "train": [0, 1],
        "val": [],
        "test": [2],
    }
    assert second.seen.graph is second.graph
    assert (first.schema.task, first.schema.num_features, first.schema.num_classes) == ("node", 1, 3)
    assert first.facts == {"nodes": 3, "edges": 4, "train": 2}


def test_a_client_without_an_edge_has_an_empty_list_of_edges(path: Graph, cut_path: Partition) -> None:
    lonely = replace(cut_path, new_part=None, nodes=(ids(0, 2), ids(5, 4, 3)), val=(ids(), ids()))
    first = build_silos(path, lonely)[0]
    assert first.graph.edges.shape == (2, 0)
    assert first.graph.edges.dtype == np.int64
    assert first.train.tolist() == [0, 1]


@pytest.mark.parametrize("scenario", ["unseen", "open"])
@pytest.mark.parametrize("rule", ["metis", "louvain", "random", "topology"])
def test_the_checks_of_the_specification(scenario: str, rule: str, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition_for_scenario(graph, rule, clients=3, scenario=scenario, seed=1)
    cut.check(graph)
    assert cut.new_part is not None
    silos = build_silos(graph, cut, scenario=scenario)
    everyone = [cut.new_part, *cut.nodes] + ([] if cut.cropped is None else [cut.cropped])
    assert sorted(np.concatenate(everyone).tolist()) == list(range(240))
    for silo in silos:
        own = silo.graph.global_ids
        grown = named(silo, "grown")
        lost = silo.facts["missing_classes"]
        assert not np.isin(silo.graph.labels, lost).any()
        assert not np.isin(own, cut.new_part).any()
        trained = own[silo.train]
        asked = np.concatenate([grown.items["missing_class"], grown.items["unseen_node"]])
        assert not np.isin(grown.graph.global_ids[asked], trained).any()
        assert not np.isin(asked, np.arange(len(own))).any()
        assert np.isin(grown.graph.labels[grown.items["missing_class"]], lost).all()
        assert not np.isin(grown.graph.labels[grown.items["unseen_node"]], lost).any()
        assert (grown.graph.labels[asked] >= 0).all()
        assert grown.graph.global_ids[: len(own)].tolist() == own.tolist()
        if scenario == "open":
            assert not np.isin(own, cut.cropped).any()
            assert np.isin(grown.graph.global_ids[asked], cut.cropped).all()
        # The grown graph is induced: the same as cutting it from the whole graph (with a rule's own links).
        if cut.added_edges is None:
            assert grown.graph.num_edges == graph.subgraph(grown.graph.global_ids).num_edges


def test_the_open_set_crops_a_fifth_and_regrows_only_that(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition_for_scenario(graph, "metis", clients=3, scenario="open", seed=1)
    assert cut.cropped is not None
    assert len(cut.cropped) == 48
    narrow = build_silos(graph, cut, scenario="open")
    wide = build_silos(graph, cut, scenario="open", options={"regrow": "all"})
    for one, other in zip(narrow, wide, strict=True):
        own, few, many = one.num_items, named(one, "grown").graph, named(other, "grown").graph
        assert np.isin(few.global_ids[own:], cut.cropped).all()
        assert not np.isin(many.global_ids[own:], cut.cropped).all()
        asked = np.concatenate(list(named(other, "grown").items.values()))
        assert np.isin(many.global_ids[asked], cut.cropped).all()


def test_inductive_trains_between_training_nodes_and_tests_on_everything(path: Graph) -> None:
    cut = Partition("files", 0, "path", 9, (np.arange(9),), (ids(0, 1, 4, 5, 8),), (ids(2),), (ids(3, 6, 7),))
    (silo,) = build_silos(path, cut, scenario="inductive")
    assert silo.graph.edges.T.tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert silo.graph.global_ids.tolist() == [0, 1, 4, 5, 8]
    assert silo.train.tolist() == [0, 1, 2, 3, 4]
    assert silo.seen.graph.num_nodes == 9
    assert silo.seen.items["test"].tolist() == [3, 6, 7]
    assert silo.seen.items["train"].tolist() == [0, 1, 4, 5, 8]


def test_the_global_set_is_one_graph_with_all_edges(path: Graph, cut_path: Partition) -> None:
    silos = build_silos(path, replace(cut_path, new_part=None), options={"global_graph": True})
    first, second = (named(silo, "global") for silo in silos)
    assert first is second
    assert first.graph.num_edges == path.num_edges
    assert first.items["val"].tolist() == [1]
    assert first.items["test"].tolist() == [3]
    assert first.part is not None
    assert first.part.tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1]


def test_added_links_and_edge_weights_reach_the_silos(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    graph = replace(graph, edge_weights=np.arange(graph.num_edges, dtype=np.float32) + 2)
    cut = partition(graph, "topology", clients=3, seed=4)
    assert cut.added_edges is not None
    for silo, added in zip(build_silos(graph, cut), cut.added_edges, strict=True):
        plain = graph.subgraph(silo.graph.global_ids)
        assert silo.graph.num_edges == plain.num_edges + 2 * added.shape[1]
        assert (silo.graph.edge_weights == 1).sum() == 2 * added.shape[1]
        np.testing.assert_array_equal(silo.graph.edge_weights[: plain.num_edges], plain.edge_weights)
    pooled = pooled_silo(graph, cut, cross_edges=False)
    assert pooled.graph.edge_weights.shape == (pooled.graph.num_edges,)


def test_sparse_features_stay_sparse(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    graph = replace(graph, features=sp.csr_matrix(graph.features))
    cut = partition(graph, "metis", clients=3)
    assert all(silo.graph.is_sparse for silo in build_silos(graph, cut))
    assert pooled_silo(graph, cut, cross_edges=False).graph.is_sparse


def test_mistakes_are_named(path: Graph, cut_path: Partition) -> None:
    plain = replace(cut_path, new_part=None)
    with pytest.raises(ConfigError, match="did you mean 'unseen'"):
        check_scenario("unsen")
    with pytest.raises(PartitionError, match="needs a partition with new_part"):
        build_silos(path, plain, scenario="unseen")
    with pytest.raises(PartitionError, match="has no cropped"):
        build_silos(path, cut_path, scenario="open")
    with pytest.raises(ConfigError, match=r"did you mean 'scenario\.hops'"):
        build_silos(path, plain, options={"hop": 1})
    with pytest.raises(ConfigError, match="Did you mean 'touching'"):
        build_silos(path, plain, options={"edges": "touchin"})
    with pytest.raises(ConfigError, match=r"^scenario\.hops must be at least 1; got 0\.$"):
        build_silos(path, plain, options={"hops": 0})
    with pytest.raises(UnsupportedError, match="'seen' only"):
        build_silos(path, plain, scenario="inductive", task="link")
    with pytest.raises(UnsupportedError, match="build_graph_silos"):
        build_silos(path, plain, task="graph")
    with pytest.raises(PartitionError, match="no client has a node to train on"):
        build_silos(path, replace(plain, train=(ids(), ids())))
    with pytest.raises(PartitionError, match="client 1 has no training node"):
        build_silos(path, replace(plain, train=(ids(0), ids())), scenario="inductive")
    assert len(build_silos(path, replace(plain, train=(ids(0), ids())))[1].train) == 0
    with pytest.raises(ConfigError, match=r"^scenario\.crop must be above 0 and below 1; got 1\.0\.$"):
        partition_for_scenario(path, "random", clients=2, scenario="open", crop=1.0)


def test_a_stored_scenario_comes_back_through_files(tmp_path: Path, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    made = partition_for_scenario(graph, "metis", clients=3, scenario="open", seed=6)
    made.save(tmp_path / "p.npz")
    options = {"path": str(tmp_path / "p.npz")}
    read = partition_for_scenario(graph, "files", clients=3, scenario="open", options=options)
    for one, other in zip(
        build_silos(graph, made, scenario="open"), build_silos(graph, read, scenario="open"), strict=True
    ):
        np.testing.assert_array_equal(named(one, "grown").graph.edges, named(other, "grown").graph.edges)
    partition(graph, "metis", clients=3).save(tmp_path / "p.npz")
    with pytest.raises(PartitionError, match="has no new_part"):
        partition_for_scenario(graph, "files", clients=3, scenario="unseen", options=options)


@pytest.mark.data
def test_cora_with_three_clients_follows_the_published_statistics(data_root: Path) -> None:
    graph = catalog.load("Cora", root=data_root)
    assert isinstance(graph, Graph)
    graph = largest_component(graph)
    assert np.bincount(graph.labels).tolist() == [344, 214, 406, 726, 379, 285, 131]
    cut = partition_for_scenario(
        graph, "metis", clients=3, scenario="unseen", ratios=(0.4, 0.3, 0.3), split="global", seed=0
    )
    assert cut.new_part is not None
    assert cut.options["recursive"] is False
    sizes = [*map(len, cut.nodes), len(cut.new_part)]
    # Published 605-633, measured 603-636; builds of Metis differ by a few nodes.
    assert min(sizes) > 590
    assert max(sizes) < 650
    for k in range(3):
        shares = np.array([len(cut.train[k]), len(cut.val[k]), len(cut.test[k])]) / len(cut.nodes[k])
        assert shares == pytest.approx([0.4, 0.3, 0.3], abs=0.06)
    returned = {}
    for hops in (1, 2, 3):
        silos = build_silos(graph, cut, scenario="unseen", options={"hops": hops})
        returned[hops] = np.array([silo.facts["returned_nodes"] for silo in silos])
    # Published 709 for one client; measured 142 with one hop and 1,392 with three.
    assert (returned[1] < 300).all()
    assert (returned[2] > 400).all()
    assert (returned[2] < 1200).all()
    assert (returned[3] > 1000).all()
    for silo in silos:
        # One present class goes with few nodes, beside classes that hardly have any.
        assert silo.facts["removed_nodes"] < 60


def test_a_crop_of_nearly_all_is_said_to_be_one(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition_for_scenario(graph, "metis", clients=1, scenario="open", crop=0.9)
    empty = np.zeros(0, dtype=np.int64)
    cut = replace(cut, nodes=(empty,), train=(empty,), val=(empty,), test=(empty,))
    with pytest.raises(PartitionError, match=r"no client has a node left: .* a smaller scenario\.crop"):
        build_silos(graph, cut, scenario="open")
