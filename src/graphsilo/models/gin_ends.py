"""GINs between linear layers, for clients that keep their own ends and share what is between: GCFL's and FedStar's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout
from graphsilo.models.dense import times
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.encodings import structure_of
from graphsilo.models.gin import GINLayer, self_blocks
from graphsilo.models.operators import SparseOperator
from graphsilo.models.view import View


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


class FedStarGIN(GCFLGIN):
    """``GCFLGIN`` with a second channel, graph convolutions on encodings of structure, which its layers read as well.

    S⁰ = encodings · W + b; H' = dropout(ReLU(MLP((I + A) [H ‖ S]))), then S' = tanh(Â S W + b); last [H ‖ S] W + b.

    Args:
        walks, degrees: Of the encodings, see ``encodings.structure_of``.
        inputs, classes, hidden, layers, dropout, readout, pooling: As in ``GCFLGIN``.

    Source: Tan et al., "Federated Learning on Non-IID Graphs via Structural Knowledge Sharing", AAAI 2023.
    """

    core = "structure."
    channels = 2

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        walks: int = 16,
        degrees: int = 16,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__(inputs, classes, hidden, layers, dropout, readout=readout, pooling=pooling)
        self.walks, self.degrees = walks, degrees
        self._structure = [Dense(walks + degrees, hidden), *(Dense(hidden, hidden) for _ in range(layers))]
        self.structure, self.joined = nn.ModuleList(self._structure), Dense(2 * hidden, hidden)

    def _nodes(self, view: View, generator: torch.Generator | None) -> Tensor:
        hidden, (start, *convolutions) = self._first(view), self._structure
        key = ("structure", self.walks, self.degrees)
        known = view.of_links(key, lambda data: structure_of(data, self.walks, self.degrees), "sum", self.depth)
        assert start.bias is not None
        structure = known @ start.weight + start.bias
        blocks = zip(self_blocks(view, self.depth, 0.0), view.blocks("gcn", self.depth), strict=True)
        for layer, convolution, (summing, mixing) in zip(self._rows, convolutions, blocks, strict=True):
            assert convolution.bias is not None
            hidden = self._convolve(layer, summing, torch.cat([hidden, structure], 1), generator)
            structure = torch.tanh(mixing @ times(structure, convolution.weight) + convolution.bias)
        return times(torch.cat([hidden, structure], 1), self.joined.weight, self.joined.bias)
