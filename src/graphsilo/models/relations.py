"""One matrix for each relation of a graph with several kinds of links, and direction."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphsilo.data.sources.looking_back import may_pass, moments
from graphsilo.models.view import GraphTensors, Norm, normalise


def relation_matrix(data: GraphTensors, relation: int, norm: Norm, *, turned: bool = False) -> sp.csr_matrix:
    """The normalised adjacency of one relation, [n, n] CSR of [target, source]; parallel rows are one link.

    Where nodes are looked at at certain times, nothing passes back in time, as along the graph's edges.

    Args:
        data: The graph's tensors; they keep what was made.
        relation: Number of the relation; a graph without its links has an empty matrix.
        norm: As of :func:`graphsilo.models.view.normalise`.
        turned: Whether messages pass against the rows' direction.
    """

    def make() -> sp.csr_matrix:
        links, size = data.graph.links, (data.num_nodes, data.num_nodes)
        rows = None if links is None else links.where(links.of_link == relation)
        source, target = np.zeros((2, 0), dtype=np.int64) if rows is None else rows.ends[:: -1 if turned else 1]
        if rows is not None and data.graph.time is not None:
            kept = may_pass(moments(data.graph), source, target, rows.time)
            source, target = source[kept], target[kept]
        adjacency = sp.csr_matrix((np.ones(len(source), dtype=np.float32), (target, source)), shape=size)
        adjacency.data[:] = 1.0
        return normalise(adjacency, norm)

    return data.cached(("relation", relation, norm, turned), make)
