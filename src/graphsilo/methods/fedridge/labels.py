"""FedRidge's label features: how the nodes around a node are labelled, as far as the client learns from them.

With Y the classes of the client's own training nodes, one row each and zeros for all other nodes, and N = D^-1 A
without self-loops, a node has the columns ½ [N Y ‖ (N² − diag N²) Y]. No node's own label is in its own row, so that a
training node's row is made as a test node's is. They are for the silo's own graph: elsewhere nodes may be of classes
that the silo has no label of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.methods.fedridge.features import Features, dense
from graphsilo.models.view import Matrix

LABELLED = "+labels"
"""What the name of a kind of features ends with that has label features, too."""


class Joined:
    """φ with further columns behind it: label features, or those of relations.

    Args:
        features: φ without them.
        columns: [items, q].
    """

    def __init__(self, features: Features, columns: Matrix):
        self._features, self._columns = features, columns
        self.width = features.width + columns.shape[1]

    def times(self, weights: Tensor, items: NDArray[np.int64] | None = None) -> Tensor:
        """φ @ weights for some items, or for all, [items, C] float32. ``weights``: [p, C]."""
        plain, more = weights.float().split([self._features.width, self._columns.shape[1]])
        columns = self._columns if items is None else self._columns[items]
        return self._features.times(plain, items).add_(torch.from_numpy(columns @ more.numpy()))

    def blocks(
        self, items: NDArray[np.int64], dtype: type[np.floating[Any]] = np.float64
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Some items and their rows, as ``Features.blocks``."""
        for part, rows in self._features.blocks(items, dtype):
            more = torch.from_numpy(dense(self._columns[part])).to(rows.dtype)
            yield part, torch.cat([rows, more], dim=1)


class OfSome:
    """φ of some nodes alone, by their numbers among all; what is said of others is 0, and nobody asks.

    Args:
        features: φ, a row for each of these nodes.
        nodes: Their numbers, ascending.
        total: How many nodes there are.
    """

    def __init__(self, features: Features | Joined, nodes: NDArray[np.int64], total: int):
        self._features, self._nodes, self._total = features, nodes, total
        self.width = features.width

    def times(self, weights: Tensor, items: NDArray[np.int64] | None = None) -> Tensor:
        """φ @ weights for some items, or for all, [items, C] float32. ``weights``: [p, C]."""
        if items is not None:
            return self._features.times(weights, np.searchsorted(self._nodes, items))
        found = torch.zeros(self._total, weights.shape[1])
        found[torch.from_numpy(self._nodes)] = self._features.times(weights)
        return found

    def blocks(
        self, items: NDArray[np.int64], dtype: type[np.floating[Any]] = np.float64
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Some items and their rows, as ``Features.blocks``."""
        for part, rows in self._features.blocks(np.searchsorted(self._nodes, items), dtype):
            yield self._nodes[part], rows
