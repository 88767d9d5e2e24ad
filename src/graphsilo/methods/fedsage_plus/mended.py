"""A silo's graph with generated neighbours: its tensors, and how near it comes to the graph before the cut.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021, section 3.2 and
appendix D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Features, Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.data.silos.parts import with_more_nodes
from graphsilo.models.operators import ChainOperator, DenseOperator, Operator, SparseOperator, operator, product
from graphsilo.models.view import GraphTensors, Norm, View, normalise

MOST_COUNTED = 8
"""Missing neighbours that a study tells apart; more count as so many."""


def _above(sparse: sp.csr_matrix, dense: NDArray[np.float32]) -> sp.csr_matrix:
    """Sparse rows, and dense ones below them as filled rows: scipy's way there takes several times as long."""
    (rows, columns), count = dense.shape, sparse.nnz
    size = count + dense.size
    index = np.dtype(np.int32 if size < 2**31 else np.int64)
    data, places = np.empty(size, np.float32), np.empty(size, index)
    data[:count], places[:count] = sparse.data, sparse.indices
    data[count:].reshape(rows, columns)[:] = dense
    places[count:].reshape(rows, columns)[:] = np.arange(columns, dtype=index)
    pointer = np.concatenate([sparse.indptr, count + columns * np.arange(1, rows + 1)]).astype(index)
    return sp.csr_matrix((data, places, pointer), shape=(sparse.shape[0] + rows, columns))


@dataclass(frozen=True, eq=False)
class Mended:
    """Generated nodes of a silo.

    Attributes:
        anchors: [m] int64 the silo's node that each is linked with.
        features: [m, d] float32.
        predicted: [n] float32 predicted count of every own node, 0 for those that were hidden.
    """

    anchors: Tensor
    features: Tensor
    predicted: Tensor

    def state(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {"anchors": self.anchors, "features": self.features, "predicted": self.predicted}

    def __len__(self) -> int:
        return len(self.anchors)

    def graph(self, graph: Graph) -> Graph:
        """The silo's graph with the generated nodes behind its own: unlabelled, linked in both directions."""
        n, anchors = graph.num_nodes, self.anchors.numpy()
        new = n + np.arange(len(anchors))
        links = np.stack([np.concatenate([anchors, new]), np.concatenate([new, anchors])])
        own, more = graph.features, self.features.numpy()
        features = np.vstack([own, more]) if isinstance(own, np.ndarray) else _above(own, more)
        return with_more_nodes(graph, features, links)


class MendedTensors(GraphTensors):
    """The tensors of a mended graph: its own features may be sparse, the generated ones are dense and kept apart.

    Args:
        graph: The mended graph.
        made: [m, d] features of its last nodes, those that were generated.

    Attributes:
        own: How many of its nodes come first and were not generated.
    """

    def __init__(self, graph: Graph, made: NDArray[np.float32], *, device: torch.device | str = "cpu"):
        super().__init__(graph, device=device)
        self.made, self.own = made, graph.num_nodes - len(made)

    @property
    def full(self) -> View:
        return self.cached(("full",), lambda: _MendedView(self, None))

    def view(self, items: NDArray[np.int64] | None) -> View:
        return self.full if items is None else _MendedView(self, np.asarray(items, dtype=np.int64))

    def kept_view(self, items: NDArray[np.int64]) -> View:
        items = np.asarray(items, dtype=np.int64)
        return self.cached(("view", items.tobytes()), lambda: _MendedView(self, items))


class _MendedView(View):
    """Features as two operators: rows of the silo's own, and generated ones."""

    data: MendedTensors

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        def make() -> Operator:
            rows = self._frontier(norm, depth)[0] if depth else self._nodes
            return self._split(np.arange(self.data.num_nodes) if rows is None else rows)

        return self.cached(("features", norm, depth if self._nodes is not None else 0), make)

    def first_layer(self, norm: Norm, depth: int) -> Operator:
        def make() -> Operator:
            rows = self._frontier(norm, depth)[0]
            rows = np.arange(self.data.num_nodes) if rows is None else rows
            block = self.blocks(norm, depth)[0]
            own = rows < self.data.own
            features, device, dtype = self.data.graph.features, self.data.device, self.data.dtype
            left = SparseOperator(block.matrix[:, own], device=device, dtype=dtype)
            right = block.matrix[:, ~own]
            used = np.flatnonzero(np.diff(right.tocsc().indptr))  # generated nodes that a row needs
            known = product(left, operator(features[rows[own]], device, dtype))
            if not len(used):
                return known
            made = self._generated_rows(rows[~own][used])
            return _Sum(known, ChainOperator(SparseOperator(right[:, used], device=device, dtype=dtype), made))

        return self.cached(("first", norm, depth), make)

    def _split(self, rows: NDArray[np.int64]) -> Operator:
        features, device, dtype = self.data.graph.features, self.data.device, self.data.dtype
        own = rows < self.data.own
        if not (own.any() and (~own).any()) or (np.diff(own.astype(np.int8)) > 0).any():
            return operator(features[rows], device, dtype)  # nothing to split, or not in the order of a split
        return _Stacked(operator(features[rows[own]], device, dtype), self._generated_rows(rows[~own]))

    def _generated_rows(self, rows: NDArray[np.int64]) -> Operator:
        """Of generated nodes, by their numbers in the mended graph."""
        made, places = self.data.made, rows - self.data.own
        matrix = made if np.array_equal(places, np.arange(len(made))) else made[places]
        return DenseOperator(torch.from_numpy(matrix).to(self.data.device, self.data.dtype))


class _Stacked(Operator):
    """One operator's rows above another's."""

    def __init__(self, top: Operator, bottom: Operator):
        self.top, self.bottom = top, bottom
        self.shape = (top.shape[0] + bottom.shape[0], top.shape[1])
        self.cost = top.cost + bottom.cost

    def mm(self, right: Tensor) -> Tensor:
        return torch.cat([self.top.mm(right), self.bottom.mm(right)])

    def tmm(self, left: Tensor) -> Tensor:
        edge = self.top.shape[0]
        return self.top.tmm(left[:edge]).add_(self.bottom.tmm(left[edge:]))

    def dense(self) -> Tensor:
        return torch.cat([self.top.dense(), self.bottom.dense()])


class _Sum(Operator):
    """Two operators of one shape, added."""

    def __init__(self, one: Operator, other: Operator):
        self.one, self.other = one, other
        self.shape, self.cost = one.shape, one.cost + other.cost

    def mm(self, right: Tensor) -> Tensor:
        return self.one.mm(right).add_(self.other.mm(right))

    def tmm(self, left: Tensor) -> Tensor:
        return self.one.tmm(left).add_(self.other.tmm(left))

    def dense(self) -> Tensor:
        return self.one.dense() + self.other.dense()


def neighbourhood_means(graph: Graph) -> Features:
    """[n, d] mean of the neighbours' features; zero for a node without neighbours."""
    average = normalise(undirected_adjacency(graph), "mean")
    means = average @ graph.features
    return means if sp.issparse(means) else np.asarray(means)


def row_distances(left: Features, right: Features) -> NDArray[np.float64]:
    """[n] Euclidean distance of the rows of two matrices."""
    difference = left - right
    squares = difference.multiply(difference) if sp.issparse(difference) else np.square(np.asarray(difference))
    return np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64)).ravel()


def study(graph: Graph, mended: Mended, whole: Graph | None) -> dict[str, float | int | Tensor]:
    """How far the generated neighbours are from those that the cut took away.

    Args:
        graph: The client's graph.
        mended: What was generated.
        whole: The graph before it was cut, or None where it is not known.

    Returns:
        Always ``nodes``, ``generated``, and the mended graph as ``mended_edges`` [2, e] and ``mended_features``
        [n + m, d]. With the whole graph, for dGen: the mean numbers of truly missing and of generated neighbours
        (``missing_true``, ``missing_generated``), how many nodes have which of each, up to ``MOST_COUNTED`` and more
        (``missing_counts``, [true, generated]), their mean absolute difference over nodes (``missing_error``) and
        the mean smooth-L1 of the predicted count (``missing_smooth_l1``); for fGen: the mean over nodes of the
        Euclidean distance of the neighbourhood mean to that in the whole graph, before and after mending
        (``distance_local``, ``distance_mended``), and the same over nodes that lack a neighbour (``…_lacking``).

    Source: Zhang et al. (2021), appendix D.
    """
    after = mended.graph(graph)
    features = after.features.toarray() if sp.issparse(after.features) else after.features
    n, m = graph.num_nodes, len(mended)
    found: dict[str, float | int | Tensor] = {
        "nodes": n,
        "generated": m,
        "mended_edges": torch.from_numpy(np.ascontiguousarray(after.edges)),
        "mended_features": torch.from_numpy(np.ascontiguousarray(features)),
    }
    if whole is None:
        return found
    places = whole.rows_of(graph.global_ids)
    missing = np.diff(undirected_adjacency(whole).indptr)[places] - np.diff(undirected_adjacency(graph).indptr)
    generated = np.bincount(mended.anchors.numpy(), minlength=n)
    truth = neighbourhood_means(whole)[places]
    local = row_distances(neighbourhood_means(graph), truth)
    healed = row_distances(neighbourhood_means(after)[:n], truth)
    lacking = missing > 0
    counts = np.zeros((MOST_COUNTED + 1, MOST_COUNTED + 1), dtype=np.int64)
    np.add.at(counts, (np.minimum(missing, MOST_COUNTED), np.minimum(generated, MOST_COUNTED)), 1)
    found |= {
        "missing_counts": torch.from_numpy(counts),
        "missing_true": float(missing.mean()),
        "missing_generated": float(generated.mean()),
        "missing_error": float(np.abs(missing - generated).mean()),
        "missing_smooth_l1": float(F.smooth_l1_loss(mended.predicted, torch.from_numpy(missing.astype(np.float32)))),
        "nodes_lacking": int(lacking.sum()),
        "distance_local": float(local.mean()),
        "distance_mended": float(healed.mean()),
    }
    if lacking.any():
        found["distance_local_lacking"] = float(local[lacking].mean())
        found["distance_mended_lacking"] = float(healed[lacking].mean())
    return found
