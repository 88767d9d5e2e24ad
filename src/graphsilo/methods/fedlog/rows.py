"""FedLoG's batches: nodes of the training graph, embedded together with their neighbours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.methods.fedlog.layers import BranchTargets, Classifiers
from graphsilo.models.base import Model
from graphsilo.models.generated import pairs
from graphsilo.models.operators import SparseOperator
from graphsilo.models.view import GraphTensors, distinct


class Synthetic(NamedTuple):
    """Some of the nodes that a client trains on besides its own in one round.

    Attributes:
        rows: The graph of all of them: each joined with a generated neighbour, if there are any, which stand behind.
        nodes: [S] which ones.
        labels: [S].
    """

    rows: BatchRows
    nodes: NDArray[np.int64]
    labels: Tensor

    @classmethod
    def of(cls, points: Tensor, labels: Tensor) -> Synthetic:
        """Of customised nodes [S, d], or [2 S, d] with their generated neighbours behind them."""
        features, count = points.cpu().numpy(), len(labels)
        ends = pairs(len(features), len(features) - count).nonzero()
        graph = Graph(features, np.stack(ends).astype(np.int64), np.full(len(features), -1, dtype=np.int64), 1)
        return cls(BatchRows(GraphTensors(graph, device=points.device), 0), np.arange(count), labels)

    def take(self, chosen: Tensor) -> Synthetic:
        """Some of these."""
        return Synthetic(self.rows, self.nodes[chosen.numpy()], self.labels[chosen.to(self.labels.device)])


class BatchRows:
    """Embeds batches: through the whole graph where a batch reaches most of it anyway, else through its surroundings.

    Args:
        data: The training graph.
        batch: Nodes of a batch; 0 for all.
    """

    def __init__(self, data: GraphTensors, batch: int):
        self.data, self.matrix = data, data.matrix("mean")
        self.degree = degrees(data)
        reach = (batch or data.num_nodes) * (1.0 + self.matrix.nnz / max(data.num_nodes, 1)) ** 2
        self.whole = reach >= data.num_nodes

    def embed(
        self, model: Model, classifiers: Classifiers, nodes: NDArray[np.int64], draw: torch.Generator | None
    ) -> tuple[BranchTargets, Tensor]:
        """These nodes as the classifiers' targets, and how many neighbours each has."""
        degree = self.degree.index_select(0, torch.from_numpy(nodes).to(self.data.device))
        block = self.matrix[nodes]
        if self.whole:
            view, places, columns = self.data.full, nodes, block.indices.astype(np.int64)
        else:
            rows = distinct(self.data.num_nodes, block.indices, nodes)
            view, places, columns = (
                self.data.view(rows),
                *(np.searchsorted(rows, each) for each in (nodes, block.indices)),
            )
        normal = classifiers.normalise(model(view, draw))
        local = sp.csr_matrix((block.data, columns, block.indptr), shape=(len(nodes), len(normal)))
        means = SparseOperator(local, device=self.data.device, dtype=self.data.dtype)
        own = normal.index_select(0, torch.from_numpy(places).to(normal.device))
        return BranchTargets(own, means @ normal, (degree > 0).to(normal.dtype)), degree


def degrees(data: GraphTensors) -> Tensor:
    """[n] number of neighbours, loops left out."""

    def make() -> Tensor:
        degree = np.diff(data.matrix("mean").indptr).astype(np.float64)
        return torch.from_numpy(degree).to(data.device, data.dtype)

    return data.cached(("fedlog", "degrees"), make)


def neighbours(data: GraphTensors) -> SparseOperator:
    """[n, n] the mean over each node's neighbours."""
    return data.full.blocks("mean", 1)[0]
