"""GCN (Kipf and Welling, ICLR 2017): H' = Â H W + b with ReLU and dropout between layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, LayeredModel, Pooling, Readout, layer_widths
from graphsilo.models.stack import Stack, graph_plan
from graphsilo.models.view import View


class GCN(LayeredModel):
    """Any number of graph convolutions, Â = D̃^-1/2 (A+I) D̃^-1/2.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer; in the ``node`` readout one more layer, to C, follows them.
        dropout: Rate after each hidden activation.
        readout: ``graph`` pools the last hidden layer and classifies it with a linear head.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    Source: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017, eq. 2.
    Deviation: no dropout on the input features, as in OpenFGL; the paper has it on every layer's input.
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
        layers = [Dense(*pair) for pair in layer_widths(inputs, hidden, classes, readout)]
        self.layers = nn.ModuleList(layers)
        self._finish([inputs, *hidden][-1], classes, readout, pooling)
        self._stack = Stack([layer.slots for layer in layers], [dropout] * len(self.layers))

    def _layers(self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool) -> Tensor:
        return self._stack(graph_plan(view, "gcn", depth), generator, activate_last=activate_last)


class StackedSGC(GCN):
    """What OpenFGL calls ``sgc``: SGConv layers with K = 1 each, ReLU and dropout between them, which is a GCN.

    Kept under its own name so that its published numbers are not taken for SGC's; the true one is ``sgc``.
    """
