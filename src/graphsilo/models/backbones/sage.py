"""GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017) with mean aggregation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from graphsilo.models.base import Dense, Layer, Pooling, Readout, Weights
from graphsilo.models.settings import LayeredSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, Term
from graphsilo.models.view import View
from graphsilo.settings import setting


class SAGESettings(LayeredSettings):
    """Settings of ``sage``."""

    unit_rows: bool = setting(False, "whether each row of a hidden layer is scaled to length 1 behind its ReLU")


class SageLayer(Layer):
    """The weights of one layer: ``neighbours`` (with the bias) and ``own`` (without)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.neighbours = Dense(inputs, outputs)
        self.own = Dense(inputs, outputs, bias=False)

    @property
    def slots(self) -> Weights:
        return ((self.neighbours, "weight"), (self.own, "weight"), (self.neighbours, "bias"))


class SAGE(StackedModel):
    """H' = mean over neighbours of H · W_n + H W_s + b, full neighbourhoods. P = 2dh + h + 2hC + C with two layers.

    Args:
        inputs: d.
        classes: C.
        hidden: As for every ``StackedModel``.
        dropout: Rate after each hidden activation, or after its rows were scaled.
        unit_rows: Scale every row of a hidden layer to length 1 behind its ReLU, as line 7 of Algorithm 1 does: h / |h|
            (a row of zeros stays). Logits, and with the link task the embeddings that come in their place, are never
            scaled.
        readout: As for every ``StackedModel``; with ``graph`` all layers are hidden.
        pooling: As for every ``StackedModel``.

    A node without neighbours receives the zero vector from them.

    Source: Hamilton et al., NeurIPS 2017, Algorithm 1. Deviation: neighbours are sampled only where ``method.fan_out``
    asks for it, and rows have unit length only where ``unit_rows`` does, as in PyG's and OpenFGL's default.
    Xavier-uniform weights and zero bias.
    """

    layer = SageLayer
    norm = "mean"

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        unit_rows: bool = False,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__(inputs, classes, hidden, dropout, readout=readout, pooling=pooling)
        self.unit_rows = unit_rows
        if unit_rows:
            self.activation = _unit_rows

    def plan(self, view: View, depth: int) -> Plan:
        def make() -> Plan:
            blocks, rows = view.blocks("mean", depth), view.own_rows("mean", depth)
            first = (Term(view.first_layer("mean", depth)), Term(view.features("mean", depth - 1)))
            return (first, *((Term(blocks[layer]), Term(None, rows[layer])) for layer in range(1, depth)))

        return view.cached(("sage plan", depth), make)


def _unit_rows(values: Tensor) -> Tensor:
    return F.normalize(values.relu(), dim=1)


BACKBONE = ModelEntry(
    name="sage",
    summary="GraphSAGE with mean aggregation",
    paper="Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017",
    settings=SAGESettings,
    network=SAGE,
    graphs=True,
    aliases=("graphsage",),
    edge_weights=True,
)
