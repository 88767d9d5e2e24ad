"""GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017) with mean aggregation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, LayeredModel, Pooling, Readout, layer_widths
from graphsilo.models.stack import Plan, Stack, Term
from graphsilo.models.view import View


class SageLayer(nn.Module):
    """The weights of one layer: ``neighbours`` (with the bias) and ``own`` (without)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.neighbours = Dense(inputs, outputs)
        self.own = Dense(inputs, outputs, bias=False)

    @property
    def slots(self) -> tuple[tuple[nn.Module, str], ...]:
        return ((self.neighbours, "weight"), (self.own, "weight"), (self.neighbours, "bias"))


class SAGE(LayeredModel):
    """H' = mean over neighbours of H · W_n + H W_s + b, full neighbourhoods. P = 2dh + h + 2hC + C with two layers.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer; in the ``node`` readout one more layer, to C, follows them.
        dropout: Rate after each hidden activation.
        readout: ``graph`` pools the last hidden layer and classifies it with a linear head.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    A node without neighbours receives the zero vector from them.

    Source: Hamilton et al., NeurIPS 2017, Algorithm 1. Deviation: no normalisation of the rows of H' to unit length
    and no neighbour sampling, as in PyG's and OpenFGL's default. Xavier-uniform weights and zero bias.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        layers = [SageLayer(*pair) for pair in layer_widths(inputs, hidden, classes, readout)]
        self.layers = nn.ModuleList(layers)
        self._finish([inputs, *hidden][-1], classes, readout, pooling)
        self._stack = Stack([layer.slots for layer in layers], [dropout] * self.depth)

    def _layers(self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool) -> Tensor:
        return self._stack(_plan(view, depth), generator, activate_last=activate_last)


def _plan(view: View, depth: int) -> Plan:
    def make() -> Plan:
        blocks, rows = view.blocks("mean", depth), view.own_rows("mean", depth)
        first = (Term(view.first_layer("mean", depth)), Term(view.features("mean", depth - 1)))
        return (first, *((Term(blocks[layer]), Term(None, rows[layer])) for layer in range(1, depth)))

    return view.cached(("sage plan", depth), make)
