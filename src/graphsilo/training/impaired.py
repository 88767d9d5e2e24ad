"""A graph without some of its nodes, and features that stand for what was hidden: what NeighGen learns from.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Features, Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.models.operators import entries_of

MAX_SLOTS = 5
"""Most neighbours generated for a node, and most hidden ones it is compared with."""
COMPARED_AT_ONCE = 1 << 22
"""Distances between generated rows and nodes that are in memory at a time."""


@dataclass(frozen=True, eq=False)
class Impaired:
    """A silo's graph without its hidden nodes, and what was hidden.

    Attributes:
        kept: [n̄] numbers in the whole graph of the nodes that stayed, ascending.
        hidden: Numbers of the hidden ones, ascending.
        adjacency: [n̄, n̄] among those that stayed, no self-loops.
        features: [n̄, d].
        counts: [n̄] hidden neighbours of each (n_v).
        pointer: [n̄ + 1] into ``missing``.
        missing: Numbers of the first min(5, n_v) hidden neighbours, node by node.
        train: [b] which of the n̄ have a loss (B).
        labels: [b] their classes.
    """

    kept: NDArray[np.int64]
    hidden: NDArray[np.int64]
    adjacency: sp.csr_matrix
    features: Features
    counts: NDArray[np.int64]
    pointer: NDArray[np.int64]
    missing: NDArray[np.int64]
    train: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        return len(self.kept)


def hide(
    candidates: NDArray[np.int64], share: float, generator: torch.Generator, *, keep: int = 0
) -> NDArray[np.int64]:
    """A random share of the candidates, ascending: int(share · candidates), leaving at least ``keep`` of them."""
    count = max(0, min(int(share * len(candidates) + 1e-9), len(candidates) - keep))
    order = torch.randperm(len(candidates), generator=generator).numpy()[:count]
    return np.sort(candidates[order])


def impair(graph: Graph, hidden: NDArray[np.int64], train: NDArray[np.int64], labels: NDArray[np.int64]) -> Impaired:
    """Remove nodes from a graph and note what each of the others lost.

    Args:
        graph: The whole graph.
        hidden: Numbers of the nodes to remove.
        train: Numbers of the nodes to learn from; hidden ones are left out.
        labels: [n] classes; only rows in ``train`` are read.
    """
    adjacency = undirected_adjacency(graph)
    is_hidden = np.zeros(graph.num_nodes, dtype=bool)
    is_hidden[hidden] = True
    kept = np.flatnonzero(~is_hidden)
    lost = adjacency[kept][:, hidden]
    lost.sort_indices()
    counts = np.diff(lost.indptr).astype(np.int64)
    within = np.arange(lost.nnz) - np.repeat(lost.indptr[:-1], counts)
    pointer = np.concatenate([[0], np.cumsum(np.minimum(counts, MAX_SLOTS))]).astype(np.int64)
    chosen = train[~is_hidden[train]]
    return Impaired(
        kept=kept,
        hidden=hidden,
        adjacency=adjacency[kept][:, kept].tocsr(),
        features=graph.features[kept],
        counts=counts,
        pointer=pointer,
        missing=hidden[lost.indices[within < MAX_SLOTS]],
        train=np.searchsorted(kept, chosen),
        labels=labels[chosen],
    )


def mend_adjacency(adjacency: sp.csr_matrix, anchors: NDArray[np.int64]) -> sp.csr_matrix:
    """[n + m, n + m]: one new node per anchor, linked with it in both directions."""
    n, m = adjacency.shape[0], len(anchors)
    if m == 0:
        return adjacency
    old, new = adjacency.tocoo(), n + np.arange(m)
    values = np.concatenate([old.data, np.ones(2 * m, np.float32)])
    places = np.concatenate([old.row, anchors, new]), np.concatenate([old.col, new, anchors])
    return sp.csr_matrix((values, places), shape=(n + m, n + m), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Targets:
    """True features, up to five per row, that generated ones are compared with.

    Attributes:
        features: [t, d] CSR, row by row.
        pointer: [rows + 1] into them.
    """

    features: sp.csr_matrix
    pointer: NDArray[np.int64]

    @classmethod
    def of(cls, features: Features, nodes: NDArray[np.int64], pointer: NDArray[np.int64]) -> Targets:
        """Rows ``nodes`` of a feature matrix."""
        if isinstance(features, np.ndarray):
            return cls(sp.csr_matrix(features[nodes]), pointer)
        return cls(_matrix_of(features, nodes), pointer)

    def nearest(self, generated: Tensor, rows: NDArray[np.int64]) -> Features:
        """For each generated row the closest target of its row, min_u ‖x̂ − x_u‖² by ‖x_u‖² − 2 x̂·x_u.

        Args:
            generated: [m, d].
            rows: [m] which row of targets each one belongs to; every one has at least one target.

        Returns:
            [m, d] the targets themselves.
        """
        which, sizes = entries_of(self.pointer, rows)
        targets, columns, entries = _rows_of(self.features, which)
        owner = np.repeat(np.arange(len(rows)), sizes)
        values = generated.detach().cpu().numpy()[np.repeat(owner, entries), columns]
        # ‖x_u‖² − 2 x̂·x_u, entry by entry
        distance = np.bincount(
            np.repeat(np.arange(len(which)), entries),
            targets * (targets - 2.0 * values.astype(np.float64)),
            minlength=len(which),
        )
        order = np.lexsort((distance, owner))
        return _matrix_of(self.features, which[order[np.cumsum(sizes) - sizes]])


def _rows_of(
    matrix: sp.csr_matrix, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.integer], NDArray[np.int64]]:
    """Values and columns of these rows, one after the other, and how many each has: a third of scipy's time."""
    places, sizes = entries_of(matrix.indptr, rows)
    return matrix.data[places], matrix.indices[places], sizes


def _matrix_of(matrix: sp.csr_matrix, rows: NDArray[np.int64]) -> sp.csr_matrix:
    """These rows as a matrix."""
    values, columns, sizes = _rows_of(matrix, rows)
    ends = np.concatenate([np.zeros(1, sizes.dtype), np.cumsum(sizes, dtype=sizes.dtype)])
    return sp.csr_matrix((values, columns, ends), shape=(len(rows), matrix.shape[1]))


class AllNodes:
    """All nodes of a client, which every generated row is compared with: Algorithm 1, line 25.

    Args:
        features: [n, d].
    """

    def __init__(self, features: Features):
        self.features = features
        if sp.issparse(features):
            squares = np.asarray(features.multiply(features).sum(axis=1))
        else:
            squares = np.einsum("ij,ij->i", features, features)
        self.squares = squares.astype(np.float32).reshape(-1, 1)

    def nearest(self, generated: Tensor, rows: NDArray[np.int64] | None = None) -> Features:
        """[m, d] for each generated row [m, d] the node with the least ‖x_u‖² − 2 x̂·x_u, the first of several.

        By products with blocks of rows, so that no more than ``COMPARED_AT_ONCE`` distances are there at a time.
        """
        values = generated.detach().cpu().numpy()
        size = max(1, COMPARED_AT_ONCE // max(1, len(self.squares)))
        places = [np.zeros(0, dtype=np.int64)]
        for begin in range(0, len(values), size):
            distance = np.asarray(self.features @ values[begin : begin + size].T)
            places.append(np.argmin(self.squares - 2.0 * distance, axis=0))
        chosen = np.concatenate(places)
        return self.features[chosen] if isinstance(self.features, np.ndarray) else _matrix_of(self.features, chosen)


def feature_loss(
    generated: Sequence[Tensor],
    rows: Sequence[NDArray[np.int64]],
    targets: Targets | AllNodes,
    chosen: Sequence[NDArray[np.int64]] | None = None,
) -> Tensor:
    """Σ over rows and slots of min_u ‖x̂ − x_u‖², not divided by anything.

    Args:
        generated: Per slot, [m, d].
        rows: Per slot, the row of targets that each of those that are compared belongs to.
        targets: What is compared with.
        chosen: Per slot, which of the m are compared, ascending; None: all of them.
    """
    total = torch.zeros(())
    for slot, (features, owners) in enumerate(zip(generated, rows, strict=True)):
        if len(owners):
            compared = features if chosen is None else features[torch.from_numpy(chosen[slot])]
            total = total + (compared - dense(targets.nearest(compared, owners))).square().sum()
    return total


def dense(rows: Features) -> Tensor:
    """[m, d] as an ordinary tensor."""
    return torch.from_numpy(rows if isinstance(rows, np.ndarray) else rows.toarray())


def random_neighbours(adjacency: sp.csr_matrix, rows: int, generator: torch.Generator) -> NDArray[np.int64]:
    """Five neighbours, drawn with replacement, of a random node with a neighbour, for each row: [rows · 5] numbers.

    Empty where no node has a neighbour.
    """
    degree = np.diff(adjacency.indptr)
    connected = np.flatnonzero(degree)
    if not len(connected):
        return np.zeros(0, dtype=np.int64)
    nodes = connected[torch.randint(len(connected), (rows,), generator=generator).numpy()]
    draws = torch.rand((rows, MAX_SLOTS), generator=generator, dtype=torch.float64).numpy()
    places = adjacency.indptr[nodes][:, None] + (draws * degree[nodes][:, None]).astype(np.int64)
    found: NDArray[np.int64] = adjacency.indices[places.ravel()].astype(np.int64)
    return found
