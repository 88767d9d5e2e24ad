from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rules.label_imbalance import (
    LouvainPlainOptions,
    LouvainPlusOptions,
    MetisPlusOptions,
    cut_louvain_plain,
    cut_louvain_plus,
    cut_metis_plain,
    cut_metis_plus,
    join,
    label_histograms,
)
from graphsilo.errors import ConfigError, PartitionError


def test_histograms_are_shares_and_zeros_without_labels() -> None:
    labels = np.array([0, 1, 1, 1, -1, -1, 0])
    groups = [np.array([0, 1, 2, 3]), np.array([4, 5]), np.array([6, 4])]
    np.testing.assert_allclose(label_histograms(labels, groups, 2), [[0.25, 0.75], [0.0, 0.0], [1.0, 0.0]])


def test_groups_with_like_labels_come_together(two_triangles: Graph) -> None:
    groups = [np.array([0]), np.array([3, 4]), np.array([2, 1]), np.array([5])]
    found = sorted(part.tolist() for part in join(two_triangles, groups, 2, seed=0, rule="metis+"))
    assert found == [[0, 2, 1], [3, 4, 5]]


def test_louvain_plain_unites_blocks_of_one_class(blocks: Graph) -> None:
    found = cut_louvain_plain(blocks, 2, 0, LouvainPlainOptions(resolution=3.0)).nodes
    assert sorted(set(blocks.labels[part].tolist()).pop() for part in found) == [0, 1]
    assert all(len(set(blocks.labels[part].tolist())) == 1 for part in found)


@pytest.mark.parametrize("cut", [cut_metis_plus, cut_metis_plain])
def test_metis_plus_unites_blocks_of_one_class(blocks: Graph, cut) -> None:
    found = cut(blocks, 2, 0, MetisPlusOptions(parts=8)).nodes
    assert sorted(len(part) for part in found) == [40, 40]
    assert all(len(set(blocks.labels[part].tolist())) == 1 for part in found)


def test_louvain_plus_covers_the_graph(blocks: Graph) -> None:
    found = cut_louvain_plus(blocks, 2, 0, LouvainPlusOptions(virtual_clients=8, delta=2)).nodes
    assert sorted(np.concatenate(found).tolist()) == list(range(80))


def test_too_few_groups_name_the_way_out(two_triangles: Graph) -> None:
    with pytest.raises(PartitionError, match=r"gave 2 groups, 3 clients asked for.*resolution"):
        cut_louvain_plain(two_triangles, 3, 0, LouvainPlainOptions())


def test_equal_histograms_cannot_be_told_apart(blocks: Graph) -> None:
    with pytest.raises(PartitionError, match="only 2 different label histograms"):
        cut_metis_plus(blocks, 3, 0, MetisPlusOptions(parts=8, recursive=True))


def test_fewer_virtual_clients_than_clients_are_refused(blocks: Graph) -> None:
    with pytest.raises(ConfigError, match="virtual_clients"):
        cut_louvain_plus(blocks, 4, 0, LouvainPlusOptions(virtual_clients=3))


def test_empty_parts_are_dropped_or_refused(blocks: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphsilo.data.partition.rules import label_imbalance

    monkeypatch.setattr(label_imbalance, "membership", lambda *_, **__: 2 * blocks.labels)
    found = cut_metis_plus(blocks, 2, 0, MetisPlusOptions(parts=3)).nodes
    assert sorted(len(part) for part in found) == [40, 40]
    with pytest.raises(PartitionError, match="1 of 3 Metis parts are empty"):
        cut_metis_plain(blocks, 2, 0, MetisPlusOptions(parts=3))


def test_more_parts_than_nodes_are_refused(two_triangles: Graph) -> None:
    with pytest.raises(PartitionError, match="cannot make 100 parts of 6 nodes"):
        cut_metis_plus(two_triangles, 2, 0, MetisPlusOptions())
