"""GCN (Kipf and Welling, ICLR 2017): H' = Â H W + b with ReLU and dropout between layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, Model, widths
from graphsilo.models.dropout import relu_dropout_scale
from graphsilo.models.operators import Operator
from graphsilo.models.view import View


class GCN(Model):
    """Any number of graph convolutions.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer; its length plus one is the depth.
        dropout: Rate after each hidden activation.
        readout: ``graph`` pools the last hidden layer (sum) and classifies it with a linear head.
    """

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (64,), dropout: float = 0.5):
        super().__init__()
        self.layers = nn.ModuleList(Dense(*pair) for pair in widths(inputs, hidden, classes))
        self.dropout = dropout
        self.num_classes = classes
        self.embedding_dim = self.layers[-1].weight.shape[0]
        self.head = f"layers.{len(self.layers) - 1}."
        # Looked up once: going through nn.Module's attribute machinery costs as much as a small product.
        self._flat = [tensor for layer in self.layers for tensor in (layer.weight, layer.bias)]

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        return self._run(view, len(self.layers), generator)

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self.layers) - 1
        if depth == 0:
            return view.features().dense()
        return self._run(view, depth, generator, activate_last=True)

    def _run(
        self, view: View, depth: int, generator: torch.Generator | None, *, activate_last: bool = False
    ) -> Tensor:
        if generator is not None and not torch.is_grad_enabled():
            raise ValueError('dropout is for training: call with gradients enabled, or without a generator')
        operators: list[Operator] = [view.first_layer("gcn", depth), *view.blocks("gcn", depth)[1:]]
        parameters = self._flat[: 2 * depth]
        if not torch.is_grad_enabled():
            return _evaluate(operators, activate_last, parameters)
        result: Tensor = _Stack.apply(operators, self.dropout, generator, activate_last, *parameters)  # type: ignore[no-untyped-call]
        return result


def _evaluate(operators: list[Operator], activate_last: bool, parameters: list[Tensor]) -> Tensor:
    last = len(operators) - 1
    hidden = operators[0].mm(parameters[0]).add_(parameters[1])
    for layer in range(1, last + 1):
        hidden = operators[layer].mm(torch.mm(hidden.relu_(), parameters[2 * layer])).add_(parameters[2 * layer + 1])
    return hidden.relu_() if activate_last else hidden


class _Stack(torch.autograd.Function):
    """All layers as one node of the autograd graph: on small graphs the bookkeeping of a node per operation costs
    as much as the arithmetic. Checked against finite differences and against a plain implementation in the tests.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        operators: list[Operator],
        rate: float,
        generator: torch.Generator | None,
        activate_last: bool,
        *parameters: Tensor,
    ) -> Tensor:
        weights, biases = parameters[0::2], parameters[1::2]
        saved: list[Tensor] = []
        last = len(weights) - 1
        hidden = operators[0].mm(weights[0])
        hidden += biases[0]
        for layer in range(last + 1):
            if layer:
                hidden = operators[layer].mm(torch.mm(hidden, weights[layer]))
                hidden += biases[layer]
            if layer < last or activate_last:
                scale = relu_dropout_scale(hidden, rate, generator)
                hidden *= scale
                saved += [scale, hidden]
        ctx.operators, ctx.activate_last = operators, activate_last
        # ``hidden`` of the last layer is the output; saving it is allowed, changing it in place is caught by torch.
        ctx.save_for_backward(*weights, *saved)
        ctx.depth = last + 1
        return hidden

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        depth = ctx.depth
        weights, saved = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        scales, hiddens = saved[0::2], saved[1::2]
        gradients: list[Tensor | None] = [None] * (2 * depth)
        gradient = gradient.contiguous()
        for layer in range(depth - 1, -1, -1):
            if layer < depth - 1 or ctx.activate_last:
                gradient = gradient * scales[layer]
            gradients[2 * layer + 1] = gradient.sum(0)
            if layer == 0:
                gradients[0] = ctx.operators[0].tmm(gradient)
            else:
                gradient = ctx.operators[layer].tmm(gradient)
                gradients[2 * layer] = torch.mm(hiddens[layer - 1].t(), gradient)
                gradient = torch.mm(gradient, weights[layer].t())
        return (None, None, None, None, *gradients)
