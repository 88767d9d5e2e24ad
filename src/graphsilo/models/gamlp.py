"""GAMLP (Zhang et al., KDD 2022): each node weighs its propagated features by attention, then an MLP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphsilo.models.base import Dense, EmbeddedTrace, HeadedModel, draw_uniform, widths
from graphsilo.models.dense import matmul
from graphsilo.models.dropout import Source, drawn_mask, dropout
from graphsilo.models.levels import Hops, Levels, levels_of, padded
from graphsilo.models.precision import as_forwards, exact, is_reduced, wide
from graphsilo.models.stack import Trace, without_gradients
from graphsilo.models.view import View

_GAIN = math.sqrt(2.0)


class HopAttention(nn.Module):
    """The scorer: ``weight`` [references + 1, d], the last row for the hop itself, and ``bias`` [1]."""

    def __init__(self, references: int, inputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(references + 1, inputs))
        self.bias = nn.Parameter(torch.empty(1))

    def initialise(self, generator: torch.Generator) -> None:
        draw_uniform(self.weight, self.weight.numel() + 1, generator, gain=_GAIN)
        nn.init.zeros_(self.bias)


class SharedPReLU(nn.Module):
    """max(x, 0) + slope · min(x, 0) with one trainable slope, 0.25 at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.empty(1))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.slope, 0.25)

    def forward(self, values: Tensor) -> Tensor:
        """Any shape."""
        with exact(values):  # torch counts this one among the products
            return nn.functional.prelu(values, self.slope)


class GAMLP(HeadedModel):
    """MLP(Σ_l w_vl X_v^(l)), w_v = softmax over l of the scores s_vl, X^(l) = Â^l X for l = 0..L.

    ``jk``: s_vl = act(w_refᵀ [X_v^(0) ‖ … ‖ X_v^(L)] + w_hopᵀ X_v^(l) + b).
    ``recursive``: s_vl = act(w_refᵀ h_vl + w_hopᵀ X_v^(l) + b), h_v0 = X_v^(0) and
    h_vl = Σ_{j<l} softmax_j(s_v0..s_v,l−1) X_v^(j).

    Neither the concatenation nor Σ_l w_vl X^(l) is built: with the weight split, every use of X^(l) is one product
    with a matrix of 2 + h columns, so that sparse hops stay sparse.

    Args:
        inputs: d.
        classes: C.
        hops: L.
        hidden: Width of each hidden layer of the MLP, at least one.
        dropout: Rate after each hidden activation.
        attention: ``jk`` or ``recursive``.
        score_activation: act: ``sigmoid``, ``relu`` or ``leaky_relu`` (slope 0.2).
        attention_dropout: Rate on w.
        legacy_layout: Reproduces a release that reads the scores of the stacked hops, [(L+1) · n], row by row as
            [n, L+1], which mixes nodes and hops: outputs then depend on which rows are computed together. Only for
            reproducing published numbers.

    P = (L+2)d + 1 + dh + h + h² + h + hC + C + 1 with ``jk`` and two hidden layers; 2d + 1 for the scorer with
    ``recursive``.

    Source: Zhang et al., "Graph Attention Multi-Layer Perceptron", KDD 2022, eqs. 5 to 8, in FedGTA's form: L = 3,
    reference without an MLP of its own, 3 layers, one shared PReLU, dropout 0.5, Xavier-uniform with gain √2.
    Deviations: no input dropout, no label use, no unused link-prediction layer.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hops: int = 3,
        hidden: Sequence[int] = (64, 64),
        dropout: float = 0.5,
        attention: Literal["jk", "recursive"] = "jk",
        score_activation: Literal["sigmoid", "relu", "leaky_relu"] = "sigmoid",
        attention_dropout: float = 0.0,
        legacy_layout: bool = False,
    ):
        super().__init__()
        self.scorer = HopAttention(hops + 1 if attention == "jk" else 1, inputs)
        self.layers = nn.ModuleList(Dense(*pair, gain=_GAIN) for pair in widths(inputs, hidden, classes))
        self.activation = SharedPReLU()
        self.embedding_dim, self.num_classes = hidden[-1], classes
        self.head = f"layers.{len(self.layers) - 1}."
        self.hops, self.attention, self.score_activation = hops, attention, score_activation
        self.dropout, self.attention_dropout, self.legacy_layout = dropout, attention_dropout, legacy_layout

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        projected, parts = self._products(view)
        weights = dropout(self._weights(parts), self.attention_dropout, generator)
        hidden: Tensor = (weights.unsqueeze(-1) * projected).sum(0) + self.layers[0].bias  # type: ignore[operator]
        hidden = dropout(self.activation(hidden), self.dropout, generator)
        for layer in self.layers[1:-1]:
            hidden = dropout(self.activation(layer(hidden)), self.dropout, generator)
        return hidden

    def trace(self, view: View, source: Source | None) -> Trace | None:
        found = self._trace(view, source)
        if found is None:
            return None
        logits, _, pull = found
        return logits, lambda gradient: pull(gradient, None)

    def trace_embedding(self, view: View, generator: torch.Generator | None) -> EmbeddedTrace | None:
        return self._trace(view, generator)

    def trace_beside(self, view: View, rows: Tensor, generator: torch.Generator) -> EmbeddedTrace | None:
        return None if self.attention_dropout else self._trace(view, generator, rows)

    def _trace(self, view: View, source: Source | None, rows: Tensor | None = None) -> EmbeddedTrace | None:
        if view.live or self.attention != "jk" or self.legacy_layout:
            return None
        with self._precisely(), without_gradients():
            run = _Pass(self, levels_of(view, self.hops), source, rows)

        def pull(gradient: Tensor, inner: Tensor | None = None) -> list[Tensor]:
            with self._precisely(), without_gradients():
                return run.pull(gradient, inner)

        return run.logits, run.embeddings, pull

    def hop_weights(self, view: View) -> Tensor:
        """w [items, L + 1]: how much each node takes from each hop, without dropout; rows sum to 1."""
        _, parts = self._products(view)
        return self._weights(parts).t()

    def _products(self, view: View) -> tuple[Tensor, Tensor]:
        """X^(l) W_1 [L+1, n, h] and each hop's shares of the scores, [L+1, n, 2]."""
        scorer = self.scorer.weight
        weight: Tensor = self.layers[0].weight  # type: ignore[assignment]
        if view.live:
            hops = view.hops(self.hops)
            ends = [torch.stack((scorer[level % (len(scorer) - 1)], scorer[-1]), 1) for level in range(len(hops))]
            parts = [hop @ pair for hop, pair in zip(hops, ends, strict=True)]
            return torch.stack([hop @ weight for hop in hops]), torch.stack(parts)
        found: tuple[Tensor, Tensor] = _Products.apply(levels_of(view, self.hops), weight, scorer)  # type: ignore[no-untyped-call]
        return found

    def _weights(self, parts: Tensor) -> Tensor:
        """[L + 1, n] from the reference's and the hop's share of each score, [L + 1, n, 2]."""
        reference, own = parts[..., 0], parts[..., 1]
        if self.attention == "jk":
            scores = self._act(reference.sum(0) + own + self.scorer.bias)
        else:
            found = [self._act(reference[0] + own[0] + self.scorer.bias)]
            for level in range(1, self.hops + 1):
                history = (torch.softmax(torch.stack(found), 0) * reference[:level]).sum(0)
                found.append(self._act(history + own[level] + self.scorer.bias))
            scores = torch.stack(found)
        if self.legacy_layout:
            scores = scores.reshape(-1, self.hops + 1).t()
        return torch.softmax(scores, 0)

    def _act(self, scores: Tensor) -> Tensor:
        if self.score_activation == "sigmoid":
            return scores.sigmoid()
        return scores.relu() if self.score_activation == "relu" else nn.functional.leaky_relu(scores, 0.2)

    def _act_back(self, gradient: Tensor, scores: Tensor) -> Tensor:
        """The gradient before ``_act`` from that behind it; ``scores`` are what it made."""
        if self.score_activation == "sigmoid":
            return gradient * scores * (1 - scores)
        return torch.where(scores > 0, gradient, 0.0 if self.score_activation == "relu" else 0.2 * gradient)


class _Pass:
    """One pass and its way back, written out; attention ``jk``. What it means is ``GAMLP.outputs``.

    Args:
        model: Whose parameters are used, on the way back, too.
        hops: X^(l).
        source: Of dropout; None for evaluation.
        rows: [t] only these are classified, with dropout, and embeddings are those of all, without: two passes that
            share their products with X. None for one pass over all.

    Attributes:
        logits: [t, C].
        embeddings: [n, p].
    """

    def __init__(self, model: GAMLP, hops: Hops, source: Source | None, rows: Tensor | None):
        self.model, self.hops, self.rows = model, hops, rows
        layers: list[Dense] = list(model.layers)  # type: ignore[arg-type]
        self.weights, self.biases = zip(*((layer.weight, layer.bias) for layer in layers), strict=True)
        self.inputs: list[Tensor] = []  # of each activation
        self.outputs: list[Tensor] = []
        self.masks: list[Tensor | None] = []
        hidden = self._attend(source)
        count = len(hidden)
        if rows is not None:
            hidden = torch.cat([hidden.index_select(0, rows), hidden])
            count = len(rows)
        for weight, bias in zip(self.weights[1:-1], self.biases[1:-1], strict=True):
            hidden = matmul(self._activate(hidden, count, source), weight).add_(bias)
        values = self._activate(hidden, count, source)
        classified, self.embeddings = (values, values) if rows is None else (values[:count], values[count:])
        self.logits = matmul(classified, self.weights[-1]).add_(self.biases[-1])

    def _attend(self, source: Source | None) -> Tensor:
        """Σ_l w_l X^(l) W_1 + b_1 [n, h]."""
        model = self.model
        self.projected, parts = products(self.hops, self.weights[0], model.scorer.weight)
        reference = sum((part for part, _ in parts[1:]), parts[0][0])
        raw = torch.stack([own for _, own in parts]).add_(reference).add_(model.scorer.bias)
        self.scores = model._act(raw)
        self.shares = torch.softmax(self.scores, 0)
        self.keep: Tensor | None = None
        attention = self.shares
        if source is not None and model.attention_dropout:
            self.keep = drawn_mask(attention, model.attention_dropout, source)
            attention = attention * self.keep
        self.attention = attention.unsqueeze(2)
        hidden = self.projected[0] * self.attention[0]
        for projected, share in zip(self.projected[1:], self.attention[1:], strict=True):
            hidden.addcmul_(projected, share)
        return hidden.add_(self.biases[0])

    def _activate(self, hidden: Tensor, count: int, source: Source | None) -> Tensor:
        """The activation, with dropout on the first ``count`` rows."""
        values = wide(torch.prelu(hidden, self.model.activation.slope))
        mask = None
        if source is not None and self.model.dropout:
            mask = drawn_mask(values[:count], self.model.dropout, source)
            values[:count].mul_(mask)
        self.inputs.append(hidden)
        self.outputs.append(values)
        self.masks.append(mask)
        return values

    def pull(self, gradient: Tensor, inner: Tensor | None) -> list[Tensor]:
        """From the gradients of logits and embeddings to those of ``parameters()``."""
        slope, last = self.model.activation.slope, len(self.weights) - 1
        to_slope = torch.zeros_like(slope)
        count = len(gradient)
        to_layers: list[Tensor] = []  # from the last one to the first, bias before weight
        for depth in range(last, 0, -1):
            values, mask = self.outputs[depth - 1], self.masks[depth - 1]
            to_layers += [gradient.sum(0), matmul((values[:count] if depth == last else values).t(), gradient)]
            gradient = matmul(gradient, self.weights[depth].t())
            if depth == last:
                gradient = self._with_embeddings(gradient, inner)
            if mask is not None:
                gradient[:count].mul_(mask)
            gradient, parts = _prelu_backward(gradient, self.inputs[depth - 1], slope)
            to_slope += parts.sum()
        if self.rows is not None:
            gradient = gradient[count:].index_add_(0, self.rows, gradient[:count])
        to_layers.append(gradient.sum(0))
        to_weight, to_scorer, to_bias = self._attend_back(gradient)
        return [to_scorer, to_bias, to_weight, *to_layers[::-1], to_slope]

    def _with_embeddings(self, gradient: Tensor, inner: Tensor | None) -> Tensor:
        """The gradient of the head's input, of all rows, from those of the classified ones and of the embeddings."""
        if self.rows is None:
            return gradient if inner is None else gradient.add_(inner)
        return torch.cat([gradient, torch.zeros_like(self.embeddings) if inner is None else inner])

    def _attend_back(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of W_1, of the scorer's weight and of its bias from that of ``_attend``."""
        slopes = torch.stack([torch.linalg.vecdot(projected, gradient) for projected in self.projected])
        if self.keep is not None:
            slopes.mul_(self.keep)
        slopes = slopes.sub_((slopes * self.shares).sum(0)).mul_(self.shares)
        slopes = self.model._act_back(slopes, self.scores)
        whole = slopes.sum(0)
        to_weight, to_scorer = products_back(
            self.hops, [gradient * share for share in self.attention], [(whole, own) for own in slopes],
            self.weights[0].shape, self.model.scorer.weight.shape,
        )  # fmt: skip
        return to_weight, to_scorer, whole.sum().reshape(1)


_prelu_backward = torch.ops.aten._prelu_kernel_backward.default


class _Products(torch.autograd.Function):
    """X^(l) W_1 [L+1, n, h] and X^(l) [w_ref,l, w_hop] [L+1, n, 2]; one reference row serves all hops if single."""

    @staticmethod
    def forward(ctx: Any, hops: Hops, weight: Tensor, scorer: Tensor) -> tuple[Tensor, Tensor]:
        ctx.hops, ctx.weight_shape, ctx.scorer_shape, ctx.reduced = hops, weight.shape, scorer.shape, is_reduced(weight)
        projected, parts = products(hops, weight, scorer)
        return torch.stack(projected), torch.stack([torch.stack(pair, 1) for pair in parts])

    @staticmethod
    @once_differentiable
    @as_forwards
    def backward(ctx: Any, projected: Tensor, parts: Tensor) -> tuple[Tensor | None, ...]:
        pairs = [pair.unbind(1) for pair in parts]
        return None, *products_back(ctx.hops, projected.unbind(0), pairs, ctx.weight_shape, ctx.scorer_shape)


def products(hops: Hops, weight: Tensor, scorer: Tensor) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
    """For every hop X^(l) W_1 [n, h], X^(l) w_ref,l [n] and X^(l) w_hop [n], without autograd."""
    references, hidden = len(scorer) - 1, weight.shape[1]
    if isinstance(hops, Levels):
        # One product per hop for all that is multiplied by it.
        right = weight.new_zeros(len(weight), padded(hidden + len(scorer)))
        right[:, :hidden] = weight
        right[:, hidden : hidden + len(scorer)] = scorer.t()
        found = hops.mm(right)
        ends = [(hidden + level % references, hidden + references) for level in range(len(found))]
        parts = [(value[:, first], value[:, second]) for value, (first, second) in zip(found, ends, strict=True)]
        return [value[:, :hidden] for value in found], parts
    pairs = [hop.mm(torch.stack((scorer[level % references], scorer[-1]), 1)) for level, hop in enumerate(hops)]
    return [hop.mm(weight) for hop in hops], [(pair[:, 0], pair[:, 1]) for pair in pairs]


def products_back(
    hops: Hops,
    projected: Sequence[Tensor],
    parts: Sequence[tuple[Tensor, Tensor]],
    weight_shape: torch.Size,
    scorer_shape: torch.Size,
) -> tuple[Tensor, Tensor]:
    """The gradients of W_1 and of the scorer from those of ``products``."""
    references, hidden = scorer_shape[0] - 1, weight_shape[1]
    if isinstance(hops, Levels):
        left = projected[0].new_zeros(len(projected), len(projected[0]), padded(hidden + references + 1))
        for level, (to_product, (to_reference, to_own)) in enumerate(zip(projected, parts, strict=True)):
            left[level, :, :hidden] = to_product
            left[level, :, hidden + level % references] = to_reference
            left[level, :, hidden + references] = to_own
        found = hops.tmm(left.unbind(0))
        return found[:, :hidden].contiguous(), found[:, hidden : hidden + references + 1].t().contiguous()
    to_scorer = projected[0].new_zeros(scorer_shape)
    to_weight: Tensor | None = None
    for level, hop in enumerate(hops):
        inner = hop.tmm(projected[level].contiguous())
        to_weight = inner if to_weight is None else to_weight.add_(inner)
        pair = hop.tmm(torch.stack(parts[level], 1))
        to_scorer[level % references] += pair[:, 0]
        to_scorer[-1] += pair[:, 1]
    assert to_weight is not None
    return to_weight, to_scorer
