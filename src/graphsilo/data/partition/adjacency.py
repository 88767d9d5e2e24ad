"""The undirected view of a graph that the cutting rules share, and the edges inside each client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.sources.directions import undirected_pattern
from graphsilo.types import NodeIds


def undirected_adjacency(graph: Graph) -> sp.csr_matrix:
    """[n, n] float32 CSR: symmetric, zeros and ones, no self-loops, neighbours ascending.

    Louvain and Metis walk neighbours in stored order, so one fixed order makes their answer independent of the
    order in which edges were listed. Edge weights play no part in cutting. O(nodes + edges).
    """
    # One byte per entry until the pattern is known: on a large graph the entries are most of the memory.
    pattern = undirected_pattern(graph.edges, graph.num_nodes)
    ones = np.ones(pattern.nnz, dtype=np.float32)
    return sp.csr_matrix((ones, pattern.indices, pattern.indptr), shape=pattern.shape)


def undirected_links(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """[2, m] every link once, smaller end first, without self-loops, ascending."""
    low, high = edges.min(axis=0, initial=np.iinfo(edges.dtype).max), edges.max(axis=0, initial=-1)
    proper = low != high
    if not proper.any():
        return np.zeros((2, 0), dtype=np.int64)
    base = np.int64(high[proper].max()) + 1  # wide, so that the keys are even where node numbers are narrow
    keys = np.unique(low[proper] * base + high[proper])
    return np.stack([keys // base, keys % base])


def both_directions(links: NDArray[np.int64]) -> NDArray[np.int64]:
    """[2, 2m] columns for both directions of [2, m] links, sorted by source and then target."""
    edges = np.concatenate([links, links[::-1]], axis=1)
    return np.ascontiguousarray(edges[:, np.lexsort((edges[1], edges[0]))])


def positions_inside(
    edges: NDArray[np.int64], clients: Sequence[NodeIds], *, num_nodes: int
) -> list[NDArray[np.int64]]:
    """The columns of ``edges`` with both ends in each client, ascending.

    O(nodes + edges) for disjoint clients, O(clients · edges) where clients share nodes.
    """
    sizes = np.array([len(nodes) for nodes in clients], dtype=np.int64)
    everyone = np.concatenate([*clients, np.zeros(0, dtype=np.int64)])
    if len(np.unique(everyone)) == len(everyone):
        # 16 bits are enough for most federations, and are sorted in linear time.
        owner = np.full(num_nodes, -1, dtype=np.int16 if len(clients) < 2**15 else np.int64)
        owner[everyone] = np.repeat(np.arange(len(clients)), sizes)
        owners = owner[edges[0]]
        kept = np.flatnonzero((owners >= 0) & (owners == owner[edges[1]]))
        kept = kept[np.argsort(owners[kept], kind="stable")]
        ends = np.cumsum(np.bincount(owners[kept], minlength=len(clients)))
        return np.split(kept, ends[:-1])
    result = []
    for nodes in clients:
        inside = np.zeros(num_nodes, dtype=bool)
        inside[nodes] = True
        result.append(np.flatnonzero(inside[edges].all(axis=0)))
    return result


def edges_inside(edges: NDArray[np.int64], clients: Sequence[NodeIds], *, num_nodes: int) -> list[NDArray[np.int64]]:
    """The edges of each client in global ids, [2, e_k], in the order in which they were listed."""
    return [edges[:, columns] for columns in positions_inside(edges, clients, num_nodes=num_nodes)]


def members(parts: NDArray[np.int64], count: int) -> list[NodeIds]:
    """Ascending nodes of each part."""
    order = np.argsort(parts, kind="stable")
    return np.split(order, np.cumsum(np.bincount(parts, minlength=count))[:-1])
