"""GIN (Xu et al., ICLR 2019): an MLP on a node plus the sum of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphsilo.models.base import Dense, LayeredModel, Pooling, Readout, layer_widths, widths
from graphsilo.models.dense import times
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.operators import SparseOperator
from graphsilo.models.stack import DENSE, Plan, Stack, Term
from graphsilo.models.view import View


class Epsilon(nn.Module):
    """The trainable ε of one layer, a scalar."""

    def __init__(self, start: float):
        super().__init__()
        self.start = start
        self.value = nn.Parameter(torch.empty(()))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.constant_(self.value, self.start)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation with running statistics, which are buffers: a method must say what it does with them."""

    def initialise(self, generator: torch.Generator) -> None:
        self.reset_parameters()

    def apply_to(self, values: Tensor, training: bool) -> Tensor:
        """Statistics of the rows at hand in training (at least two), running ones in evaluation."""
        self.train(training and len(values) > 1)
        result: Tensor = self(values)
        return result


class GINLayer(nn.Module):
    """The linear layers of one MLP, with BatchNorm between them if asked, and ε if trainable."""

    def __init__(self, sizes: list[tuple[int, int]], *, normalise: bool, train_eps: bool, eps: float):
        super().__init__()
        self.linears = [Dense(*pair) for pair in sizes]
        self.batch_norms = [BatchNorm(outputs) for _, outputs in sizes[:-1]] if normalise else []
        self.mlp, self.norms = nn.ModuleList(self.linears), nn.ModuleList(self.batch_norms)
        self.eps = Epsilon(eps) if train_eps else None


class GIN(LayeredModel):
    """H' = MLP((1+ε) H + A H), with ReLU and dropout between such layers.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer; in the ``node`` readout one more GIN layer, whose MLP ends at C, follows.
        dropout: Rate after each GIN layer's activation; inside an MLP there is ReLU alone.
        mlp_layers: Linear layers of each MLP; all but its last have the wider of its input's and output's layer
            width, that is the hidden width.
        eps: ε, or its start.
        train_eps: Whether each layer learns its own ε.
        norm: ``batch`` puts BatchNorm before the ReLU inside each MLP; its statistics then come from the rows that
            the view's items need. ``none`` (default) leaves the model without buffers.
        jumping: Graph readout of every layer side by side instead of the last one alone.
        readout: ``graph`` pools and classifies with a linear head.
        pooling: ``sum`` (the paper's) or ``mean`` over a graph's nodes.

    Source: Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019, eqs. 4.1 and 4.2. Deviations: no
    BatchNorm by default; ``jumping`` reads the hidden layers, not the raw input.
    """

    norm = "sum"

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        mlp_layers: int = 2,
        eps: float = 0.0,
        train_eps: bool = False,
        norm: Literal["none", "batch"] = "none",
        jumping: bool = False,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        self.dropout, self.eps, self.mlp_layers = dropout, eps, mlp_layers
        self.jumping = jumping and readout == "graph"
        layers: list[GINLayer] = []
        for position, (source, target) in enumerate(layer_widths(inputs, hidden, classes, readout)):
            inner = hidden[min(position, len(hidden) - 1)] if hidden else target
            sizes = widths(source, [inner] * (mlp_layers - 1), target)
            layers.append(GINLayer(sizes, normalise=norm == "batch", train_eps=train_eps, eps=eps))
        self.layers = nn.ModuleList(layers)
        self._rows = layers
        self._finish(sum(hidden) if self.jumping else [inputs, *hidden][-1], classes, readout, pooling)
        self._plain = train_eps or norm == "batch"
        rates = [*[0.0] * (mlp_layers - 1), dropout]
        self._stack = Stack([linear.slots for layer in layers for linear in layer.linears], rates * self.depth)

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        if not self.jumping:
            return super().embed(view, generator)
        hidden = self._step_by_step(view, self.depth, generator, True)
        return view.pool(torch.cat(hidden, 1), self.pooling)

    def _layers(self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool) -> Tensor:
        if self._plain:
            return self._step_by_step(view, depth, generator, activate_last)[-1]
        return self._stack(self._plan(view, depth), generator, activate_last=activate_last)

    def _with_input(self, view: View, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        if self._plain:
            *_, hidden, logits = self._step_by_step(view, self.depth, generator, False)
            return logits, hidden
        return self._stack.with_input(self._plan(view, self.depth), generator, (self.depth - 1) * self.mlp_layers)

    def _plan(self, view: View, depth: int) -> Plan:
        def make() -> Plan:
            blocks = self_blocks(view, depth, self.eps)
            first = view.times_features(
                ("gin first", self.eps), lambda view: self_blocks(view, depth, self.eps)[0], "sum", depth
            )
            dense = [DENSE] * (self.mlp_layers - 1)
            return tuple(
                layer
                for position, block in enumerate(blocks)
                for layer in ((Term(block if position else first),), *dense)
            )

        return view.cached(("gin plan", depth, self.eps, self.mlp_layers), make)

    def _step_by_step(
        self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool
    ) -> list[Tensor]:
        """The output of every layer, an autograd node per operation: for ε, BatchNorm and jumping knowledge.

        Layers are applied to the rows that all later ones need; jumping knowledge works on whole graphs, where these
        are the same rows.
        """
        blocks, own = view.blocks("sum", depth), view.own_rows("sum", depth)
        outputs: list[Tensor] = []
        hidden: Tensor | None = None
        for position, layer in enumerate(self._rows[:depth]):
            for index, linear in enumerate(layer.linears):
                if index == 0:
                    # By linearity the product with the weight comes first: it is narrower, and X may be sparse.
                    weight = linear.weight
                    values = view.features("sum", depth) @ weight if hidden is None else times(hidden, weight)
                    eps = self.eps if layer.eps is None else layer.eps.value
                    rows = own[position]
                    kept = values if rows is None else values.index_select(0, rows)
                    assert linear.bias is not None
                    values = blocks[position] @ values + (1.0 + eps) * kept + linear.bias
                else:
                    assert hidden is not None
                    values = times(hidden, linear.weight, linear.bias)
                if index < self.mlp_layers - 1:
                    if layer.batch_norms:
                        values = layer.batch_norms[index].apply_to(values, generator is not None)
                    values = values.relu()
                hidden = values
            assert hidden is not None
            if position < depth - 1 or activate_last:
                hidden = relu_dropout(hidden, self.dropout, generator)
            outputs.append(hidden)
        return outputs


def self_blocks(view: View, depth: int, eps: float) -> list[SparseOperator]:
    """A + (1+ε) I per layer, on the rows that the view needs."""
    if view.of_graphs:
        whole = self_blocks(view.data.full, 1, eps)[0]
        return [view.cached(("gin block", eps), lambda: whole.block(view.nodes))] * depth

    def make() -> list[SparseOperator]:
        made: dict[int, SparseOperator] = {}
        blocks, own = view.blocks("sum", depth), view.own_rows("sum", depth)
        for block, rows in zip(blocks, own, strict=True):
            if id(block) not in made:
                count, width = block.shape
                columns = range(count) if rows is None else rows.cpu().numpy()
                itself = sp.csr_matrix(([1.0 + eps] * count, (range(count), columns)), shape=(count, width))
                joined = sp.csr_matrix(block.matrix + itself, dtype=np.float32)
                made[id(block)] = SparseOperator(joined, device=view.device, dtype=view.data.dtype)
        return [made[id(block)] for block in blocks]

    if view.is_full and depth > 1:
        return self_blocks(view, 1, eps) * depth
    return view.cached(("gin blocks", depth, eps), make)
