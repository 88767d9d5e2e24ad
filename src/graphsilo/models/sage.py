"""GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017) with mean aggregation."""

from __future__ import annotations

from graphsilo.models.base import Dense, Layer, StackedModel
from graphsilo.models.stack import Plan, Term, Weights
from graphsilo.models.view import View


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

    Arguments are those of ``StackedModel``.

    A node without neighbours receives the zero vector from them.

    Source: Hamilton et al., NeurIPS 2017, Algorithm 1. Deviation: no normalisation of the rows of H' to unit length
    and no neighbour sampling, as in PyG's and OpenFGL's default. Xavier-uniform weights and zero bias.
    """

    layer = SageLayer

    def _plan(self, view: View, depth: int) -> Plan:
        def make() -> Plan:
            blocks, rows = view.blocks("mean", depth), view.own_rows("mean", depth)
            first = (Term(view.first_layer("mean", depth)), Term(view.features("mean", depth - 1)))
            return (first, *((Term(blocks[layer]), Term(None, rows[layer])) for layer in range(1, depth)))

        return view.cached(("sage plan", depth), make)
