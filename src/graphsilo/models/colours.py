"""Counts of colours of Weisfeiler and Lehman: which neighbourhoods a graph has, and how often.

A node's first colour is its row of features, or its degree where a row has one number. Its next colour is made of its
own and those of its neighbours, whatever their order: after h steps nodes of one colour have neighbourhoods of h hops
that look alike. Colours are numbers of 64 bits that follow from the data by fixed rules, so that all clients call the
same thing the same; each is counted in one of ``width`` columns, where few others are.

Source: Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 2011; of counts the square roots.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, GraphCollection
from graphsilo.data.links import mix_bits
from graphsilo.models.columns import unit_rows

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: its multiples lie apart."""


def colour_counts(graphs: GraphCollection, hops: int, width: int, seed: int) -> sp.csr_matrix:
    """[graphs, width] sparse square roots of the counts of all colours of 0 to ``hops`` hops, rows of length 1."""
    pointer, graph = graphs.pointer, graphs.union
    which = np.repeat(np.arange(len(pointer) - 1), np.diff(pointer))
    order = np.argsort(graph.edges[0], kind="stable")
    ends = graph.edges[1][order]
    starts = np.searchsorted(graph.edges[0][order], np.arange(graph.num_nodes + 1))
    colours = _rows(graph.features) if graphs.num_features > 1 else np.diff(starts).astype(np.uint64)
    salt, columns = np.uint64((seed + 1) * int(_ODD) % 2**64), []
    for hop in range(hops + 1):
        mixed = mix_bits(colours + salt)
        columns.append(mix_bits(mixed + np.uint64(hop)) % np.uint64(width))
        colours = np.uint64(31) * mixed + _sums(mix_bits(mixed + _ODD)[ends], starts)
    rows, places = np.tile(which, hops + 1), np.concatenate(columns).astype(np.int64)
    shape = (len(pointer) - 1, width)
    counts = sp.coo_matrix((np.ones(len(rows), dtype=np.float32), (rows, places)), shape=shape).tocsr()
    counts.data = np.sqrt(counts.data)
    return sp.csr_matrix(unit_rows(counts))


def _rows(features: Features) -> NDArray[np.uint64]:
    """[n] a number for each different row, of the places and values of what is not 0."""
    rows = sp.csr_matrix(features)
    rows.eliminate_zeros()
    values = np.ascontiguousarray(rows.data, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return _sums(mix_bits((rows.indices.astype(np.uint64) + np.uint64(1)) * _ODD + values), rows.indptr)


def _sums(numbers: NDArray[np.uint64], starts: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Sums modulo 2^64 of the numbers from each start to the next one."""
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(numbers, dtype=np.uint64)])
    found: NDArray[np.uint64] = total[starts[1:]] - total[starts[:-1]]
    return found
