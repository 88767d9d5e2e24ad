"""Links and their directions, as patterns of entries; weights aside."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Graph


def remove_self_loops(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The columns of ``edges`` [2, e] whose two ends differ, in the same order."""
    keep = edges[0] != edges[1]
    return edges if keep.all() else np.ascontiguousarray(edges[:, keep])


def is_undirected(edges: NDArray[np.int64], num_nodes: int) -> bool:
    """Whether every link has exactly two columns, one per direction, and no link joins a node to itself."""
    if (edges[0] == edges[1]).any():
        return False
    forward = pattern_of(edges, num_nodes)
    return forward.nnz == edges.shape[1] and are_equal(forward, forward.T.tocsr())


def is_symmetric(graph: Graph) -> bool:
    """Whether every edge has its counterpart in the other direction; weights and parallel edges aside."""
    pattern = pattern_of(graph.edges, graph.num_nodes)
    return are_equal(pattern, pattern.T.tocsr())


def has_directions(graph: Graph) -> bool:
    """Whether links have directions. Where nodes have times, edges lead to later ones, which says nothing of links."""
    return graph.time is None and not is_symmetric(graph)


def to_undirected(edges: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Both directions of every link once: symmetrised, without self-loops and without duplicates.

    Args:
        edges: [2, e] node numbers, one column per directed edge.
        num_nodes: n; node numbers are below it.

    Returns:
        [2, 2 · links] int64. Edges that are undirected already come back unchanged, column order included;
        otherwise columns are sorted by source, then target.
    """
    return edges if is_undirected(edges, num_nodes) else columns_of(undirected_pattern(edges, num_nodes))


def undirected_pattern(edges: NDArray[np.int64], num_nodes: int) -> sp.csr_matrix:
    """[n, n] boolean CSR of the links between different nodes: symmetric, columns ascending."""
    forward = pattern_of(remove_self_loops(edges), num_nodes)
    backward = forward.T.tocsr()
    if are_equal(forward, backward):
        return forward
    both: sp.csr_matrix = forward + backward
    both.sort_indices()
    return both


def are_equal(one: sp.csr_matrix, other: sp.csr_matrix) -> bool:
    """Whether two patterns with ascending columns have the same entries."""
    return np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)


def pattern_of(edges: NDArray[np.int64], num_nodes: int) -> sp.csr_matrix:
    """[n, n] boolean CSR with sorted columns; parallel edges collapse (addition of booleans cannot overflow)."""
    ones = np.ones(edges.shape[1], dtype=np.bool_)
    pattern = sp.csr_matrix((ones, (edges[0], edges[1])), shape=(num_nodes, num_nodes))
    pattern.sort_indices()
    return pattern


def columns_of(pattern: sp.csr_matrix) -> NDArray[np.int64]:
    pattern.sort_indices()
    sources = np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))
    return np.stack([sources, pattern.indices.astype(np.int64)])
