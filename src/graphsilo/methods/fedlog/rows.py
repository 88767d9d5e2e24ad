"""FedLoG's batches: nodes of the training graph, embedded together with their neighbours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.methods.fedlog.layers import BranchTargets, normalise, normalise_backward
from graphsilo.models.base import Model, Trace
from graphsilo.models.operators import SparseOperator
from graphsilo.models.view import GraphTensors, View, distinct


class Batch:
    """Some nodes of the training graph, embedded together with their neighbours.

    Args:
        embedded: [rows, E] the encoder's output on the rows that were computed.
        back: From the gradient of ``embedded`` to those of the encoder's parameters.
        places: [B] where the nodes stand among the rows.
        means: [B, rows] the mean over each node's neighbours.
        degree: [B] numbers of neighbours.
        layer_norm: Whether the classifiers have one.
    """

    def __init__(
        self,
        embedded: Tensor,
        back: Callable[[Tensor], list[Tensor]],
        places: Tensor,
        means: SparseOperator,
        degree: Tensor,
        layer_norm: bool = True,
    ):
        self.normal, self.factor = normalise(embedded, layer_norm)
        self.back, self.places, self.means, self.degree = back, places, means, degree

    def targets(self) -> BranchTargets:
        """The nodes, to be classified."""
        connected = (self.degree > 0).to(self.normal.dtype)
        return BranchTargets(self.normal.index_select(0, self.places), self.means.mm(self.normal), connected)

    def pull(self, own: Tensor, around: Tensor) -> list[Tensor]:
        """Gradients of the encoder's parameters, from those of what ``targets`` gave."""
        rows = self.means.tmm(around).index_add_(0, self.places, own)
        return self.back(normalise_backward(rows, self.normal, self.factor))


class BatchRows:
    """Embeds batches: through the whole graph where a batch reaches most of it anyway, else through its surroundings.

    Args:
        data: The training graph.
        batch: Nodes of a batch; 0 for all.
        layer_norm: Whether the classifiers have one.
    """

    def __init__(self, data: GraphTensors, batch: int, layer_norm: bool = True):
        self.layer_norm = layer_norm
        self.data, self.matrix = data, data.matrix("mean")
        self.degree = degrees(data)
        reach = (batch or data.num_nodes) * (1.0 + self.matrix.nnz / max(data.num_nodes, 1)) ** 2
        self.whole = reach >= data.num_nodes

    def embed(self, model: Model, nodes: NDArray[np.int64], draw: torch.Generator | None) -> Batch:
        """Embed these nodes and their neighbours."""
        index = torch.from_numpy(nodes).to(self.data.device)
        degree = self.degree.index_select(0, index)
        block = self.matrix[nodes]
        if self.whole:
            found = trace(model, self.data.full, draw)
            places, columns = index, block.indices.astype(np.int64)
        else:
            rows = distinct(self.data.num_nodes, block.indices, nodes)
            found = trace(model, self.data.view(rows), draw)
            places = torch.from_numpy(np.searchsorted(rows, nodes)).to(self.data.device)
            columns = np.searchsorted(rows, block.indices)
        shape = (len(nodes), len(found.logits))
        local = sp.csr_matrix((block.data, columns, block.indptr), shape=shape)
        means = SparseOperator(local, device=self.data.device, dtype=self.data.dtype)
        return Batch(found.logits, found.pull, places, means, degree, self.layer_norm)


def trace(model: Model, view: View, draw: torch.Generator | None) -> Trace:
    """The encoder's run on a view, and the way back to its parameters' gradients."""
    traced = model.trace(view, draw)
    assert traced is not None, "layers_of admits only models that have a trace"
    return traced


def degrees(data: GraphTensors) -> Tensor:
    """[n] number of neighbours, loops left out."""

    def make() -> Tensor:
        degree = np.diff(data.matrix("mean").indptr).astype(np.float64)
        return torch.from_numpy(degree).to(data.device, data.dtype)

    return data.cached(("fedlog", "degrees"), make)


def neighbours(data: GraphTensors) -> SparseOperator:
    """[n, n] the mean over each node's neighbours."""
    return data.full.blocks("mean", 1)[0]
