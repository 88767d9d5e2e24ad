"""What a cut does to a graph, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import both_directions, positions_inside
from graphsilo.data.partition.artefact import Partition
from graphsilo.types import NodeIds


@dataclass(frozen=True)
class ClientAudit:
    """Counts of one client.

    Attributes:
        client: Its number.
        nodes, edges: Of its graph; an undirected link counts as two edges, as everywhere.
        train, val, test: Labelled nodes in each split.
        labels: Nodes per class.
        missing_classes: Classes without a training node.
        homophily: Share of edges between labelled nodes that join one class; None without such edges.
        mean_degree: Edges over nodes.
        isolated: Nodes without an edge to another node.
        components: Connected components, direction ignored.
        added_edges: Edges that the rule added, among ``edges``.
    """

    client: int
    nodes: int
    edges: int
    train: int
    val: int
    test: int
    labels: tuple[int, ...]
    missing_classes: tuple[int, ...]
    homophily: float | None
    mean_degree: float
    isolated: int
    components: int
    added_edges: int


@dataclass(frozen=True)
class Audit:
    """Counts of a whole partition.

    Attributes:
        nodes, edges, clients: Of the graph and the partition.
        is_disjoint_cover: Whether every node is in exactly one client.
        duplicates: Nodes in more than one client.
        missing: Nodes in no client.
        held_out: Missing nodes that a scenario holds out on purpose.
        train_test_overlap: Nodes that some client trains on and some client tests on.
        kept_edges, cut_edges: Edges of the graph with both ends in one client, and the others.
        kept_share: Kept over all edges, from 0 to 1; 1 without edges.
        homophily: Of the whole graph.
        per_client: Counts of each client.
    """

    data: str
    rule: str
    seed: int
    nodes: int
    edges: int
    clients: int
    is_disjoint_cover: bool
    duplicates: int
    missing: int
    held_out: int
    train_test_overlap: int
    kept_edges: int
    cut_edges: int
    kept_share: float
    homophily: float | None
    per_client: tuple[ClientAudit, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON."""
        return dict(msgspec.json.decode(msgspec.json.encode(self)))


def edge_homophily(edges: NDArray[np.int64], labels: NDArray[np.int64]) -> float | None:
    """Share of edges between labelled nodes that join one class; None without such edges."""
    ends = labels[edges]
    known = (ends >= 0).all(axis=0)
    return float((ends[0] == ends[1])[known].mean()) if known.any() else None


def audit(partition: Partition, graph: Graph) -> Audit:
    """Measure a partition. O(nodes + edges) for disjoint clients.

    Raises:
        PartitionError: The partition does not belong to the graph.
    """
    partition.check(graph)
    n = graph.num_nodes
    holders = np.bincount(np.concatenate(partition.nodes), minlength=n)
    inside = positions_inside(graph.edges, partition.nodes, num_nodes=n)
    if (holders > 1).any():
        # A link inside two clients is still one kept edge of the graph.
        held = np.zeros(graph.num_edges, dtype=bool)
        held[np.concatenate(inside)] = True
        kept = int(held.sum())
    else:
        kept = sum(map(len, inside))
    trained, tested = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    trained[np.concatenate(partition.train)] = True
    tested[np.concatenate(partition.test)] = True
    duplicates, missing = int((holders > 1).sum()), int((holders == 0).sum())
    table = np.zeros(n, dtype=np.int64)
    return Audit(
        data=graph.name,
        rule=partition.rule,
        seed=partition.seed,
        nodes=n,
        edges=graph.num_edges,
        clients=partition.num_clients,
        is_disjoint_cover=not duplicates and not missing,
        duplicates=duplicates,
        missing=missing,
        held_out=0 if partition.held_out is None else len(partition.held_out),
        train_test_overlap=int((trained & tested).sum()),
        kept_edges=kept,
        cut_edges=graph.num_edges - kept,
        kept_share=kept / graph.num_edges if graph.num_edges else 1.0,
        homophily=None if graph.targets is not None else edge_homophily(graph.edges, graph.labels),
        per_client=tuple(
            _audit_client(partition, graph, client, graph.edges[:, inside[client]], table)
            for client in range(partition.num_clients)
        ),
    )


def _audit_client(
    partition: Partition, graph: Graph, client: int, edges: NDArray[np.int64], table: NodeIds
) -> ClientAudit:
    from scipy.sparse.csgraph import connected_components  # which lists of rules do not need

    nodes = partition.nodes[client]
    added = 0
    if partition.added_edges is not None:
        extra = both_directions(partition.added_edges[client])
        added = extra.shape[1]
        edges = np.concatenate([edges, extra], axis=1)
    table[nodes] = np.arange(len(nodes))
    local = table[edges]
    proper = local[:, local[0] != local[1]]
    matrix = sp.csr_matrix((np.ones(proper.shape[1], dtype=np.int8), (proper[0], proper[1])), shape=(len(nodes),) * 2)
    touched = np.zeros(len(nodes), dtype=bool)
    touched[proper.reshape(-1)] = True
    labels, has_targets = graph.labels[nodes], graph.targets is not None
    learned = np.bincount(graph.labels[partition.train[client]], minlength=graph.num_classes)
    return ClientAudit(
        client=client,
        nodes=len(nodes),
        edges=int(edges.shape[1]),
        train=len(partition.train[client]),
        val=len(partition.val[client]),
        test=len(partition.test[client]),
        labels=() if has_targets else tuple(np.bincount(labels[labels >= 0], minlength=graph.num_classes).tolist()),
        missing_classes=() if has_targets else tuple(np.flatnonzero(learned == 0).tolist()),
        homophily=None if has_targets else edge_homophily(edges, graph.labels),
        mean_degree=edges.shape[1] / len(nodes) if len(nodes) else 0.0,
        isolated=int((~touched).sum()),
        components=connected_components(matrix, directed=False)[0] if len(nodes) else 0,
        added_edges=added,
    )
