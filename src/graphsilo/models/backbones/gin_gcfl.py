"""GCFL's GIN (Xie et al., NeurIPS 2021): between linear layers, for clients that keep their ends and share the rest."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphsilo.models.backbones.gin import GINLayer, self_blocks
from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout
from graphsilo.models.dense import times
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.operators import SparseOperator
from graphsilo.models.settings import MOST, EvenSettings, ModelEntry
from graphsilo.models.view import View
from graphsilo.settings import setting


class GCFLGINSettings(EvenSettings):
    """Settings of ``gin_gcfl``."""

    layers: int = setting(3, "graph layers; a linear layer stands before and two behind them", ge=1, le=MOST)


class GCFLGIN(HeadedModel):
    """H⁰ = X W + b; H' = dropout(ReLU(MLP(H + A H))); for graphs their sum; dropout(ReLU(· W + b)); · W + b.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of all layers.
        layers: Graph layers, whose MLPs have two linear layers each.
        dropout: Rate after each activation but those inside MLPs.
        readout: ``graph`` pools nodes before the last two linear layers.
        pooling: ``sum`` (the paper's) or ``mean`` over a graph's nodes.

    Source: Xie et al., "Federated Graph Classification over Non-IID Graphs", NeurIPS 2021, and its authors' code.
    Deviation: weights are drawn as everywhere here (Xavier, biases 0).
    """

    core = "convolutions."
    channels = 1

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        sizes = [(self.channels * hidden, hidden), (hidden, hidden)]
        convolutions = [GINLayer(sizes, normalise=False, train_eps=False, eps=0.0) for _ in range(layers)]
        self.pre, self.post = Dense(inputs, hidden), Dense(hidden, hidden)
        self.convolutions, self._rows = nn.ModuleList(convolutions), convolutions
        self.output = Dense(hidden, classes)
        self.embedding_dim, self.num_classes, self.head = hidden, classes, "output."
        self.depth, self.dropout, self.readout, self.pooling = layers, dropout, readout, pooling
        self.message_layers = layers

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        hidden = self._nodes(view, generator)
        pooled = view.pool(hidden, self.pooling) if self.readout == "graph" else hidden
        return relu_dropout(self.post(pooled), self.dropout, generator)

    def _nodes(self, view: View, generator: torch.Generator | None) -> Tensor:
        """What the graph layers make of the view's rows, [rows, hidden]."""
        hidden = self._first(view)
        for layer, block in zip(self._rows, self_blocks(view, self.depth, 0.0), strict=True):
            hidden = self._convolve(layer, block, hidden, generator)
        return hidden

    def _first(self, view: View) -> Tensor:
        assert self.pre.bias is not None
        return view.features("sum", self.depth) @ self.pre.weight + self.pre.bias

    def _convolve(
        self, layer: GINLayer, block: SparseOperator, hidden: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        inner, outer = layer.linears
        assert inner.bias is not None
        # By linearity the product with the weight comes first: it is as narrow, or narrower.
        values = block @ times(hidden, inner.weight) + inner.bias
        return relu_dropout(times(values.relu(), outer.weight, outer.bias), self.dropout, generator)


BACKBONE = ModelEntry(
    name="gin_gcfl",
    summary="GCFL's: GIN layers of one width, which clients can share, between linear ones",
    paper="Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021",
    settings=GCFLGINSettings,
    network=GCFLGIN,
    graphs=True,
)
