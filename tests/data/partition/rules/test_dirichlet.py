from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.graph import Graph
from graphsilo.data.partition import audit, partition
from graphsilo.data.partition.rules.dirichlet import share_out
from graphsilo.errors import PartitionError


def make_blocks(blocks: int, size: int) -> Graph:
    """Complete blocks; block b has the class b mod 2."""
    number = np.repeat(np.arange(blocks), size)
    edges = np.stack(np.nonzero((number[:, None] == number[None]) & ~np.eye(len(number), dtype=bool)))
    return Graph(np.zeros((len(number), 1), dtype=np.float32), edges.astype(np.int64), number % 2, 2)


def test_a_large_alpha_gives_every_client_the_same_shares() -> None:
    labels = np.repeat([0, 1], 500)
    found = share_out(labels, 5, alpha=1e8, min_items=5, seed=0)
    # q is 1/5 to four digits: cuts at floor(0.2 · 500 · i), a node off at most.
    for part in found:
        assert np.bincount(labels[part]).tolist() == pytest.approx([100, 100], abs=1)


def test_a_large_alpha_keeps_one_edge_in_k() -> None:
    # 40 complete blocks of 20 nodes, two classes of 400 nodes, 4 clients with 100 of each: two nodes of a class meet
    # with 99/399 = 0.248. A small α leaves most of a class, hence of its edges, together.
    graph = make_blocks(40, 20)
    options = {"alpha": 1e8, "min_nodes": 1}
    kept = [
        audit(partition(graph, "dirichlet", clients=4, seed=seed, options=options), graph).kept_share
        for seed in range(3)
    ]
    assert kept == pytest.approx([0.248] * 3, abs=0.01)
    few = audit(partition(graph, "dirichlet", clients=4, options={**options, "alpha": 0.3}), graph)
    assert few.kept_share > 0.3


def test_a_small_alpha_gives_each_class_to_few_clients() -> None:
    labels = np.repeat(np.arange(10), 100)
    found = share_out(labels, 5, alpha=0.05, min_items=1, seed=1)
    counts = np.stack([np.bincount(labels[part], minlength=10) for part in found])
    assert np.median(counts.max(axis=0)) > 80


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    clients=st.integers(1, 6),
    labels=st.lists(st.integers(-1, 3), min_size=60, max_size=120),
)
def test_every_item_has_one_owner(seed: int, clients: int, labels: list[int]) -> None:
    found = share_out(np.array(labels), clients, alpha=5.0, min_items=1, seed=seed)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(labels)))


def test_a_client_that_is_full_receives_nothing_more() -> None:
    # Class 0 has all but 6 of 60 items and 2 clients: whoever reaches 30 in class 0 gets nothing of class 1.
    labels = np.array([0] * 54 + [1] * 6)
    for seed in range(20):
        found = share_out(labels, 2, alpha=1.0, min_items=1, seed=seed)
        for part in found:
            if (labels[part] == 0).sum() >= 30:
                assert (labels[part] == 1).sum() == 0


def test_an_alpha_that_underflows_still_gives_a_draw() -> None:
    found = share_out(np.repeat([0, 1, 2, 3], 10), 2, alpha=1e-3, min_items=1, seed=3)
    assert sum(map(len, found)) == 40


def test_giving_up_names_the_settings() -> None:
    with pytest.raises(PartitionError, match=r"after 100 draws with alpha 0\.001.*raise alpha"):
        share_out(np.zeros(100, dtype=np.int64), 10, alpha=1e-3, min_items=5, seed=0)


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(PartitionError, match="need 30, but there are 20"):
        share_out(np.zeros(20, dtype=np.int64), 6, alpha=1.0, min_items=5, seed=0)
