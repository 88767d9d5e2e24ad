"""Graphs of which features or links are not known but made, by what learns from what a model says of them.

Models take both for constants, and their own gradients are written out for that. On these graphs they compute by
autograd instead, so that a loss has a gradient for the features, where links are constant, or for the links.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import UnsupportedError
from graphsilo.models.base import Model
from graphsilo.models.operators import SPARSE_COST, LiveOperator, Operator, product
from graphsilo.models.precision import widen
from graphsilo.models.view import GraphTensors, Matrix, Norm, T, View, pattern_of


class GeneratedGraph(GraphTensors):
    """A graph with features that need a gradient: ``model(graph.full)`` has one for them.

    Make a new one for new features (``with_features``): everything derived from them is kept.

    Args:
        features: [n, d], on the device where models compute.
        links: [n, n] constant adjacency, row v names the neighbours of v.
    """

    def __init__(self, features: Tensor, links: sp.csr_matrix):
        ends = links.tocoo()
        unknown = np.zeros((len(features), 0), dtype=np.float32)
        edges = np.stack([ends.col, ends.row]).astype(np.int64)
        graph = Graph(unknown, edges, np.full(len(features), -1, dtype=np.int64), 1, name="generated")
        super().__init__(graph, device=features.device, dtype=features.dtype)
        self.features, self.num_features = features, features.shape[1]
        self._of_links: dict[tuple[Any, ...], Any] = {}

    def with_features(self, features: Tensor) -> GeneratedGraph:
        """The same links under other features [n, d]; what is made of links alone serves both."""
        other = copy.copy(self)
        other.features, other._cache = features, {}
        return other

    def cached(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        kept = self._of_links if key[0] in ("matrix", "blocks") else self._cache
        if key not in kept:
            kept[key] = make()
        return kept[key]  # type: ignore[return-value]

    @property
    def full(self) -> View:
        return self.cached(("full",), lambda: _GeneratedView(self, None))

    def view(self, items: NDArray[np.int64] | None) -> View:
        return self.full if items is None else _GeneratedView(self, np.asarray(items, dtype=np.int64))

    def kept_view(self, items: NDArray[np.int64]) -> View:
        return self.view(items)


class _LiveView(View):
    """Rows of a graph of which something needs a gradient."""

    live = True

    def hop(self, level: int, norm: Norm = "gcn") -> Operator:
        found: Operator = self.features(norm, level)
        for block in self.blocks(norm, level):
            found = product(block, found)
        return found

    def constant(self, key: tuple[Any, ...], make: Callable[[GraphTensors], Matrix]) -> Operator:
        raise UnsupportedError(
            f"this backbone propagates features once and for all, before training, and {self.changes} change in every "
            f"step: choose {self.able}."
        )

    changes = "generated features"
    able = "gcn, sage, gat, gin, mlp, sgc, ssgc, sign, gamlp, gcnii or appnp"

    def mixed(self, key: tuple[Any, ...], weights: Sequence[float], make: Callable[[GraphTensors], Matrix]) -> Operator:
        return MixedHops(self.blocks("gcn", 1)[0], self.features(), weights)


class _GeneratedView(_LiveView):
    """Some rows, or all, of a generated graph."""

    data: GeneratedGraph

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        rows = self._frontier(norm, depth)[0] if depth else self._nodes
        return LiveOperator(self.data.features if rows is None else self.data.features[rows])

    def mixed(self, key: tuple[Any, ...], weights: Sequence[float], make: Callable[[GraphTensors], Matrix]) -> Operator:
        whole = self.data.full
        return MixedHops(whole.blocks("gcn", 1)[0], whole.features(), weights, self._nodes)


class MixedHops(LiveOperator):
    """Rows of Σ_k weights[k] Â^k X, a step at a time, with a gradient for X, and for Â where links have one."""

    def __init__(
        self, links: Operator, features: Operator, weights: Sequence[float], rows: NDArray[np.int64] | None = None
    ):
        self.links, self.features, self.weights, self.rows = links, features, weights, rows
        self.shape = (features.shape[0] if rows is None else len(rows), features.shape[1])
        self.cost = features.cost + (len(weights) - 1) * links.cost

    def __matmul__(self, right: Tensor) -> Tensor:
        return self._sum(self.features @ right)

    def dense(self) -> Tensor:
        return self._sum(self.features.dense())

    def _sum(self, level: Tensor) -> Tensor:
        total = self.weights[0] * level
        for weight in self.weights[1:]:
            level = self.links @ level
            total = total + weight * level
        return total if self.rows is None else total[self.rows]


class RelinkedView(_LiveView):
    """The rows of another view, all of a graph's or whole graphs of a collection, under links with a gradient.

    Args:
        view: Whose rows, features and pools these are.
        ends: [2, m] int64 pairs of different rows, each pair once.
        values: [m] weight of each link, in both directions; 0 where there is none.
    """

    changes = "drawn links"
    able = "gcn, sage, gat, gin, gcnii, classic, mlp, sgc, ssgc, sign or gamlp"

    def __init__(self, view: View, ends: Tensor, values: Tensor):
        super().__init__(view.data, view.items)
        self.view, self.ends, self.values = view, ends, values

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        return self.view.features()

    def first_layer(self, norm: Norm, depth: int) -> Operator:
        return product(self.blocks(norm, depth)[0], self.features())

    def blocks(self, norm: Norm, depth: int) -> list[Links]:  # type: ignore[override]
        return [self.cached(("links", norm), lambda: self._links.normalise(norm))] * depth

    def pool(self, embeddings: Tensor, how: Literal["sum", "mean"] = "sum") -> Tensor:
        return self.view.pool(embeddings, how)

    @cached_property
    def _links(self) -> Links:
        """Both directions of each link."""
        count, (low, high), values = self.num_rows, self.ends, self.values
        if 2 * SPARSE_COST * len(values) <= float(count) * count:
            return SparseLinks(torch.cat([low, high]), torch.cat([high, low]), torch.cat([values, values]), count)
        upper = values.new_zeros(count * count).index_copy(0, low * count + high, values).view(count, count)
        return DenseLinks(upper + upper.t())


class Links(Operator):
    """A square matrix of links with a gradient, of which the diagonal is empty at first."""

    live = True

    @property
    @abstractmethod
    def entries(self) -> tuple[Tensor, Tensor]:
        """Row and column of each link that there is; for attention, which weighs links by itself."""

    @abstractmethod
    def with_loops(self, weight: float) -> Self:
        """The matrix plus weight · I."""

    @abstractmethod
    def degrees(self) -> Tensor:
        """[n] sums of rows."""

    @abstractmethod
    def scale(self, rows: Tensor, columns: Tensor | None) -> Self:
        """The matrix with its rows, and columns, times [n] numbers."""

    def normalise(self, norm: Norm) -> Links:
        """As ``normalise`` of a view, with a gradient through degrees, too."""
        if pattern_of(norm) == "relations":
            self.mm(torch.zeros(0))  # refuses
        found = self.with_loops(1.0) if norm in ("gcn", "row", "loops") else self
        if norm in ("sum", "loops"):
            return found
        degree = found.degrees()
        degree = torch.where(degree > 0, degree, 1.0)
        return found.scale(degree.rsqrt(), degree.rsqrt()) if norm == "gcn" else found.scale(degree.reciprocal(), None)

    def mm(self, right: Tensor) -> Tensor:
        raise UnsupportedError(f"this backbone has no gradient for links: choose {RelinkedView.able}.")

    def tmm(self, left: Tensor) -> Tensor:
        return self.mm(left)


class DenseLinks(Links):
    """As an ordinary matrix."""

    def __init__(self, matrix: Tensor):
        self.matrix, self.nnz = matrix, matrix.numel()
        self.shape, self.cost = (len(matrix), len(matrix)), float(self.nnz)

    @property
    def entries(self) -> tuple[Tensor, Tensor]:
        target, source = self.matrix.nonzero().t()
        return target, source

    def with_loops(self, weight: float) -> DenseLinks:
        return DenseLinks(self.matrix + weight * torch.eye(len(self.matrix)).to(self.matrix))

    def degrees(self) -> Tensor:
        return self.matrix.sum(1)

    def scale(self, rows: Tensor, columns: Tensor | None) -> DenseLinks:
        scaled = self.matrix * rows[:, None]
        return DenseLinks(scaled if columns is None else scaled * columns)

    def __matmul__(self, right: Tensor) -> Tensor:
        return widen(self.matrix @ right)

    def dense(self) -> Tensor:
        return self.matrix


class SparseLinks(Links):
    """As its entries, no two of them at one place."""

    def __init__(self, target: Tensor, source: Tensor, values: Tensor, size: int):
        self.target, self.source, self.values = target, source, values
        self.shape, self.nnz, self.cost = (size, size), len(values), SPARSE_COST * len(values)

    @property
    def entries(self) -> tuple[Tensor, Tensor]:
        there = self.values > 0
        return self.target[there], self.source[there]

    def with_loops(self, weight: float) -> SparseLinks:
        size = self.shape[0]
        loops = torch.arange(size, device=self.target.device)
        values = torch.cat([self.values, self.values.new_full((size,), weight)])
        return SparseLinks(torch.cat([self.target, loops]), torch.cat([self.source, loops]), values, size)

    def degrees(self) -> Tensor:
        return self.values.new_zeros(self.shape[0]).index_add(0, self.target, self.values)

    def scale(self, rows: Tensor, columns: Tensor | None) -> SparseLinks:
        values = self.values * rows.index_select(0, self.target)
        values = values if columns is None else values * columns.index_select(0, self.source)
        return SparseLinks(self.target, self.source, values, self.shape[0])

    def __matmul__(self, right: Tensor) -> Tensor:
        messages = self.values[:, None] * right.index_select(0, self.source)
        return right.new_zeros(self.shape[0], right.shape[1]).index_add(0, self.target, messages)

    def dense(self) -> Tensor:
        return self @ torch.eye(self.shape[0]).to(self.values)


def check_links(model: Model, inputs: int) -> None:
    """Make sure that a model computes on a ``RelinkedView``, tried out on two nodes without features.

    Args:
        model: Which one.
        inputs: Features of its nodes, d.

    Raises:
        UnsupportedError: It does not; names models that do.
    """
    rows, nobody = np.zeros((2, inputs), dtype=np.float32), np.full(2, -1, dtype=np.int64)
    graph = Graph(rows, np.zeros((2, 0), dtype=np.int64), nobody, 1, name="two nodes")
    whole = GraphCollection(graph, np.array([0, 2]), nobody[:1], 1) if model.readout == "graph" else graph
    device = next(model.parameters()).device
    view = GraphTensors(whole, device=device).full
    with torch.no_grad():
        model.outputs(RelinkedView(view, torch.tensor([[0], [1]], device=device), torch.ones(1, device=device)))


def pairs(nodes: int, count: int) -> sp.csr_matrix:
    """[n, n] links of the last 2 · ``count`` nodes: each of their first half with one of the second; others have none.

    Args:
        nodes: n.
        count: How many pairs.
    """
    first = nodes - 2 * count + np.arange(count)
    ends = np.concatenate([first, first + count]), np.concatenate([first + count, first])
    return sp.csr_matrix((np.ones(2 * count, np.float32), ends), shape=(nodes, nodes))
