"""Graphs whose features are not known but made, by a generator that learns from what a model says of them.

Models take features for constants, and their own gradients are written out for that. On these graphs they compute by
autograd instead, so that a loss has a gradient for the features, too. Links are constant.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import UnsupportedError
from graphsilo.models.operators import LiveOperator, Operator, product
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


class _GeneratedView(View):
    """Some rows, or all, of a generated graph."""

    data: GeneratedGraph
    live = True

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        rows = self._frontier(norm, depth)[0] if depth else self._nodes
        return LiveOperator(self.data.features if rows is None else self.data.features[rows])

    def hop(self, level: int, norm: Norm = "gcn") -> Operator:
        found: Operator = self.features(norm, level)
        for block in self.blocks(norm, level):
            found = product(block, found)
        return found

    def constant(self, key: tuple[Any, ...], make: Callable[[GraphTensors], Matrix]) -> Operator:
        raise UnsupportedError(
            "this backbone propagates features once and for all, before training, and generated features change in "
            "every step: choose gcn, sage, gat, gin, mlp, sgc, sign, gamlp, gcnii or appnp."
        )


def pairs(nodes: int, count: int) -> sp.csr_matrix:
    """[n, n] links of the last 2 · ``count`` nodes: each of their first half with one of the second; others have none.

    Args:
        nodes: n.
        count: How many pairs.
    """
    first = nodes - 2 * count + np.arange(count)
    ends = np.concatenate([first, first + count]), np.concatenate([first + count, first])
    return sp.csr_matrix((np.ones(2 * count, np.float32), ends), shape=(nodes, nodes))
