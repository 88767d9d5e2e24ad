from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import audit, partition
from graphsilo.data.partition.rules.topology import TopologyOptions, cut, inject
from graphsilo.errors import ConfigError


def test_inject_joins_like_nodes_only() -> None:
    labels = np.array([0, 0, 1, 1, -1, 0])
    nodes = np.array([0, 1, 2, 3, 4, 5])
    links = np.array([[0, 1], [1, 2]])
    # Unlinked pairs of one class: 0-5, 1-5, 2-3. Ratio 1 asks for 2 of them, ratio 5 takes all three.
    for ratio, size in ((1.0, 2), (5.0, 3)):
        found = inject(nodes, labels, links, ratio=ratio, kind="same", generator=np.random.default_rng(0))
        pairs = set(map(tuple, found.T.tolist()))
        assert len(pairs) == size
        assert pairs <= {(0, 5), (1, 5), (2, 3)}


@pytest.mark.parametrize(("kind", "rises"), [("homo", True), ("hetero", False)])
def test_the_ratio_of_added_links_and_the_homophily(blocks: Graph, kind: str, rises: bool) -> None:
    graph = blocks.with_edges(blocks.edges)
    found = partition(graph, "topology", clients=2, options={"kind": kind, "ratio": 0.5, "recursive": True})
    plain = audit(partition(graph, "metis", clients=2, options={"recursive": True}), graph)
    injected = audit(found, graph)
    assert found.added_edges is not None
    for before, after in zip(plain.per_client, injected.per_client, strict=True):
        assert after.added_edges == 2 * round(0.5 * before.edges / 2)
        assert after.edges == before.edges + after.added_edges
        assert before.homophily is not None
        assert after.homophily is not None
        assert (after.homophily > before.homophily) == rises
    assert injected.kept_edges == plain.kept_edges


def test_added_links_are_new_and_inside_their_client(blocks: Graph) -> None:
    found = cut(blocks, 4, 7, TopologyOptions())
    assert found.added_edges is not None
    known = set(map(tuple, blocks.edges.T.tolist()))
    for nodes, added in zip(found.nodes, found.added_edges, strict=True):
        assert np.isin(added, nodes).all()
        assert not known & set(map(tuple, added.T.tolist()))


def test_the_coin_is_flipped_per_client(blocks: Graph) -> None:
    kinds = set()
    for seed in range(6):
        found = cut(blocks, 2, seed, TopologyOptions(recursive=True))
        assert found.added_edges is not None
        for added in found.added_edges:
            ends = blocks.labels[added]
            kinds.add(tuple(np.unique(ends[0] == ends[1]).tolist()))
    assert kinds == {(True,), (False,)}


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"partition\.kind must be one of .*Did you mean 'homo'"):
        TopologyOptions(kind="hom")  # type: ignore[arg-type]
