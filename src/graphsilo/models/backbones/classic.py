"""The classic GNN as a strong baseline (Luo, Shi and Wu, NeurIPS 2024): GCN or SAGE, normalised, residual and deep."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout
from graphsilo.models.dense import times
from graphsilo.models.dropout import dropout as drop
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.settings import MOST, LayeredSettings, ModelEntry
from graphsilo.models.view import Norm, View
from graphsilo.settings import WIDEST, setting


class ClassicSettings(LayeredSettings):
    """Settings of ``classic``."""

    head_counts: ClassVar[bool] = False
    conv: Literal["gcn", "sage"] = setting("gcn", "graph convolution: symmetrically normalised, or SAGE's mean")
    hidden: int = setting(64, "width of all layers", ge=1, le=WIDEST)
    layers: int = setting(3, "graph convolutions; a linear layer stands before and behind them", ge=1, le=MOST)
    norm: Literal["none", "layer"] = setting(
        "none", "normalisation before each ReLU; with six layers or more, layer wants method.lr near 0.003"
    )
    residual: bool = setting(True, "whether a linear map of each convolution's input is added to its output")


class LayerNorm(nn.LayerNorm):
    """Each row with mean 0 and variance 1, then a scale and a shift per column, from 1 and 0 on."""

    def initialise(self, generator: torch.Generator) -> None:
        self.reset_parameters()


class ClassicLayer(nn.Module):
    """The weights of one layer: ``neighbours`` (with the bias), ``own`` (of SAGE), ``residual``, and the norm's."""

    def __init__(self, width: int, *, own: bool, residual: bool, normalise: bool):
        super().__init__()
        self.neighbours = Dense(width, width)
        self.own = Dense(width, width, bias=False) if own else None
        self.residual = Dense(width, width, bias=False) if residual else None
        self.norm = LayerNorm(width) if normalise else nn.Identity()

    def forward(self, mixed: Tensor, itself: Tensor) -> Tensor:
        """norm(mixed W_n + b + itself W), where W is the sum of the weights that the layer's own input has."""
        values = times(mixed, self.neighbours.weight, self.neighbours.bias)
        weights: list[Tensor] = [linear.weight for linear in (self.own, self.residual) if linear is not None]
        if weights:
            values = values + times(itself, torch.stack(weights).sum(0))
        normalised: Tensor = self.norm(values)
        return normalised


class Classic(HeadedModel):
    """H⁰ = X W_in + b; H' = dropout(ReLU(norm(conv(H) + H W_r))); logits = H W_out + b.

    Args:
        inputs: d.
        classes: C.
        conv: ``gcn``, Â H W_n + b, or ``sage``, mean over neighbours of H · W_n + H W_s + b.
        hidden: Width h of every layer.
        layers: L, the graph convolutions; a linear layer stands before and behind them.
        dropout: Rate behind the first linear layer and behind every convolution's ReLU.
        norm: ``layer`` normalises each row before the ReLU; ``none`` does not. With ``layer`` and Adam's rate at 0.01,
            all rows of six layers become alike within a few steps, for good; at 0.003 they do not.
        residual: Whether H W_r is added.
        readout: ``graph`` pools H before the last linear layer.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    P = dh + h + L (h² + h) + hC + C, and L h² more for each of ``sage`` and ``residual``, 2Lh for ``layer``.

    Source: Luo, Shi and Wu, "Classic GNNs are Strong Baselines", NeurIPS 2024, eqs. 5 to 8. Deviations: no batch
    norm, whose statistics would differ between silos and with the rows that a step needs; W_r has no bias beside the
    convolution's; Xavier-uniform weights.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        conv: Literal["gcn", "sage"] = "gcn",
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.5,
        norm: Literal["none", "layer"] = "none",
        residual: bool = True,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        self.mixing: Norm = "mean" if conv == "sage" else "gcn"
        own, normalise = conv == "sage", norm == "layer"
        self._rows = [ClassicLayer(hidden, own=own, residual=residual, normalise=normalise) for _ in range(layers)]
        self.input, self.convolutions = Dense(inputs, hidden), nn.ModuleList(self._rows)
        self.output = Dense(hidden, classes)
        self.embedding_dim, self.num_classes = hidden, classes
        self.head, self.message_layers = "output.", layers
        self.dropout, self.readout, self.pooling = dropout, readout, pooling

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self._rows)
        assert self.input.bias is not None
        hidden = drop(view.features(self.mixing, depth) @ self.input.weight + self.input.bias, self.dropout, generator)
        rounds = zip(view.blocks(self.mixing, depth), view.own_rows(self.mixing, depth), self._rows, strict=True)
        for block, rows, layer in rounds:
            itself = hidden if rows is None else hidden.index_select(0, rows)
            hidden = relu_dropout(layer(block @ hidden, itself), self.dropout, generator)
        return view.pool(hidden, self.pooling) if self.readout == "graph" else hidden


BACKBONE = ModelEntry(
    name="classic",
    summary="GCN or SAGE layers with normalisation, residual connections and dropout, to any depth",
    paper="Luo, Shi and Wu, Classic GNNs are Strong Baselines, NeurIPS 2024",
    settings=ClassicSettings,
    network=Classic,
    graphs=True,
    aliases=("classic_gnn",),
    edge_weights=True,
)
