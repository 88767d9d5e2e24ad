"""Multi-layer perceptrons on constant matrices: the MLP itself, and the base of every model on propagated features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, Model, Outputs, StackedModel, widths
from graphsilo.models.operators import Operator
from graphsilo.models.stack import Plan, Stack, feature_plan
from graphsilo.models.view import View


class MLP(StackedModel):
    """Linear layers with ReLU and dropout between; sees no edge.

    Arguments are those of ``StackedModel``; ``hidden=()`` is logistic regression.

    Source: the structure-free baseline of the federated graph papers (hidden 64, 2 layers, dropout 0.5).
    """

    layer = Dense
    norm = None

    def _plan(self, view: View, depth: int) -> Plan:
        return feature_plan(view, depth, ("features",), lambda: [view.features()])


class PropagatedModel(Model):
    """An MLP on features that were propagated once and for all; with one layer, a linear model.

    The embedding is the last hidden activation; in a linear model it is the propagated features themselves.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer; () is the linear model.
        dropout: Rate after each hidden activation.
    """

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (), dropout: float = 0.5):
        super().__init__()
        layers = [Dense(*pair) for pair in widths(inputs, hidden, classes)]
        self.layers = nn.ModuleList(layers)
        self.embedding_dim, self.num_classes = [inputs, *hidden][-1], classes
        self.head = f"layers.{len(self.layers) - 1}."
        self._stack = Stack([layer.slots for layer in layers], [dropout] * len(self.layers))

    @abstractmethod
    def propagated(self, view: View) -> Operator:
        """The constant input of the first layer on the view's rows, [items, d]."""

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """What the propagation depends on; names its result in the view."""

    def _plan(self, view: View, depth: int) -> Plan:
        return feature_plan(view, depth, self._key(), lambda: [self.propagated(view)])

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
            return self.propagated(view).dense()
        return self._stack(self._plan(view, depth), generator, activate_last=True)
