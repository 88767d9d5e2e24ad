"""Small changes to a graph that the papers apply before anything is partitioned.

Each function returns something new, or the very same object where there is nothing to do; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph
from graphsilo.data.sources.directions import columns_of, is_undirected, pattern_of, to_undirected
from graphsilo.errors import ConfigError, DataError

SPARSE_BELOW_DENSITY = 0.25
SPARSE_FROM_COLUMNS = 64


def make_undirected(graph: Graph) -> Graph:
    """The graph with both directions of every link once, weights included; see :func:`to_undirected`.

    Weights of parallel edges in one direction add up. An edge that has no counterpart lends its weight to the other
    direction; two that are there must weigh the same, since it cannot be known whether they are one link or two.

    Raises:
        DataError: The two directions of a link weigh different things.

    Example:
        >>> import numpy as np
        >>> from graphsilo.data.graph import Graph
        >>> once = Graph(np.zeros((2, 1), np.float32), np.array([[0, 0], [1, 1]]), np.zeros(2, int), 1,
        ...     edge_weights=np.array([0.5, 2.0], np.float32))
        >>> both = make_undirected(once)
        >>> both.edges.tolist(), both.edge_weights.tolist()
        ([[0, 1], [1, 0]], [2.5, 2.5])
    """
    n = graph.num_nodes
    if graph.edge_weights is None:
        return graph.with_edges(to_undirected(graph.edges, n))
    forward = _weights(graph)
    forward.setdiag(0)
    forward.eliminate_zeros()
    backward = forward.T.tocsr()
    both = forward.maximum(backward)
    # Where a direction is missing it takes the other's weight; what then still differs was given twice.
    gap = abs(forward - backward).multiply(forward.astype(bool)).multiply(backward.astype(bool)).tocoo()
    wrong = np.flatnonzero(gap.data > 1e-6 * np.asarray(both[gap.row, gap.col]).ravel())
    if len(wrong):
        one, other = int(gap.row[wrong[0]]), int(gap.col[wrong[0]])
        raise DataError(
            f"{graph.name}: the link between node {graph.external_ids[one]} and node {graph.external_ids[other]} "
            f"weighs {forward[one, other]:g} in one direction and {forward[other, one]:g} in the other. Give a link "
            f"without direction once, or the same weight twice; or keep directions (data.undirected=false; in tables "
            f"directed: true)."
        )
    if is_undirected(graph.edges, n):
        return graph  # as it was, column order included
    both.sort_indices()
    return graph.with_edges(columns_of(both), both.data.astype(np.float32))


def merge_parallel(graph: Graph) -> Graph:
    """A weighted graph with each directed edge once, weights of parallel ones added up; the same where none are."""
    if graph.edge_weights is None:
        return graph
    merged = _weights(graph)
    if merged.nnz == graph.num_edges:
        return graph
    return graph.with_edges(columns_of(merged), merged.data.astype(np.float32))


def _weights(graph: Graph) -> sp.csr_matrix:
    """[n, n] float64 CSR of [source, target] weights, those of parallel edges added up, columns ascending."""
    assert graph.edge_weights is not None
    n = graph.num_nodes
    matrix = sp.csr_matrix((graph.edge_weights.astype(np.float64), (graph.edges[0], graph.edges[1])), shape=(n, n))
    matrix.sort_indices()
    return matrix


def coalesce(edges: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Each directed edge once, sorted by source, then target. O(nodes + edges)."""
    return columns_of(pattern_of(edges, num_nodes))


def largest_component(graph: Graph) -> Graph:
    """The graph induced by the largest connected component, edge directions ignored.

    The component becomes the whole graph: nodes are renumbered, in the old order, and ``node_ids`` stays None where
    it was None; ``node_names`` are then those of the nodes that stay. Of equally large components the one with the
    smallest node number is kept. O(nodes + edges).
    """
    from scipy.sparse.csgraph import connected_components

    if graph.num_nodes == 0:
        return graph
    count, component = connected_components(graph.adjacency(), directed=True, connection="weak")
    if count == 1:
        return graph
    sizes = np.bincount(component, minlength=count)
    candidates = np.flatnonzero(sizes[component] == sizes.max())
    nodes = np.flatnonzero(component == component[candidates[0]]).astype(np.int64)
    induced = graph.subgraph(nodes)
    if graph.node_ids is not None:
        return induced
    names = None if graph.node_names is None else graph.node_names[nodes]
    return replace(induced, node_ids=None, node_names=names)


def row_normalize(features: Features) -> Features:
    """Scales each row to an L1 norm of 1; rows of zeros stay zero.

    Args:
        features: [n, d], dense or CSR.

    Returns:
        The same object if each row is normalised already. A CSR result shares its structure with the input.

    Source: the usual preprocessing of citation graphs (Kipf and Welling, 2017). Deviation from PyG's
    ``NormalizeFeatures``: that one shifts by the global minimum and leaves rows with a sum below 1 as they are.
    """
    if sp.issparse(features):
        rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        sums = np.bincount(rows, weights=np.abs(features.data), minlength=features.shape[0])
    else:
        sums = np.abs(features).sum(axis=1, dtype=np.float64)
    if np.all((sums == 0) | (np.abs(sums - 1) < 1e-6)):
        return features
    scale = np.divide(1.0, sums, out=np.ones_like(sums), where=sums > 0).astype(np.float32)
    if sp.issparse(features):
        scaled = features.data * scale[rows]
        return sp.csr_matrix((scaled, features.indices, features.indptr), shape=features.shape, copy=False)
    return features * scale[:, None]


def one_hot_degree(graph: Graph, *, max_degree: int | None = None) -> Features:
    """One column per degree, for graphs that come without node features.

    Args:
        graph: Edges out of each node are counted: where links have no direction that is the degree.
        max_degree: Larger degrees share the last column. None: the largest degree that occurs.

    Returns:
        [n, max_degree + 1] float32; column k is 1 where a node has degree k.

    Raises:
        ConfigError: ``max_degree`` is below 1.

    Source: the degree features of graph-classification papers (Xu et al., 2019, "How powerful are graph neural
    networks?"), as PyG's ``OneHotDegree``, which refuses larger degrees instead of capping them.
    """
    if max_degree is not None and max_degree < 1:
        raise ConfigError(f"max_degree must be at least 1; got {max_degree}.")
    degree = np.bincount(graph.edges[0], minlength=graph.num_nodes)
    highest = max_degree if max_degree is not None else int(degree.max(initial=0))
    column = np.minimum(degree, highest).astype(np.int32)
    pointer = np.arange(graph.num_nodes + 1, dtype=np.int32)
    ones = np.ones(graph.num_nodes, dtype=np.float32)
    return compact_features(sp.csr_matrix((ones, column, pointer), shape=(graph.num_nodes, highest + 1)))


def stack_features(blocks: Sequence[Features]) -> Features:
    """The rows of all matrices below each other: CSR where one of them is, else dense."""
    dense = [block for block in blocks if isinstance(block, np.ndarray)]
    if len(dense) == len(blocks):
        return np.concatenate(dense)
    return sp.csr_matrix(sp.vstack([sp.csr_matrix(block) for block in blocks], format="csr"))


def append_features(left: Features, right: Features) -> Features:
    """The columns of both matrices side by side, stored as :func:`compact_features` would."""
    if left.shape[0] != right.shape[0]:
        raise DataError(f"features of {left.shape[0]} and of {right.shape[0]} nodes cannot stand side by side.")
    if left.shape[1] == 0:
        return right
    if sp.issparse(left) or sp.issparse(right):
        return compact_features(sp.hstack([sp.csr_matrix(left), sp.csr_matrix(right)], format="csr"))
    return np.concatenate([left, right], axis=1)


def compact_features(features: Features) -> Features:
    """Features in the smaller of two forms: float32 where that holds all that their type can, otherwise float64.

    CSR where a matrix has at least 64 columns and less than a quarter of its entries is not zero (bag of words),
    otherwise a dense array.
    """
    rows, columns = features.shape
    kind = np.float32 if np.can_cast(features.dtype, np.float32) else np.float64
    nonzero = features.count_nonzero() if sp.issparse(features) else int(np.count_nonzero(features))
    if columns >= SPARSE_FROM_COLUMNS and nonzero < SPARSE_BELOW_DENSITY * rows * columns:
        matrix = sp.csr_matrix(features, dtype=kind)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return matrix
    dense = features.toarray() if sp.issparse(features) else features
    return np.ascontiguousarray(dense, dtype=kind)
