"""GINE (Hu et al., ICLR 2020): GIN whose messages say what stands in the columns of the link that they came by."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphsilo.data.silos.silo import Schema
from graphsilo.models.backbones.gin import GINLayer
from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout, widths
from graphsilo.models.dense import times
from graphsilo.models.dropout import dropout as drop
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.relations import link_rows
from graphsilo.models.settings import MOST, EvenSettings, ModelEntry
from graphsilo.models.view import View
from graphsilo.settings import setting


class GINESettings(EvenSettings):
    """Settings of ``gine``."""

    mlp_layers: int = setting(2, "linear layers inside each graph layer", ge=1, le=MOST)
    eps: float = setting(0.0, "weight of the node itself, minus 1")
    train_eps: bool = setting(False, "whether each layer learns its own eps")


class GINELayer(GINLayer):
    """An MLP, ε if trainable, and the weight of what a row of the tables of links says."""

    def __init__(self, width: int, columns: int, *, mlp_layers: int, train_eps: bool, eps: float):
        sizes = widths(width, [width] * (mlp_layers - 1), width)
        super().__init__(sizes, normalise=False, train_eps=train_eps, eps=eps)
        self.links = Dense(columns, width, bias=False)


class GINE(HeadedModel):
    """H⁰ = X W_in + b; H'_v = dropout(ReLU(MLP((1+ε) H_v + Σ ReLU(H_u + e W_e)))); logits = H W_out + b.

    The sum is over the rows of the tables of links that begin or end at v, u being at their other end: ten transfers
    between two nodes are ten rows. e is a row's columns, scaled (:mod:`graphsilo.data.silos.link_scaling`), 0 where it
    has none, beside a 1 at the place of its relation and direction.

    Args:
        inputs: d.
        classes: C.
        schema: Of the federation: names its R relations and the k columns of their rows.
        hidden: Width h of every layer.
        layers: L, the graph layers; a linear layer stands before and behind them.
        dropout: Rate behind the first linear layer and behind every graph layer's ReLU; inside an MLP there is ReLU
            alone.
        mlp_layers: m, linear layers of each MLP.
        eps: ε, or its start.
        train_eps: Whether each layer learns its own ε.
        readout: ``graph`` pools H before the last linear layer.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    P = dh + h + L (m (h² + h) + (k + 2R) h) + hC + C, and L more with ``train_eps``.

    Source: Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020, with the ReLU before the sum, as
    in the authors' release and in PyG. Deviations: no BatchNorm; relations and directions beside columns.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        schema: Schema,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        mlp_layers: int = 2,
        eps: float = 0.0,
        train_eps: bool = False,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        columns = len(schema.link_features) + 2 * len(schema.relations)
        options = {"mlp_layers": mlp_layers, "train_eps": train_eps, "eps": eps}
        self._rows = [GINELayer(hidden, columns, **options) for _ in range(layers)]  # type: ignore[arg-type]
        self.input, self.layers, self.output = Dense(inputs, hidden), nn.ModuleList(self._rows), Dense(hidden, classes)
        self.embedding_dim, self.num_classes = hidden, classes
        self.head, self.message_layers = "output.", layers
        self.dropout, self.eps, self.readout, self.pooling = dropout, eps, readout, pooling

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self._rows)
        assert self.input.bias is not None
        hidden = view.features("relations", depth) @ self.input.weight + self.input.bias
        hidden = drop(hidden, self.dropout, generator)
        rounds = zip(link_rows(view, depth), view.own_rows("relations", depth), self._rows, strict=True)
        for links, own, layer in rounds:
            messages = (links.at_source @ hidden + links.columns @ layer.links.weight).relu()
            hidden = hidden if own is None else hidden.index_select(0, own)
            eps = self.eps if layer.eps is None else layer.eps.value
            hidden = links.to_target @ messages + (1.0 + eps) * hidden
            for position, linear in enumerate(layer.linears):
                hidden = times(hidden.relu() if position else hidden, linear.weight, linear.bias)
            hidden = relu_dropout(hidden, self.dropout, generator)
        return view.pool(hidden, self.pooling) if self.readout == "graph" else hidden


BACKBONE = ModelEntry(
    name="gine",
    summary="gin on every row of the tables of links, with what stands in its columns",
    paper="Hu et al., Strategies for Pre-training Graph Neural Networks, ICLR 2020",
    settings=GINESettings,
    network=GINE,
    graphs=True,
    relational=True,
)
