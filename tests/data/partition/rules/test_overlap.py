from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import audit, partition
from graphsilo.data.partition.rules.overlap import OverlapOptions, cut
from graphsilo.errors import PartitionError


def test_five_clients_share_a_part_and_hold_half_of_it(blocks: Graph) -> None:
    found = cut(blocks, 10, 0, OverlapOptions()).nodes
    first, second = (set(np.concatenate(found[start : start + 5]).tolist()) for start in (0, 5))
    assert not first & second
    sizes = [len(nodes) for nodes in found]
    # Two parts of 80 nodes, 38 to 42 each: half of them, rounded down.
    assert len(set(sizes[:5])) == len(set(sizes[5:])) == 1
    assert 38 <= sizes[0] + sizes[5] <= 40
    assert all(len(np.unique(nodes)) == len(nodes) for nodes in found)


def test_no_node_is_trained_on_here_and_tested_on_there(blocks: Graph) -> None:
    found = partition(blocks, "overlap", clients=10)
    report = audit(found, blocks)
    assert found.split == "global"
    assert report.duplicates > 0
    assert report.train_test_overlap == 0
    assert not report.is_disjoint_cover


def test_kept_edges_count_each_edge_once(blocks: Graph) -> None:
    report = audit(partition(blocks, "overlap", clients=5, options={"share": 1.0}), blocks)
    assert report.kept_edges == blocks.num_edges
    assert report.kept_share == 1.0


def test_clients_must_fill_the_parts(blocks: Graph) -> None:
    with pytest.raises(PartitionError, match="multiple of 5; got 7"):
        cut(blocks, 7, 0, OverlapOptions())
    with pytest.raises(PartitionError, match="is empty"):
        cut(blocks, 5, 0, OverlapOptions(share=0.01))
