"""FedRidge's label features: how the nodes around a node are labelled, as far as the client learns from them.

With Y the classes of the client's own training nodes, one row each and zeros for all other nodes, and N = D^-1 A
without self-loops, a node has the columns ½ [N Y ‖ (N² − diag N²) Y]. No node's own label is in its own row, so that a
training node's row is made as a test node's is. They are for the silo's own graph: elsewhere nodes may be of classes
that the silo has no label of.

Sources: Wang et al., "Bag of Tricks for Node Classification with Graph Neural Networks", 2021, and Shi et al., "Masked
Label Prediction", IJCAI 2021 (labels of others as features); leaving out a node's own is done here by the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.methods.fedridge.features import Features
from graphsilo.models.view import GraphTensors

LABELLED = "+labels"
"""What the name of a kind of features ends with that has label features, too."""
SCALE = 0.5
_NOTHING = 1e-12
"""What of a node's own label is less than this is rounding."""


class Labelled:
    """φ with label features as its last columns.

    Args:
        features: φ without them.
        columns: [items, 2C].
    """

    def __init__(self, features: Features, columns: sp.csr_matrix):
        self._features, self._columns = features, columns
        self.width = features.width + columns.shape[1]

    def times(self, weights: Tensor, items: NDArray[np.int64] | None = None) -> Tensor:
        """φ @ weights for some items, or for all, [items, C] float32. ``weights``: [p, C]."""
        plain, labels = weights.float().split([self._features.width, self._columns.shape[1]])
        columns = self._columns if items is None else self._columns[items]
        return self._features.times(plain, items).add_(torch.from_numpy(columns @ labels.numpy()))

    def blocks(
        self, items: NDArray[np.int64], dtype: type[np.floating[Any]] = np.float64
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Some items and their rows, as ``Features.blocks``."""
        for part, rows in self._features.blocks(items, dtype):
            labels = torch.from_numpy(self._columns[part].toarray()).to(rows.dtype)
            yield part, torch.cat([rows, labels], dim=1)


def label_columns(
    data: GraphTensors, nodes: NDArray[np.int64], labels: NDArray[np.int64], classes: int
) -> sp.csr_matrix:
    """[n, 2C] the label features of all nodes.

    Args:
        data: The graph.
        nodes, labels: Numbers of the client's training nodes there, and their classes.
        classes: C.
    """
    step = data.matrix("mean").astype(np.float64)
    ones = np.ones(len(nodes))
    known = sp.csr_matrix((ones, (nodes, labels)), shape=(data.num_nodes, classes))
    one = step @ known
    two = step @ one
    # What comes back to a node after two steps is its own label.
    back = np.asarray(step[nodes].multiply(step.T.tocsr()[nodes]).sum(axis=1)).ravel()
    two = two - sp.csr_matrix((back, (nodes, labels)), shape=two.shape)
    two.data[two.data < _NOTHING] = 0.0
    found = sp.csr_matrix(SCALE * sp.hstack([one, two]), dtype=np.float32)
    found.eliminate_zeros()
    found.sort_indices()
    return found
