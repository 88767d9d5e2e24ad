"""APPNP (Gasteiger et al., ICLR 2019): predict with an MLP, then propagate with personalised PageRank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphsilo.models.operators import SPARSE_COST, DenseOperator, Operator, SparseOperator
from graphsilo.models.settings import MOST, HiddenSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import View
from graphsilo.settings import setting


class APPNPSettings(HiddenSettings):
    """Settings of ``appnp``."""

    hops: int = setting(10, "propagation steps K", ge=0, le=MOST)
    alpha: float = setting(0.1, "teleport probability; 1 is the MLP", ge=0, le=1)


class APPNP(StackedModel):
    """Z⁰ = MLP(X); Z ← (1−α) Â Z + α Z⁰, K times; logits = Z.

    The last layer with weights is the last one of the MLP: its input, on the items and before propagation, is the
    embedding.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of each hidden layer of the MLP.
        dropout: Rate after each hidden activation.
        hops: K.
        alpha: Teleport probability α; 1 is the MLP.

    Source: Gasteiger, Bojchevski and Günnemann, "Predict then Propagate", ICLR 2019, eq. 4; hidden 64, α = 0.1,
    K = 10, dropout 0.5. Deviation: no dropout on the input features and on Â.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        hops: int = 10,
        alpha: float = 0.1,
    ):
        super().__init__(inputs, classes, hidden, dropout)
        self.hops, self.alpha = hops, alpha
        self.reach = ("gcn", hops) if alpha < 1.0 and hops else None
        self.message_layers = 0 if self.reach is None else hops

    def plan(self, view: View, depth: int) -> Plan:
        hops = self.hops if self.reach is not None and depth == self.depth else 0
        return feature_plan(view, depth, ("appnp", hops), lambda: [view.features("gcn", hops)])

    def _outputs(
        self, view: View, depth: int, generator: torch.Generator | None, activate_last: bool
    ) -> Sequence[Tensor]:
        *hidden, last = super()._outputs(view, depth, generator, activate_last)
        is_prediction = self.reach is not None and depth == self.depth
        return [*hidden, pagerank(view, self.hops, self.alpha) @ last if is_prediction else last]


def pagerank(view: View, hops: int, alpha: float) -> Operator:
    """Π = (1−α)^K Â^K + α Σ_{k<K} (1−α)^k Â^k, from the rows that K layers need to the view's rows.

    Applied step by step on graphs of any size; multiplied out where that is less work than the K sparse products,
    which bounds it by the number of edges times K.
    """

    def make() -> Operator:
        steps = PageRank(view, hops, alpha)
        if float(steps.shape[0]) * steps.shape[1] > steps.cost:
            return steps
        # Row by row of the identity on the smaller side; the transposed product gives Πᵀ.
        if steps.shape[0] <= steps.shape[1]:
            identity = torch.eye(steps.shape[0], dtype=view.data.dtype, device=view.device)
            return DenseOperator(steps.tmm(identity).t().contiguous())
        return DenseOperator(steps.mm(torch.eye(steps.shape[1], dtype=view.data.dtype, device=view.device)))

    return view.cached(("pagerank", hops, alpha), make)


class PageRank(Operator):
    """Personalised PageRank as K sparse products, forwards and backwards."""

    def __init__(self, view: View, hops: int, alpha: float):
        self.blocks: list[SparseOperator] = view.blocks("gcn", hops)
        self.rows = view.own_rows("gcn", hops)
        self.alpha = alpha
        self.shape = (self.blocks[-1].shape[0], self.blocks[0].shape[1])
        self.cost = sum(SPARSE_COST * block.nnz for block in self.blocks)

    def mm(self, right: Tensor) -> Tensor:
        start, level = right, right
        for block, rows in zip(self.blocks, self.rows, strict=True):
            start = start if rows is None else start.index_select(0, rows)
            level = block.mm(level).mul_(1.0 - self.alpha).add_(start, alpha=self.alpha)
        return level

    def tmm(self, left: Tensor) -> Tensor:
        level, start = left, left.new_zeros(left.shape)
        for block, rows in zip(reversed(self.blocks), reversed(self.rows), strict=True):
            start = start.add(level, alpha=self.alpha)
            level = block.tmm(level).mul_(1.0 - self.alpha)
            if rows is not None:
                start = start.new_zeros(block.shape[1], start.shape[1]).index_add_(0, rows, start)
        return level.add_(start)

    def dense(self) -> Tensor:
        block = self.blocks[0]
        return self.mm(torch.eye(self.shape[1], dtype=block._dtype, device=block._device))


BACKBONE = ModelEntry(
    name="appnp",
    summary="an MLP whose predictions are propagated by personalised PageRank",
    paper="Gasteiger, Bojchevski and Günnemann, Predict then Propagate, ICLR 2019",
    settings=APPNPSettings,
    network=APPNP,
    edge_weights=True,
)
