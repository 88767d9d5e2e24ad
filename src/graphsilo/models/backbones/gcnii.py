"""GCNII (Chen et al., ICML 2020): deep graph convolutions with an initial residual and an identity mapping."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout
from graphsilo.models.dropout import dropout as drop
from graphsilo.models.precision import widen
from graphsilo.models.settings import MOST, EvenSettings, ModelEntry
from graphsilo.models.view import View
from graphsilo.settings import setting


class GCNIISettings(EvenSettings):
    """Settings of ``gcnii``."""

    layers: int = setting(64, "graph convolutions; a linear layer stands before and behind them", ge=1, le=MOST)
    dropout: float = setting(0.6, "share of hidden activations set to 0 in training", ge=0, lt=1)
    alpha: float = setting(0.1, "share of the first hidden layer in each convolution's input", ge=0, le=1)
    theta: float = setting(0.5, "identity mapping: layer l uses log(theta / l + 1) of its weight", ge=0)


class GCNII(HeadedModel):
    """H⁰ = ReLU(X W_in + b); H^{l+1} = σ([(1−α) Â H^l + α H⁰] [(1−β_l) I + β_l W_l]); logits = H^L W_out + b.

    Args:
        inputs: d.
        classes: C.
        hidden: Width h of every layer.
        layers: L, the graph convolutions; a linear layer stands before and behind them.
        dropout: Rate on the input of every convolution and of the last linear layer; the residual H⁰ is not
            dropped. Without ``activate``, on H⁰ alone.
        alpha: Share α of the initial residual.
        theta: θ of β_l = log(θ / l + 1); None sets β_l = 1, which is no identity mapping.
        activate: Whether σ is ReLU followed by dropout; otherwise the convolutions follow each other as they are.
        readout: ``graph`` pools H^L before the last linear layer.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    P = dh + h + Lh² + hC + C.

    Source: Chen et al., "Simple and Deep Graph Convolutional Networks", ICML 2020, eq. 5; hidden 64, 64 layers,
    α = 0.1, θ = 0.5, dropout 0.6 on Cora. ``gcnii_openfgl`` is OpenFGL's variant: 2 layers, θ unset, no activation
    between. Deviations: no dropout on the input features; Xavier-uniform weights; one weight decay for all.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: int = 64,
        layers: int = 64,
        dropout: float = 0.6,
        alpha: float = 0.1,
        theta: float | None = 0.5,
        activate: bool = True,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        self.input = Dense(inputs, hidden)
        self._rows = [Dense(hidden, hidden, bias=False) for _ in range(layers)]
        self.convolutions = nn.ModuleList(self._rows)
        self.output = Dense(hidden, classes)
        self.embedding_dim, self.num_classes = hidden, classes
        self.head, self.message_layers = "output.", layers
        self.readout, self.pooling = readout, pooling
        self.dropout, self.alpha, self.activate = dropout, alpha, activate
        self.betas = [1.0 if theta is None else math.log(theta / level + 1.0) for level in range(1, layers + 1)]

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self._rows)
        assert self.input.bias is not None
        start = (view.features("gcn", depth) @ self.input.weight + self.input.bias).relu()
        hidden = drop(start, self.dropout, generator)
        # OpenFGL drops H⁰ once, before the convolutions, in the residual too.
        residual = self.alpha * (start if self.activate else hidden)
        rounds = zip(view.blocks("gcn", depth), view.own_rows("gcn", depth), self.betas, self._rows, strict=True)
        for block, rows, beta, layer in rounds:
            residual = residual if rows is None else residual.index_select(0, rows)
            mixed = torch.add(residual, block @ hidden, alpha=1.0 - self.alpha)
            # (1 − β) M + β M W
            hidden = widen(torch.addmm(mixed, mixed, layer.weight, beta=1.0 - beta, alpha=beta))
            if self.activate:
                hidden = drop(hidden.relu(), self.dropout, generator)
        return view.pool(hidden, self.pooling) if self.readout == "graph" else hidden


BACKBONE = ModelEntry(
    name="gcnii",
    summary="deep graph convolutions with initial residual and identity mapping",
    paper="Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020",
    settings=GCNIISettings,
    network=GCNII,
    graphs=True,
    aliases=("gcn2",),
    edge_weights=True,
)
