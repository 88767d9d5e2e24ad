"""Graphs of which features or links are not known but made, by what learns from what a model says of them.

Models take both for constants, and their own gradients are written out for that. On these graphs they compute by
autograd instead, so that a loss has a gradient for the features, where links are constant, or for the links.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

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
from graphsilo.models.view import GraphTensors, Matrix, Norm, T, View


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
    able = "gcn, sage, gat, gin, mlp, sgc, sign, gamlp, gcnii or appnp"


class _GeneratedView(_LiveView):
    """Some rows, or all, of a generated graph."""

    data: GeneratedGraph

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        rows = self._frontier(norm, depth)[0] if depth else self._nodes
        return LiveOperator(self.data.features if rows is None else self.data.features[rows])


class RelinkedView(_LiveView):
    """The rows of another view, all of a graph's or whole graphs of a collection, under links with a gradient.

    Args:
        view: Whose rows, features and pools these are.
        ends: [2, m] int64 pairs of different rows, each pair once.
        values: [m] weight of each link, in both directions; 0 where there is none.
    """

    changes = "drawn links"
    able = "gcn, sage, gat, gin, gcnii, classic, mlp, sgc, sign or gamlp"

    def __init__(self, view: View, ends: Tensor, values: Tensor):
        super().__init__(view.data, view.items)
        self.view, self.values = view, values
        self.target, self.source = torch.cat([ends, ends.flip(0)], 1)

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        return self.view.features()

    def first_layer(self, norm: Norm, depth: int) -> Operator:
        return product(self.blocks(norm, depth)[0], self.features())

    def blocks(self, norm: Norm, depth: int) -> list[LinkOperator]:  # type: ignore[override]
        return [self.cached(("links", norm), lambda: self._links(norm))] * depth

    def pool(self, embeddings: Tensor, how: Literal["sum", "mean"] = "sum") -> Tensor:
        return self.view.pool(embeddings, how)

    def _links(self, norm: Norm) -> LinkOperator:
        """``normalise`` of these links, with a gradient through degrees, too."""
        found = LinkOperator(self.target, self.source, torch.cat([self.values, self.values]), self.num_rows)
        if norm in ("gcn", "row", "loops"):
            found = found.with_loops(1.0)
        if norm in ("sum", "loops"):
            return found
        degree = found.values.new_zeros(self.num_rows).index_add(0, found.target, found.values)
        scale = torch.where(degree > 0, degree, 1.0).rsqrt()
        other = scale[found.source] if norm == "gcn" else scale[found.target]
        return LinkOperator(found.target, found.source, found.values * scale[found.target] * other, self.num_rows)


class LinkOperator(Operator):
    """A square matrix of links with a gradient.

    Args:
        target, source: [m] row and column of each entry, no two at one place.
        values: [m] the entries.
        size: Rows and columns.
    """

    live = True

    def __init__(self, target: Tensor, source: Tensor, values: Tensor, size: int):
        self.target, self.source, self.values = target, source, values
        self.shape, self.nnz, self.cost = (size, size), len(values), SPARSE_COST * len(values)
        self._matrix: Tensor | None = None

    @property
    def entries(self) -> tuple[Tensor, Tensor]:
        """Row and column of each link that there is; for attention, which weighs links by itself."""
        there = self.values > 0
        return self.target[there], self.source[there]

    def with_loops(self, weight: float) -> LinkOperator:
        """The matrix plus weight · I, where its diagonal is empty."""
        size = self.shape[0]
        loops = torch.arange(size, device=self.target.device)
        values = torch.cat([self.values, self.values.new_full((size,), weight)])
        return LinkOperator(torch.cat([self.target, loops]), torch.cat([self.source, loops]), values, size)

    def mm(self, right: Tensor) -> Tensor:
        raise UnsupportedError(f"this backbone has no gradient for links: choose {RelinkedView.able}.")

    def tmm(self, left: Tensor) -> Tensor:
        return self.mm(left)

    def __matmul__(self, right: Tensor) -> Tensor:
        size = self.shape[0]
        if self.cost > float(size) * size:
            return widen(self.dense() @ right)
        messages = self.values[:, None] * right.index_select(0, self.source)
        return right.new_zeros(size, right.shape[1]).index_add(0, self.target, messages)

    def dense(self) -> Tensor:
        if self._matrix is None:
            size, places = self.shape[0], self.target * self.shape[0] + self.source
            self._matrix = self.values.new_zeros(size * size).index_copy(0, places, self.values).view(size, size)
        return self._matrix


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
