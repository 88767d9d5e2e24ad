"""Balanced Louvain: communities, cut to a common size, dealt out to clients ("community split").

Source: Zhang et al., FedSage (NeurIPS 2021); rule as in OpenFGL (Li et al., PVLDB 2024/25).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import members, undirected_adjacency
from graphsilo.data.partition.rule import Cut, PartitionOptions, Rule, Seed
from graphsilo.errors import PartitionError
from graphsilo.settings import setting
from graphsilo.types import NodeIds

PATIENCE = 1000
"""Advances of the pointer after which a community goes to the least loaded client."""


class CommunityOptions(PartitionOptions):
    """Settings of every rule that begins with Louvain."""

    resolution: float = setting(1.0, "larger means more, smaller communities", gt=0)
    cut_seed: Seed | None = setting(
        None, "visit nodes in a shuffled order, for another cut of the same graph; without it the order is by id and "
        "the cut depends on the graph alone",
    )  # fmt: skip


class LouvainOptions(CommunityOptions):
    """Settings of the balanced Louvain split."""

    delta: int = setting(20, "δ, nodes by which a client may differ from N/K", ge=0)


def communities(graph: Graph, *, resolution: float = 1.0, cut_seed: int | None = None) -> list[NodeIds]:
    """Louvain communities by Newman modularity on the undirected graph.

    Returns:
        Ascending node ids of each community; communities in the order of their smallest node.
    """
    from sknetwork.clustering import Louvain

    if graph.num_edges == 0:
        return list(np.arange(graph.num_nodes, dtype=np.int64)[:, None])
    finder = Louvain(
        resolution=resolution,
        modularity="newman",
        shuffle_nodes=cut_seed is not None,
        random_state=0 if cut_seed is None else cut_seed,
        return_aggregate=True,
    )
    return group_by(np.asarray(finder.fit_predict(undirected_adjacency(graph)), dtype=np.int64))


def group_by(membership: NDArray[np.int64]) -> list[NodeIds]:
    """Ascending node ids of each group, groups in the order of their smallest node.

    Example:
        >>> [group.tolist() for group in group_by(np.array([5, 2, 5, 2, 9]))]
        [[0, 2], [1, 3], [4]]
    """
    if not len(membership):
        return []
    _, first, inverse = np.unique(membership, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return members(rank[inverse], len(first))


def cut_long(groups: Sequence[NodeIds], cap: int) -> list[NodeIds]:
    """Cut groups longer than ``cap``: the first ``cap`` nodes stay, the rest goes to the end of the list, again cut.

    Example:
        >>> [piece.tolist() for piece in cut_long([np.arange(5), np.array([7])], 2)]
        [[0, 1], [7], [2, 3], [4]]
    """
    pieces = [group[:cap] for group in groups]
    rests = [group[cap:] for group in groups if len(group) > cap]
    while rests:
        pieces.extend(rest[:cap] for rest in rests)
        rests = [rest[cap:] for rest in rests if len(rest) > cap]
    return pieces


def place(groups: Sequence[NodeIds], clients: int, *, num_nodes: int, delta: int) -> list[NodeIds]:
    """Deal groups out to clients, largest first, filling one client before the next.

    A pointer stays on a client while the next group fits below floor(N/K) + δ and moves on otherwise; clients with
    floor(N/K) nodes leave the round. A group that fits nowhere goes to the least loaded active client.

    Args:
        groups: Disjoint node ids; equal sizes are taken in the order given.
        clients: K.
        num_nodes: N.
        delta: δ in nodes.

    Returns:
        Node ids of each client: its groups one after the other.

    Source: OpenFGL. Deviation: its give-up scan compares the wrong client; here the smallest load is chosen.
    """
    target = num_nodes // clients
    limit = target + delta
    active = np.arange(clients)
    load = np.zeros(clients, dtype=np.int64)
    held: list[list[NodeIds]] = [[] for _ in range(clients)]
    pointer = 0
    for group in sorted(groups, key=len, reverse=True):
        while len(active) > 1 and load[active[pointer]] >= target:
            active = np.delete(active, pointer)
            pointer %= len(active)
        if load[active[pointer]] + len(group) >= limit:
            # Loads do not change while the pointer moves, so the first client that fits is found in one look.
            fits = np.flatnonzero(np.roll(load[active], -pointer) + len(group) < limit)
            if len(fits) and fits[0] <= PATIENCE:
                pointer = (pointer + int(fits[0])) % len(active)
            else:
                pointer = int(np.argmin(load[active]))
        held[active[pointer]].append(group)
        load[active[pointer]] += len(group)
    return [np.concatenate(part) if part else np.zeros(0, dtype=np.int64) for part in held]


def balance(graph: Graph, clients: int, options: LouvainOptions) -> list[NodeIds]:
    """The whole rule, empty clients included."""
    found = communities(graph, resolution=options.resolution, cut_seed=options.cut_seed)
    cap = max(1, graph.num_nodes // clients - options.delta)
    return place(cut_long(found, cap), clients, num_nodes=graph.num_nodes, delta=options.delta)


def cut(graph: Graph, clients: int, seed: int, options: LouvainOptions) -> Cut:
    """Cut a graph along balanced Louvain communities. The seed plays no part: see ``cut_seed``.

    Raises:
        PartitionError: Some client received no node.
    """
    nodes = balance(graph, clients, options)
    empty = [number for number, part in enumerate(nodes) if not len(part)]
    if empty:
        raise PartitionError(
            f"partition 'louvain' left {len(empty)} of {clients} clients without a node (client {empty[0]} first): "
            f"{graph.num_nodes} nodes with delta {options.delta} are too few. Lower delta, ask for fewer clients, "
            f"or use 'metis'."
        )
    return Cut(tuple(nodes))


RULES = (
    Rule(
        "louvain",
        "communities cut to similar size and dealt out to clients",
        LouvainOptions,
        cut,
        source="FedSage (Zhang et al., NeurIPS 2021)",
    ),
)
