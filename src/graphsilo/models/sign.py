"""SIGN (Frasca et al., 2020) as the federated papers use it: an MLP on X, ÂX, …, Â^L X side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, Layer, Model, Outputs, draw_uniform, widths
from graphsilo.models.operators import Operator
from graphsilo.models.precision import wide
from graphsilo.models.stack import Plan, Stack, Weights, feature_plan
from graphsilo.models.view import View


class HopLinear(Layer):
    """A linear layer on L + 1 matrices side by side, with one weight [inputs, outputs] per matrix.

    Drawn as the one [(L+1)·inputs, outputs] matrix it stands for.
    """

    def __init__(self, hops: int, inputs: int, outputs: int):
        super().__init__()
        for level in range(hops + 1):
            self.register_parameter(f"weight{level}", nn.Parameter(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.hops = hops

    @property
    def slots(self) -> Weights:
        return (*((self, f"weight{level}") for level in range(self.hops + 1)), (self, "bias"))

    def initialise(self, generator: torch.Generator) -> None:
        for level in range(self.hops + 1):
            weight = self.get_parameter(f"weight{level}")
            draw_uniform(weight, (self.hops + 1) * weight.shape[0] + weight.shape[1], generator)
        nn.init.zeros_(self.bias)

    def forward(self, values: Tensor) -> Tensor:
        """Of all matrices side by side, [rows, (L+1)·inputs], to [rows, outputs]."""
        weight = torch.cat([self.get_parameter(f"weight{level}") for level in range(self.hops + 1)])
        return wide(torch.addmm(self.bias, values, weight))


class SIGN(Model):
    """MLP([X ‖ ÂX ‖ … ‖ Â^L X]); the concatenation is never built: the first layer is a sum over hops.

    Args:
        inputs: d.
        classes: C.
        hops: L; FedGTA uses 3, O-pFGL 2.
        hidden: Width of each hidden layer; () is a linear model.
        dropout: Rate after each hidden activation.

    Source: Frasca et al., "SIGN: Scalable Inception Graph Neural Networks", 2020, in FedGTA's and O-pFGL's form.
    Deviations: the original has one linear layer and a PReLU per hop before concatenating; O-pFGL's release has
    BatchNorm and no activation between its two linear layers, here there are ReLU and dropout.
    """

    def __init__(self, inputs: int, classes: int, hops: int = 3, hidden: Sequence[int] = (64,), dropout: float = 0.5):
        super().__init__()
        first, *rest = widths(inputs, hidden, classes)
        layers: list[Layer] = [HopLinear(hops, *first), *(Dense(*pair) for pair in rest)]
        self.layers = nn.ModuleList(layers)
        self.hops, self.num_classes = hops, classes
        self.embedding_dim = hidden[-1] if hidden else (hops + 1) * inputs
        self.head = f"layers.{len(self.layers) - 1}."
        self._stack = Stack([layer.slots for layer in layers], [dropout] * len(self.layers))

    def _plan(self, view: View, depth: int) -> Plan:
        def hops() -> list[Operator]:
            return view.hops(self.hops)

        return feature_plan(view, depth, ("sign", self.hops), hops)

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        return self._stack(self._plan(view, len(self.layers)), generator)

    def outputs(self, view: View, generator: torch.Generator | None = None) -> Outputs:
        last = len(self.layers) - 1
        if last == 0:
            return super().outputs(view, generator)
        return Outputs(*self._stack.with_input(self._plan(view, last + 1), generator, last))

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self.layers) - 1
        if depth == 0:
            return torch.cat([hop.dense() for hop in view.hops(self.hops)], 1)
        return self._stack(self._plan(view, depth), generator, activate_last=True)
