"""GCNII (Chen et al., ICML 2020): deep graph convolutions with an initial residual and an identity mapping."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout
from graphsilo.models.dropout import keep_scale, relu_dropout_scale
from graphsilo.models.operators import SparseOperator
from graphsilo.models.precision import as_forwards, is_reduced, wide
from graphsilo.models.stack import Plan, Stack, Term
from graphsilo.models.view import View


class GCNII(HeadedModel):
    """H⁰ = ReLU(X W_in + b); H^{l+1} = σ([(1−α) Â H^l + α H⁰] [(1−β_l) I + β_l W_l]); logits = H^L W_out + b.

    Args:
        inputs: d.
        classes: C.
        hidden: Width h of every layer.
        layers: L, the graph convolutions; a linear layer stands before and behind them.
        dropout: Rate on the input of every convolution and of the last linear layer; the residual H⁰ is not
            dropped. Without ``activate``, on H⁰ alone.
        alpha: Share α of the initial residual.
        theta: θ of β_l = log(θ / l + 1); None sets β_l = 1, which is no identity mapping.
        activate: Whether σ is ReLU followed by dropout; otherwise the convolutions follow each other as they are.
        readout: ``graph`` pools H^L before the last linear layer.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    P = dh + h + Lh² + hC + C.

    Source: Chen et al., "Simple and Deep Graph Convolutional Networks", ICML 2020, eq. 5; hidden 64, 64 layers,
    α = 0.1, θ = 0.5, dropout 0.6 on Cora. ``gcnii_openfgl`` is OpenFGL's variant: 2 layers, θ unset, no activation
    between. Deviations: no dropout on the input features; Xavier-uniform weights; one weight decay for all.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: int = 64,
        layers: int = 64,
        dropout: float = 0.6,
        alpha: float = 0.1,
        theta: float | None = 0.5,
        activate: bool = True,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        self.input = Dense(inputs, hidden)
        self.convolutions = nn.ModuleList(Dense(hidden, hidden, bias=False) for _ in range(layers))
        self.output = Dense(hidden, classes)
        self.embedding_dim, self.num_classes = hidden, classes
        self.head, self.message_layers = "output.", layers
        self.readout, self.pooling = readout, pooling
        self.dropout, self.alpha, self.activate = dropout, alpha, activate
        self.betas = [1.0 if theta is None else math.log(theta / level + 1.0) for level in range(1, layers + 1)]
        # OpenFGL drops H⁰ once, before the convolutions, in the residual too.
        self._input = Stack([self.input.slots], [0.0 if activate else dropout])
        self._weights = list(self.convolutions)

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self._weights)
        plan: Plan = view.cached(("gcnii plan", depth), lambda: ((Term(view.features("gcn", depth)),),))
        start = self._input(plan, generator, activate_last=True)
        settings = _Settings(
            view.blocks("gcn", depth),
            view.own_rows("gcn", depth),
            self.betas,
            self.alpha,
            self.dropout,
            self.activate,
            generator,
        )
        weights = [layer._parameters["weight"] for layer in self._weights]
        hidden: Tensor = _Convolutions.apply(settings, start, *weights)  # type: ignore[no-untyped-call]
        return view.pool(hidden, self.pooling) if self.readout == "graph" else hidden


class _Settings:
    """What the convolutions need besides tensors."""

    def __init__(
        self,
        blocks: list[SparseOperator],
        rows: list[Tensor | None],
        betas: list[float],
        alpha: float,
        rate: float,
        activate: bool,
        generator: torch.Generator | None,
    ):
        self.blocks, self.rows, self.betas, self.alpha = blocks, rows, betas, alpha
        self.rate, self.activate, self.generator = rate, activate, generator


class _Convolutions(torch.autograd.Function):
    """All convolutions as one node: at 64 layers a node per operation would cost three times the arithmetic."""

    @staticmethod
    def forward(ctx: Any, settings: _Settings, start: Tensor, *weights: Tensor) -> Tensor:
        generator, rate = settings.generator, settings.rate
        keep = None
        if generator is not None and rate > 0.0 and settings.activate:
            keep = keep_scale(start.shape, rate, generator, start)
        hidden = start if keep is None else start * keep
        residual = start * settings.alpha
        saved: list[Tensor] = []
        needed = any(ctx.needs_input_grad)
        for block, rows, beta, weight in zip(settings.blocks, settings.rows, settings.betas, weights, strict=True):
            residual = residual if rows is None else residual.index_select(0, rows)
            mixed = torch.add(residual, block.mm(hidden), alpha=1.0 - settings.alpha)
            hidden = wide(torch.addmm(mixed, mixed, weight, beta=1.0 - beta, alpha=beta))
            if settings.activate:
                scale = relu_dropout_scale(hidden, rate, generator)
                hidden *= scale
                if needed:
                    saved.append(scale)
            if needed:
                saved.append(mixed)
        ctx.settings, ctx.keep, ctx.count, ctx.shape = settings, keep, len(weights), start.shape
        ctx.reduced = is_reduced(start)
        ctx.save_for_backward(*weights, *saved)
        # Without convolutions and dropout the output would be the input itself, which autograd must not see twice.
        return hidden.clone() if hidden is start else hidden

    @staticmethod
    @once_differentiable
    @as_forwards
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        settings: _Settings = ctx.settings
        weights, saved = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        gradients: list[Tensor | None] = [None] * ctx.count
        residual: Tensor | None = None
        gradient = gradient.contiguous()
        stride = 2 if settings.activate else 1
        for layer in range(ctx.count - 1, -1, -1):
            block, rows, beta = settings.blocks[layer], settings.rows[layer], settings.betas[layer]
            mixed: Tensor = saved[stride * (layer + 1) - 1]
            if settings.activate:
                gradient = gradient * saved[2 * layer]
            gradients[layer] = wide(torch.mm(mixed.t(), gradient)).mul_(beta)
            gradient = wide(torch.addmm(gradient, gradient, weights[layer].t(), beta=1.0 - beta, alpha=beta))
            residual = gradient if residual is None else residual.add(gradient)
            gradient = block.tmm(gradient).mul_(1.0 - settings.alpha)
            if rows is not None:
                residual = residual.new_zeros(gradient.shape).index_add_(0, rows, residual)
        if ctx.keep is not None:
            gradient = gradient * ctx.keep
        return (None, gradient if residual is None else gradient.add(residual, alpha=settings.alpha), *gradients)
