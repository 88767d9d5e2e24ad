"""SIGN (Frasca et al., 2020) as the federated papers use it: an MLP on X, ÂX, …, Â^L X side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from graphsilo.models.base import Layer, Weights, draw_uniform
from graphsilo.models.precision import widen
from graphsilo.models.settings import MOST, HiddenSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import View
from graphsilo.settings import setting


class SIGNSettings(HiddenSettings):
    """Settings of ``sign``."""

    hops: int = setting(3, "propagation steps L; levels 0 to L stand side by side", ge=0, le=MOST)


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
        return widen(torch.addmm(self.bias, values, weight))


class SIGN(StackedModel):
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
        super().__init__(inputs, classes, hidden, dropout, first=partial(HopLinear, hops))
        self.hops = hops
        if not hidden:
            self.embedding_dim = (hops + 1) * inputs

    def plan(self, view: View, depth: int) -> Plan:
        return feature_plan(view, depth, ("sign", self.hops), lambda: view.hops(self.hops))


BACKBONE = ModelEntry(
    name="sign",
    summary="an MLP on the propagation levels side by side",
    paper="Frasca et al., SIGN: Scalable Inception Graph Neural Networks, 2020",
    settings=SIGNSettings,
    network=SIGN,
    edge_weights=True,
    keeps="levels",
)
