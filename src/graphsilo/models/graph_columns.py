"""Columns of whole graphs for trees: what their nodes are on average, how many links these have, and their groups.

With N = D^-1 A: the mean over a graph's nodes of X, N X, N² X; how many nodes and links there are; how the nodes' links
are spread. Nodes that are linked to each other and to the same others are one class, and where no neighbour has fewer
links than they have, they and their neighbours are a group: of a union of cliques each clique is one, and of people who
acted or wrote together each cast or paper is, as a rule. All of it takes time linear in the links (but for sorting),
runs over one graph in the order of its nodes, in float64, and does not depend on which other graphs are in the silo.

Source: twins as in Habib and Paul, "A Survey of the Algorithmic Aspects of Modular Decomposition", 2010; their
neighbourhoods are told apart by sums of random numbers, modulo 2^64.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import GraphCollection
from graphsilo.models.columns import projection, unit_rows
from graphsilo.random import numpy_generator

HOPS = 2
QUANTILES = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
LARGEST = 5
"""Classes and groups whose sizes are columns."""
STRUCTURE = 3 + 2 * (2 + len(QUANTILES)) + 5 + 2 * LARGEST
"""Columns that no feature is in."""


def width_of_graphs(num_features: int, dim: int) -> int:
    """p, the columns of a graph."""
    return (HOPS + 1) * min(num_features, dim) + STRUCTURE


def graph_columns(graphs: GraphCollection, step: sp.csr_matrix, dim: int, seed: int) -> NDArray[np.float32]:
    """[graphs, p] the columns of all graphs of a collection.

    Args:
        graphs: The collection.
        step: [n, n] N of all its nodes.
        dim: Most columns of X: wider rows are scaled to length 1 and projected at random.
        seed: Of the projection.
    """
    pointer, own = graphs.pointer, graphs.union.features
    if graphs.num_features > dim:
        own = unit_rows(own) @ projection(graphs.num_features, dim, seed)
    mean, parts = _mean(pointer), []
    for hop in range(HOPS + 1):
        if hop:
            mean = sp.csr_matrix(mean @ step.astype(np.float64))
            mean.sort_indices()
        found = mean @ own.astype(np.float64)
        parts.append(found.toarray() if sp.issparse(found) else found)
    return np.hstack([*parts, _structure(step, pointer)]).astype(np.float32)


def _mean(pointer: NDArray[np.int64]) -> sp.csr_matrix:
    """[graphs, nodes] what takes the mean over the nodes of each graph; of none it is 0."""
    sizes = np.diff(pointer)
    parts = np.repeat(1.0 / np.maximum(sizes, 1), sizes), np.arange(pointer[-1]), pointer
    return sp.csr_matrix(parts, shape=(len(sizes), int(pointer[-1])))


def _structure(links: sp.csr_matrix, pointer: NDArray[np.int64]) -> NDArray[np.float64]:
    """[graphs, STRUCTURE]."""
    sizes, degree = np.diff(pointer), np.diff(links.indptr)
    which = np.repeat(np.arange(len(sizes)), sizes)
    total, pairs = np.bincount(which, degree, len(sizes)), np.maximum(sizes * (sizes - 1.0), 1.0)
    first, count = _twins(links, which, pointer)  # of each class
    alone = _least(links, degree)[first] >= degree[first]
    classes, groups = (np.bincount(which[each], minlength=len(sizes)) for each in (first, first[alone]))
    nodes = np.bincount(which[first[alone]], count[alone], len(sizes))
    per_node = 1.0 / np.maximum(sizes, 1)
    return np.column_stack([
        np.log1p(sizes), np.log1p(total), total / pairs,
        _spread(np.log1p(degree), which, pointer),
        _spread(degree / np.maximum(sizes - 1, 1)[which], which, pointer),
        np.log1p(classes), classes * per_node, np.log1p(groups), groups * per_node, nodes * per_node,
        _largest(count, which[first], len(sizes)),
        _largest(degree[first[alone]] + 1, which[first[alone]], len(sizes)),
    ])  # fmt: skip


def _twins(
    links: sp.csr_matrix, which: NDArray[np.int64], pointer: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A node of each class of nodes with the same closed neighbourhood, and how many these are."""
    place = np.arange(len(which)) - pointer[which]
    draw = numpy_generator(0, "trees", "twins")
    numbers = draw.integers(0, 2**64, size=int(place.max(initial=-1)) + 1, dtype=np.uint64)[place]
    ones = sp.csr_matrix((np.ones(links.nnz, dtype=np.uint64), links.indices, links.indptr), shape=links.shape)
    keys = ones @ numbers + numbers
    order = np.lexsort((keys, which))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(keys[order]) != 0) | (np.diff(which[order]) != 0)
    starts = np.flatnonzero(new)
    return order[starts], np.diff(np.append(starts, len(order)))


def _least(links: sp.csr_matrix, degree: NDArray[np.integer]) -> NDArray[np.integer]:
    """[n] the fewest links that a neighbour has; of nodes without one, their own."""
    found, linked = degree.copy(), degree > 0
    if linked.any():
        found[linked] = np.minimum.reduceat(degree[links.indices], links.indptr[:-1][linked])
    return found


def _spread(values: NDArray[np.float64], which: NDArray[np.int64], pointer: NDArray[np.int64]) -> NDArray[np.float64]:
    """[graphs, 2 + quantiles] mean, deviation and quantiles (the value below, where it lies between two)."""
    mean, sizes = _mean(pointer), np.diff(pointer)
    middle = mean @ values
    deviation = np.sqrt(mean @ np.square(values - middle[which]))
    ordered = np.append(values[np.lexsort((values, which))], 0.0)
    at = pointer[:-1, None] + (QUANTILES * np.maximum(sizes - 1, 0)[:, None]).astype(np.int64)
    return np.column_stack([middle, deviation, np.where(sizes[:, None] > 0, ordered[at], 0.0)])


def _largest(counts: NDArray[np.integer], which: NDArray[np.int64], graphs: int) -> NDArray[np.float64]:
    """[graphs, LARGEST] log(1 + count) of each graph's largest, 0 where there are fewer."""
    order = np.lexsort((-counts, which))
    rank = np.arange(len(order)) - np.searchsorted(which[order], which[order])
    kept = rank < LARGEST
    found = np.zeros((graphs, LARGEST))
    found[which[order][kept], rank[kept]] = np.log1p(counts[order][kept])
    return found
