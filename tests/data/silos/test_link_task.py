"""Silos for link prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, partition
from graphsilo.data.silos.link_task import build_link_silos
from graphsilo.errors import PartitionError, UnsupportedError


def test_link_silos_hide_validation_and_test_links(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    cut = partition(graph, "metis", clients=3, seed=5)
    for silo in build_link_silos(graph, cut):
        assert silo.links is not None
        links, whole = silo.links, graph.subgraph(silo.graph.global_ids)
        count = whole.num_edges // 2
        assert links.train.shape[1] == int(0.8 * count)
        assert links.train.shape[1] + links.val.shape[1] + links.test.shape[1] == count
        message = set(map(tuple, silo.graph.edges.T.tolist()))
        assert message == {(a, b) for a, b in links.train.T.tolist()} | {(b, a) for a, b in links.train.T.tolist()}
        known = set(map(tuple, whole.edges.T.tolist()))
        negatives = np.concatenate([links.val_negative, links.test_negative], axis=1).T.tolist()
        assert len(set(map(tuple, negatives))) == len(negatives)
        assert not known & set(map(tuple, negatives))
        assert all(a < b for a, b in negatives)
        assert (links.val_negative.shape, links.test_negative.shape) == (links.val.shape, links.test.shape)
        assert silo.seen.graph is silo.graph
        assert silo.seen.items["test"].tolist() == list(range(links.test.shape[1]))


def test_mistakes_are_named(path: Graph, cut_path: Partition) -> None:
    with pytest.raises(PartitionError, match="too few for training"):
        build_link_silos(path, replace(cut_path, new_part=None))
    with pytest.raises(UnsupportedError, match="own graph"):
        build_link_silos(path, replace(cut_path, new_part=None), global_graph=True)
