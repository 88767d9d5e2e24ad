from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rules.louvain import LouvainOptions, communities, cut, cut_long, group_by, place
from graphsilo.errors import PartitionError


def ranges(*sizes: int) -> list[np.ndarray]:
    """Groups of consecutive ids with these sizes."""
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def test_communities_of_two_triangles_come_in_the_order_of_their_smallest_node(two_triangles: Graph) -> None:
    assert [group.tolist() for group in communities(two_triangles)] == [[0, 1, 2], [3, 4, 5]]


def test_a_graph_without_edges_has_single_nodes_as_communities(two_triangles: Graph) -> None:
    lonely = two_triangles.with_edges(np.zeros((2, 0), dtype=np.int64))
    assert [group.tolist() for group in communities(lonely)] == [[0], [1], [2], [3], [4], [5]]


def test_groups_keep_the_order_of_first_appearance() -> None:
    assert [group.tolist() for group in group_by(np.array([7, 0, 7, 3, 0]))] == [[0, 2], [1, 4], [3]]


def test_long_groups_leave_their_rest_at_the_end_round_after_round() -> None:
    # cap 3: [0..7) -> [0,1,2], rest [3..7) -> [3,4,5], rest [6]; [7..11) -> [7,8,9], rest [10].
    pieces = cut_long(ranges(7, 4, 1), 3)
    assert [piece.tolist() for piece in pieces] == [[0, 1, 2], [7, 8, 9], [11], [3, 4, 5], [10], [6]]


def test_the_pointer_stays_on_a_client_while_groups_fit() -> None:
    # N = 10, K = 2, delta 2: target 5, limit 7 (exclusive). Largest first: 4, 3, 2, 1.
    # 4 -> client 0 (load 4). 3: 4 + 3 = 7 does not stay below 7 -> client 1 (3), and the pointer stays there.
    # 2 -> client 1 (5). 1: client 1 has reached the target and leaves; client 0 gets it (5).
    found = place(ranges(4, 3, 2, 1), 2, num_nodes=10, delta=2)
    assert [part.tolist() for part in found] == [[0, 1, 2, 3, 9], [4, 5, 6, 7, 8]]


def test_equal_groups_are_dealt_in_the_order_given() -> None:
    # N = 6, K = 3, delta 0: target 2, limit 2, so not even a pair fits: every group goes to the least loaded client.
    found = place(ranges(2, 2, 2), 3, num_nodes=6, delta=0)
    assert [part.tolist() for part in found] == [[0, 1], [2, 3], [4, 5]]


def test_a_group_that_fits_nowhere_goes_to_the_least_loaded_client() -> None:
    # N = 9, K = 3, delta 1: target 3, limit 4. 4 fits nowhere: client 0 (first of the empty ones). 3 -> client 0 is
    # dropped, then client 1 (3). 2: client 1 is dropped, client 2 (2).
    found = place(ranges(4, 3, 2), 3, num_nodes=9, delta=1)
    assert [len(part) for part in found] == [4, 3, 2]


def place_step_by_step(
    groups: list[np.ndarray], clients: int, *, num_nodes: int, delta: int
) -> tuple[list[list[int]], bool]:
    """The rule as the protocol words it, one advance at a time; and whether it ever gave up."""
    target = num_nodes // clients
    active = list(range(clients))
    held: list[list[int]] = [[] for _ in range(clients)]
    pointer, gave_up = 0, False
    for group in sorted(groups, key=len, reverse=True):
        while len(active) > 1 and len(held[active[pointer]]) >= target:
            active.pop(pointer)
            pointer %= len(active)
        advances = 0
        while len(held[active[pointer]]) + len(group) >= target + delta:
            pointer = (pointer + 1) % len(active)
            advances += 1
            if advances > 1000:
                pointer = min(range(len(active)), key=lambda i: len(held[active[i]]))
                gave_up = True
                break
        held[active[pointer]] += group.tolist()
    return held, gave_up


@settings(max_examples=150, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=25), clients=st.integers(1, 6), delta=st.integers(0, 5))
def test_placing_follows_the_protocol_step_by_step(sizes: list[int], clients: int, delta: int) -> None:
    total = sum(sizes)
    groups = cut_long(ranges(*sizes), max(1, total // clients - delta))
    found = place(groups, clients, num_nodes=total, delta=delta)
    wanted, gave_up = place_step_by_step(groups, clients, num_nodes=total, delta=delta)
    assert [part.tolist() for part in found] == wanted
    assert sorted(np.concatenate(found).tolist()) == list(range(total))
    assert gave_up or max(len(part) for part in found) < total // clients + delta


def test_blocks_stay_whole(blocks: Graph) -> None:
    found = cut(blocks, 4, 0, LouvainOptions(delta=0)).nodes
    # 8 blocks of 10 on 4 clients: a community is one block or more, cut at 20, so every client holds 20 nodes.
    assert [len(part) for part in found] == [20, 20, 20, 20]


def test_a_delta_larger_than_the_share_still_ends(two_triangles: Graph) -> None:
    # cap would be 3 - 20 < 0: pieces of one node. Limit 23: the first client takes nodes until it has 3.
    assert [len(part) for part in cut(two_triangles, 2, 0, LouvainOptions(delta=20)).nodes] == [3, 3]


def test_fewer_groups_than_clients_leave_some_empty() -> None:
    # With N/K = 1 and limit 3, clients may stay empty only where fewer pieces than clients exist: place one group.
    found = place(ranges(2), 2, num_nodes=2, delta=5)
    assert [len(part) for part in found] == [2, 0]


def test_empty_clients_raise(two_triangles: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphsilo.data.partition.rules import louvain

    monkeypatch.setattr(louvain, "cut_long", lambda groups, cap: list(groups))
    with pytest.raises(PartitionError, match="left 3 of 5 clients without a node"):
        cut(two_triangles, 5, 0, LouvainOptions())
