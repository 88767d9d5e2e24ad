"""Partitions published elsewhere come out exactly: node sets, node order and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, audit, partition
from graphsilo.data.sources import catalog

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def cora(data_root: Path) -> Graph:
    graph = catalog.load("Cora", root=data_root)
    assert isinstance(graph, Graph)
    return graph


def assert_equal(found: Partition, wanted: Partition) -> None:
    assert found.num_clients == wanted.num_clients
    for part in ("nodes", "train", "val", "test"):
        for client in range(found.num_clients):
            np.testing.assert_array_equal(getattr(found, part)[client], getattr(wanted, part)[client])


@pytest.mark.parametrize("rule", ["louvain", "metis"])
def test_cora_with_ten_clients_and_seed_2024(cora: Graph, golden_root: Path, rule: str) -> None:
    wanted = Partition.load(golden_root / f"cora_{rule}10_seed2024.npz")
    assert_equal(partition(cora, rule, clients=10, seed=2024), wanted)


@pytest.mark.parametrize("rule", ["louvain", "metis"])
def test_the_order_of_edges_plays_no_part(cora: Graph, golden_root: Path, rule: str) -> None:
    order = np.random.default_rng(0).permutation(cora.num_edges)
    shuffled = cora.with_edges(cora.edges[:, order])
    assert_equal(partition(shuffled, rule, clients=10), Partition.load(golden_root / f"cora_{rule}10_seed2024.npz"))


def test_a_golden_file_goes_through_the_rule_files(cora: Graph, golden_root: Path) -> None:
    path = golden_root / "cora_louvain10_seed2024.npz"
    found = partition(cora, "files", clients=10, options={"path": str(path)})
    assert_equal(found, Partition.load(path))
    assert found.split == "stored"


def test_the_seed_moves_the_splits_and_not_the_communities(cora: Graph) -> None:
    first, second = (partition(cora, "louvain", clients=10, seed=seed) for seed in (2024, 1))
    for client in range(10):
        np.testing.assert_array_equal(first.nodes[client], second.nodes[client])
    assert any(not np.array_equal(a, b) for a, b in zip(first.train, second.train, strict=True))


def test_no_louvain_client_exceeds_its_share_by_delta(cora: Graph) -> None:
    assert max(len(nodes) for nodes in partition(cora, "louvain", clients=10).nodes) < 270 + 20


@pytest.mark.parametrize(("data", "kept"), [("Cora", 0.34), ("CiteSeer", 0.52)])
def test_louvain_plus_on_virtual_clients_keeps_the_published_share_of_edges(
    data_root: Path, data: str, kept: float
) -> None:
    graph = catalog.load(data, root=data_root)
    assert isinstance(graph, Graph)
    found = audit(partition(graph, "louvain+", clients=10), graph)
    assert found.is_disjoint_cover
    assert found.kept_share == pytest.approx(kept, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["CiteSeer", "PubMed", "chameleon", "Photo"])
@pytest.mark.parametrize("rule", ["louvain", "metis"])
@pytest.mark.parametrize("clients", [5, 20])
def test_other_graphs_are_covered(data_root: Path, data: str, rule: str, clients: int) -> None:
    graph = catalog.load(data, root=data_root)
    assert isinstance(graph, Graph)
    found = audit(partition(graph, rule, clients=clients), graph)
    assert found.is_disjoint_cover
    assert found.train_test_overlap == 0
    assert all(client.train and client.val and client.test for client in found.per_client)
