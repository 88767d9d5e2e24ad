"""GAT (Veličković et al., ICLR 2018): neighbours weighted by learned attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphsilo.models.base import Dense, LayeredModel, Pooling, Readout, draw_uniform, layer_widths
from graphsilo.models.dense import times
from graphsilo.models.dropout import dropout, keep_scale, relu_dropout
from graphsilo.models.operators import SparseOperator, csr_tensor
from graphsilo.models.precision import as_forwards, exact, is_reduced, wide
from graphsilo.models.view import View


class Edges:
    """The edges (self-loops included) that one layer's softmax runs over, sorted by target.

    Attributes:
        source: [e] row of the layer's input each edge starts from.
        target: [e] row of the layer's output it ends in.
        target_input: [e] the row of the layer's input that this same node has.
        offsets: [rows + 1] where each target's edges begin.
    """

    def __init__(self, block: SparseOperator, own: Tensor | None, device: torch.device, dtype: torch.dtype):
        pattern = block.matrix
        count = pattern.nnz
        ones = np.ones(count, dtype=np.float32)
        numbers = sp.csr_matrix((np.arange(count), pattern.indices, pattern.indptr), shape=pattern.shape)
        by_source = numbers.T.tocsr()
        by_source.sort_indices()
        target = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))

        def index(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values.astype(np.int64)).to(device)

        self.shape = block.shape
        self.source, self.target, self.offsets = index(pattern.indices), index(target), index(pattern.indptr)
        self.target_input = self.target if own is None else own.index_select(0, self.target)
        self.own = own
        self._order = index(by_source.data)
        starts = sp.csr_matrix((ones, by_source.data, by_source.indptr), shape=(pattern.shape[1], count))
        ends = sp.csr_matrix((ones, np.arange(count), pattern.indptr), shape=(pattern.shape[0], count))
        self.by_source = SparseOperator(starts, device=device, dtype=dtype)
        self.by_target = SparseOperator(ends, device=device, dtype=dtype)
        small = max(count, *pattern.shape) < 2**31 - 1
        kind = torch.int32 if small else torch.int64
        self._forward = (self.offsets.to(kind), self.source.to(kind))
        self._backward = (index(by_source.indptr).to(kind), index(by_source.indices).to(kind))
        self._ones = csr_tensor(*self._forward, torch.ones(count, dtype=dtype, device=device), self.shape)

    def weighted(self, weights: Tensor, right: Tensor) -> Tensor:
        """Σ over each target's edges of weight times the source's row: [rows, k] from [e] and [input rows, k]."""
        with exact(right):
            return torch.mm(csr_tensor(*self._forward, weights, self.shape), right)

    def weighted_transposed(self, weights: Tensor, left: Tensor) -> Tensor:
        """Σ over each source's edges of weight times the target's row: [input rows, k] from [e] and [rows, k]."""
        matrix = csr_tensor(*self._backward, weights.index_select(0, self._order), self.shape[::-1])
        with exact(left):
            return torch.mm(matrix, left)

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        """[e] products of the target's row of ``left`` and the source's row of ``right``."""
        with exact(left):
            products: Tensor = torch.sparse.sampled_addmm(self._ones, left, right.t(), beta=0.0)
        return products.values()


class GATLayer(nn.Module):
    """Weight [inputs, heads · width], attention vectors [heads, width] for source and target, bias."""

    def __init__(self, inputs: int, outputs: int, heads: int, *, average: bool):
        super().__init__()
        width = outputs if average else outputs // heads
        self.heads, self.average = heads, average
        self.linear = Dense(inputs, heads * width, bias=False)
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(outputs))

    def initialise(self, generator: torch.Generator) -> None:
        for vector in (self.source, self.target):
            draw_uniform(vector, sum(vector.shape), generator)
        nn.init.zeros_(self.bias)


class GAT(LayeredModel):
    """H'_v = Σ_u α_vu H_u W + b; α = softmax over u in N(v) ∪ {v} of LeakyReLU(a_sᵀ H_u W + a_tᵀ H_v W).

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer, all heads together.
        dropout: Rate after each hidden activation.
        heads: Heads of each hidden layer, side by side; each has width hidden / heads.
        output_heads: Heads of the last layer, averaged; in the ``graph`` readout every layer is hidden.
        attention_dropout: Rate on α.
        negative_slope: Of the LeakyReLU.
        activation: ``relu``, or ``elu`` as in the paper.
        readout: ``graph`` pools the last hidden layer and classifies it with a linear head.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    Edge weights are not used. The weights α are never spread out to messages [edges, width].

    Source: Veličković et al., "Graph Attention Networks", ICLR 2018, eqs. 3 to 6. Defaults as in OpenFGL: one head,
    ReLU in place of ELU, dropout on hidden layers only (the paper: 8 heads, 0.6 on inputs and attention too).
    """

    norm = "loops"

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        heads: int = 1,
        output_heads: int = 1,
        attention_dropout: float = 0.0,
        negative_slope: float = 0.2,
        activation: Literal["relu", "elu"] = "relu",
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        sizes = layer_widths(inputs, hidden, classes, readout)
        last = len(sizes) - 1 if readout == "node" else -1
        self._rows = [
            GATLayer(*pair, output_heads if position == last else heads, average=position == last)
            for position, pair in enumerate(sizes)
        ]
        self.layers = nn.ModuleList(self._rows)
        self._finish([inputs, *hidden][-1], classes, readout, pooling)
        self.dropout, self.attention_dropout = dropout, attention_dropout
        self.negative_slope, self.activation = negative_slope, activation

    def _layers(self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool) -> Tensor:
        return self._step_by_step(view, depth, generator, activate_last)[-1]

    def _with_input(self, view: View, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        *_, hidden, logits = self._step_by_step(view, self.depth, generator, False)
        return logits, hidden

    def _step_by_step(
        self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool
    ) -> list[Tensor]:
        """The output of every layer."""
        structure = _structure(view, depth)
        outputs: list[Tensor] = []
        for position, layer in enumerate(self._rows[:depth]):
            weight = layer.linear.weight
            values = times(outputs[-1], weight) if outputs else view.features("loops", depth) @ weight
            attended: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
                values,
                layer.source,
                layer.target,
                structure[position],
                self.negative_slope,
                self.attention_dropout,
                generator,
            )
            if layer.average and layer.heads > 1:
                attended = attended.view(-1, *layer.source.shape).mean(1)
            hidden = attended + layer.bias
            if position < depth - 1 or activate_last:
                if self.activation == "relu":
                    hidden = relu_dropout(hidden, self.dropout, generator)
                else:
                    hidden = dropout(nn.functional.elu(hidden), self.dropout, generator)
            outputs.append(hidden)
        return outputs


def _structure(view: View, depth: int) -> list[Edges]:
    """One edge list per layer, shared where the layers' rows are."""

    def make() -> list[Edges]:
        blocks, own = view.blocks("loops", depth), view.own_rows("loops", depth)
        made: dict[int, Edges] = {}
        for block, rows in zip(blocks, own, strict=True):
            if id(block) not in made:
                made[id(block)] = Edges(block, rows, view.device, view.data.dtype)
        return [made[id(block)] for block in blocks]

    if view.is_full and depth > 1:
        return _structure(view, 1) * depth
    return view.cached(("attention", depth), make)


class _Attention(torch.autograd.Function):
    """Scores, edge softmax, dropout and weighted sum of one layer; nothing of size [edges, width] is made."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        to_source: Tensor,
        to_target: Tensor,
        edges: Edges,
        slope: float,
        rate: float,
        generator: torch.Generator | None,
    ) -> Tensor:
        heads, width = to_source.shape
        split = values.view(-1, heads, width)
        if heads == 1:
            ends = wide(torch.mm(values, torch.cat((to_source, to_target)).t()))
            from_source, from_target = ends[:, :1], ends[:, 1:]
        else:
            from_source, from_target = (split * to_source).sum(-1), (split * to_target).sum(-1)
        scores = from_source.index_select(0, edges.source)
        scores += from_target.index_select(0, edges.target_input)
        slopes = torch.where(scores > 0, 1.0, slope).to(scores.dtype)
        scores *= slopes
        highest = torch.segment_reduce(scores, "max", offsets=edges.offsets, axis=0, unsafe=True)
        weights = scores.sub_(highest.index_select(0, edges.target)).exp_()
        weights /= edges.by_target.mm(weights).index_select(0, edges.target)
        keep = None if generator is None or rate == 0.0 else keep_scale(weights.shape, rate, generator, weights)
        used = weights if keep is None else weights * keep
        if heads == 1:
            result = edges.weighted(used.view(-1), values)
        else:
            parts = [edges.weighted(used[:, head].contiguous(), split[:, head].contiguous()) for head in range(heads)]
            result = torch.cat(parts, 1)
        ctx.edges, ctx.keep, ctx.reduced = edges, keep, is_reduced(values)
        ctx.save_for_backward(values, to_source, to_target, slopes, weights)
        return result

    @staticmethod
    @once_differentiable
    @as_forwards
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, to_source, to_target, slopes, weights = ctx.saved_tensors
        edges: Edges = ctx.edges
        heads, width = to_source.shape
        gradient = gradient.contiguous()
        used = weights if ctx.keep is None else weights * ctx.keep
        split, incoming = values.view(-1, heads, width), gradient.view(-1, heads, width)
        if heads == 1:
            to_weights = edges.inner_products(gradient, values).view(-1, 1)
            to_values = edges.weighted_transposed(used.view(-1), gradient)
        else:
            pairs = [(incoming[:, head].contiguous(), split[:, head].contiguous()) for head in range(heads)]
            to_weights = torch.stack([edges.inner_products(left, right) for left, right in pairs], 1)
            to_values = torch.cat(
                [edges.weighted_transposed(used[:, head].contiguous(), pairs[head][0]) for head in range(heads)], 1
            )
        if ctx.keep is not None:
            to_weights = to_weights * ctx.keep
        product = weights * to_weights
        means = edges.by_target.mm(product).index_select(0, edges.target)
        to_scores = product.sub_(weights * means).mul_(slopes)
        by_source, by_target = edges.by_source.mm(to_scores), edges.by_target.mm(to_scores)
        if edges.own is not None:
            by_target = by_target.new_zeros(by_source.shape).index_add_(0, edges.own, by_target)
        if heads == 1:
            both = torch.cat((by_source, by_target), 1)
            to_values.addmm_(both, torch.cat((to_source, to_target)))
            source_gradient, target_gradient = wide(torch.mm(both.t(), values)).split(1)
            return to_values, source_gradient, target_gradient, None, None, None, None
        to_values += (by_source.unsqueeze(-1) * to_source + by_target.unsqueeze(-1) * to_target).view_as(values)
        source_gradient = (by_source.unsqueeze(-1) * split).sum(0)
        target_gradient = (by_target.unsqueeze(-1) * split).sum(0)
        return to_values, source_gradient, target_gradient, None, None, None, None
