"""GAT (Veličković et al., ICLR 2018): neighbours weighted by learned attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from graphsilo.models.base import Dense, LayeredModel, Pooling, Readout, draw_uniform, layer_widths
from graphsilo.models.dense import times
from graphsilo.models.dropout import dropout, relu_dropout
from graphsilo.models.operators import SparseOperator
from graphsilo.models.settings import MOST, LayeredSettings, ModelEntry, check_heads
from graphsilo.models.view import View
from graphsilo.settings import setting


class GATSettings(LayeredSettings):
    """Settings of ``gat``."""

    heads: int = setting(1, "attention heads of each hidden layer, side by side; they share its width", ge=1)
    output_heads: int = setting(1, "attention heads of the output layer, averaged", ge=1, le=MOST)
    attention_dropout: float = setting(0.0, "share of attention weights set to 0 in training", ge=0, lt=1)
    negative_slope: float = setting(0.2, "slope of the scores' LeakyReLU below 0", ge=0)
    activation: Literal["relu", "elu"] = setting("relu", "activation of hidden layers")

    _heads_share = model_validator(mode="after")(check_heads)


class GATLayer(nn.Module):
    """Weight [inputs, heads · width], attention vectors [heads, width] for source and target, bias."""

    def __init__(self, inputs: int, outputs: int, heads: int, *, average: bool):
        super().__init__()
        width = outputs if average else outputs // heads
        self.heads, self.average = heads, average
        self.linear = Dense(inputs, heads * width, bias=False)
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(outputs))

    def initialise(self, generator: torch.Generator) -> None:
        for vector in (self.source, self.target):
            draw_uniform(vector, sum(vector.shape), generator)
        nn.init.zeros_(self.bias)


class GAT(LayeredModel):
    """H'_v = Σ_u α_vu H_u W + b; α = softmax over u in N(v) ∪ {v} of LeakyReLU(a_sᵀ H_u W + a_tᵀ H_v W).

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer, all heads together.
        dropout: Rate after each hidden activation.
        heads: Heads of each hidden layer, side by side; each has width hidden / heads.
        output_heads: Heads of the last layer, averaged; in the ``graph`` readout every layer is hidden.
        attention_dropout: Rate on α.
        negative_slope: Of the LeakyReLU.
        activation: ``relu``, or ``elu`` as in the paper.
        readout: ``graph`` pools the last hidden layer and classifies it with a linear head.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    Edge weights are not used.

    Source: Veličković et al., "Graph Attention Networks", ICLR 2018, eqs. 3 to 6. Defaults as in OpenFGL: one head,
    ReLU in place of ELU, dropout on hidden layers only (the paper: 8 heads, 0.6 on inputs and attention too).
    """

    norm = "loops"

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        heads: int = 1,
        output_heads: int = 1,
        attention_dropout: float = 0.0,
        negative_slope: float = 0.2,
        activation: Literal["relu", "elu"] = "relu",
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        sizes = layer_widths(inputs, hidden, classes, readout)
        last = len(sizes) - 1 if readout == "node" else -1
        self._rows = [
            GATLayer(*pair, output_heads if position == last else heads, average=position == last)
            for position, pair in enumerate(sizes)
        ]
        self.layers = nn.ModuleList(self._rows)
        self._finish([inputs, *hidden][-1], classes, readout, pooling)
        self.dropout, self.attention_dropout = dropout, attention_dropout
        self.negative_slope, self.activation = negative_slope, activation

    def _outputs(self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool) -> list[Tensor]:
        outputs: list[Tensor] = []
        rounds = zip(view.blocks("loops", depth), view.own_rows("loops", depth), self._rows, strict=False)
        for position, (block, rows, layer) in enumerate(rounds):
            weight = layer.linear.weight
            values = times(outputs[-1], weight) if outputs else view.features("loops", depth) @ weight
            heads = values.view(len(values), *layer.source.shape)
            attended = self._attend(layer, heads, block, rows, generator)
            hidden = (attended.mean(1) if layer.average else attended.flatten(1)) + layer.bias
            if position < depth - 1 or activate_last:
                if self.activation == "relu":
                    hidden = relu_dropout(hidden, self.dropout, generator)
                else:
                    hidden = dropout(nn.functional.elu(hidden), self.dropout, generator)
            outputs.append(hidden)
        return outputs

    def _attend(
        self, layer: GATLayer, values: Tensor, block: SparseOperator, rows: Tensor | None, draw: torch.Generator | None
    ) -> Tensor:
        """Σ_u α_vu of the neighbours' rows, [rows, heads, width] from [input rows, heads, width]."""
        target, source = block.entries
        to_source, to_target = (values * layer.source).sum(-1), (values * layer.target).sum(-1)
        to_target = to_target if rows is None else to_target.index_select(0, rows)
        scores = to_source.index_select(0, source) + to_target.index_select(0, target)
        weights = softmax(nn.functional.leaky_relu(scores, self.negative_slope), target, block.shape[0])
        weights = dropout(weights, self.attention_dropout, draw)
        messages = weights.unsqueeze(-1) * values.index_select(0, source)
        return values.new_zeros(block.shape[0], *values.shape[1:]).index_add(0, target, messages)


def softmax(scores: Tensor, target: Tensor, count: int) -> Tensor:
    """Over the edges of each target.

    Args:
        scores: [edges, heads].
        target: [edges] number of each one's target.
        count: Targets.
    """
    empty = scores.new_zeros(count, scores.shape[1])
    places = target.unsqueeze(1).expand_as(scores)
    highest = empty.scatter_reduce(0, places, scores.detach(), "amax", include_self=False)
    weights = (scores - highest.index_select(0, target)).exp()
    return weights / empty.index_add(0, target, weights).index_select(0, target)


BACKBONE = ModelEntry(
    name="gat",
    summary="neighbours weighted by learned attention",
    paper="Veličković et al., Graph Attention Networks, ICLR 2018",
    settings=GATSettings,
    network=GAT,
    graphs=True,
)
