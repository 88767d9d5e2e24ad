"""S²GC (Zhu and Koniusz, ICLR 2021): a linear model on an average of propagated features."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.models.hops import add_weighted, scale, step
from graphsilo.models.settings import LINEAR_LAYERS, MOST, HiddenSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import GraphTensors, Matrix, View
from graphsilo.settings import setting


class SSGCSettings(HiddenSettings):
    """Settings of ``ssgc``."""

    hops: int = setting(16, "propagation steps K, averaged", ge=1, le=MOST)
    alpha: float = setting(0.05, "share of the unpropagated features", ge=0, le=1)
    layers: int = setting(1, LINEAR_LAYERS, ge=1, le=MOST)


class SSGC(StackedModel):
    """logits = (1/K) Σ_{l=1..K} [(1−α) Â^l X + α X] W + b.

    Args:
        inputs: d.
        classes: C.
        hops: K, at least 1.
        alpha: Share of the unpropagated features; 1 is a linear model on X.
        hidden: Widths of hidden layers between propagation and head; empty in the paper.
        dropout: Rate after each hidden activation; without effect in the linear model.

    Source: Zhu and Koniusz, "Simple Spectral Graph Convolution", ICLR 2021, eq. 8; K = 16, α = 0.05.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hops: int = 16,
        alpha: float = 0.05,
        hidden: Sequence[int] = (),
        dropout: float = 0.5,
    ):
        super().__init__(inputs, classes, hidden, dropout)
        self.hops, self.alpha = hops, alpha

    def plan(self, view: View, depth: int) -> Plan:
        def average(data: GraphTensors) -> Matrix:
            level: Matrix = data.graph.features
            total = scale(level, self.alpha)
            for _ in range(self.hops if self.alpha < 1.0 else 0):
                level = step(data, level)
                total = add_weighted(total, level, (1.0 - self.alpha) / self.hops)
            return total

        key, weights = ("ssgc", self.hops, self.alpha), [self.alpha, *[(1.0 - self.alpha) / self.hops] * self.hops]
        return feature_plan(view, depth, key, lambda: [view.mixed(key, weights, average)])


BACKBONE = ModelEntry(
    name="ssgc",
    summary="S²GC: a linear model on the average of K propagation levels",
    paper="Zhu and Koniusz, Simple Spectral Graph Convolution, ICLR 2021",
    settings=SSGCSettings,
    network=SSGC,
    aliases=("s2gc",),
    edge_weights=True,
    keeps="sum",
)
