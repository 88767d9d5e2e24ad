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
from graphsilo.models.generated import RelinkedView
from graphsilo.models.operators import SparseOperator
from graphsilo.models.settings import MOST, LayeredSettings, ModelEntry
from graphsilo.models.view import View
from graphsilo.settings import setting


class GINSettings(LayeredSettings):
    """Settings of ``gin``."""

    mlp_layers: int = setting(2, "linear layers inside each graph layer", ge=1, le=MOST)
    eps: float = setting(0.0, "weight of the node itself, minus 1")
    train_eps: bool = setting(False, "whether each layer learns its own eps")
    norm: Literal["none", "batch"] = setting("none", "normalisation inside each MLP")
    jumping: bool = setting(False, "whether the graph readout reads every layer instead of the last (graph task only)")


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
        self.dropout, self.eps, self.train_eps = dropout, eps, train_eps
        self.jumping = jumping and readout == "graph"
        layers: list[GINLayer] = []
        for position, (source, target) in enumerate(layer_widths(inputs, hidden, classes, readout)):
            inner = hidden[min(position, len(hidden) - 1)] if hidden else target
            sizes = widths(source, [inner] * (mlp_layers - 1), target)
            layers.append(GINLayer(sizes, normalise=norm == "batch", train_eps=train_eps, eps=eps))
        self.layers = nn.ModuleList(layers)
        self._rows = layers
        self._finish(sum(hidden) if self.jumping else [inputs, *hidden][-1], classes, readout, pooling)

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        if not self.jumping:
            return super().embed(view, generator)
        return view.pool(torch.cat(self._outputs(view, self.depth, generator, True), 1), self.pooling)

    def _outputs(self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool) -> list[Tensor]:
        outputs: list[Tensor] = []
        blocks = self_blocks(view, depth, 0.0 if self.train_eps else self.eps)
        rounds = zip(blocks, view.own_rows("sum", depth), self._rows, strict=False)
        for position, (block, rows, layer) in enumerate(rounds):
            first, *others = layer.linears
            # By linearity the product with the weight comes first: it is narrower, and X may be sparse.
            values = times(outputs[-1], first.weight) if outputs else view.features("sum", depth) @ first.weight
            assert first.bias is not None
            hidden = block @ values + first.bias
            if layer.eps is not None:
                hidden = hidden + layer.eps.value * (values if rows is None else values.index_select(0, rows))
            for index, linear in enumerate(others):
                if layer.batch_norms:
                    hidden = layer.batch_norms[index].apply_to(hidden, generator is not None)
                hidden = times(hidden.relu(), linear.weight, linear.bias)
            if position < depth - 1 or activate_last:
                hidden = relu_dropout(hidden, self.dropout, generator)
            outputs.append(hidden)
        return outputs


def self_blocks(view: View, depth: int, eps: float) -> list[SparseOperator]:
    """A + (1+ε) I per layer, on the rows that the view needs."""
    if isinstance(view, RelinkedView):
        linked = view.blocks("sum", 1)[0].with_loops(1.0 + eps)
        return [linked] * depth  # type: ignore[list-item]
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


BACKBONE = ModelEntry(
    name="gin",
    summary="an MLP on a node plus the sum of its neighbours",
    paper="Xu et al., How Powerful are Graph Neural Networks?, ICLR 2019",
    settings=GINSettings,
    network=GIN,
    graphs=True,
)
