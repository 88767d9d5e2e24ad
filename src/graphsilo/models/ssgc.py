"""S²GC (Zhu and Koniusz, ICLR 2021): a linear model on an average of propagated features."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.models.hops import add_weighted, scale, step
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import GraphTensors, Matrix, View


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

        key = ("ssgc", self.hops, self.alpha)
        return feature_plan(view, depth, key, lambda: [view.constant(key, average)])


class MeanHopsMLP(StackedModel):
    """``ssgc_mlp``, the variant of the federated papers: the mean of X, ÂX, …, Â^L X, then an MLP.

    Differs from S²GC in that level 0 is one of L + 1 equal summands and in the hidden layer (64, 2 layers).

    Args:
        inputs: d.
        classes: C.
        hops: L.
        hidden: Width of each hidden layer.
        dropout: Rate after each hidden activation.

    Source: the SSGC backbone of FedGTA and O-pFGL. Deviation: the mean is over hops, as the papers say; one release
    averages over the feature axis instead, which leaves one number per node.
    """

    def __init__(self, inputs: int, classes: int, hops: int = 3, hidden: Sequence[int] = (64,), dropout: float = 0.5):
        super().__init__(inputs, classes, hidden, dropout)
        self.hops = hops

    def plan(self, view: View, depth: int) -> Plan:
        def mean(data: GraphTensors) -> Matrix:
            level: Matrix = data.graph.features
            total = scale(level, 1.0)
            for _ in range(self.hops):
                level = step(data, level)
                total = add_weighted(total, level, 1.0)
            return scale(total, 1.0 / (self.hops + 1))

        key = ("mean hops", self.hops)
        return feature_plan(view, depth, key, lambda: [view.constant(key, mean)])
