"""S²GC (Zhu and Koniusz, ICLR 2021): a linear model on an average of propagated features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphsilo.models.mlp import PropagatedModel
from graphsilo.models.operators import Operator
from graphsilo.models.view import GraphTensors, Matrix, View, add_weighted, weighted


class SSGC(PropagatedModel):
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

    def propagated(self, view: View) -> Operator:
        def average(data: GraphTensors) -> Matrix:
            level: Matrix = data.graph.features
            total = weighted(level, self.alpha)
            for _ in range(self.hops if self.alpha < 1.0 else 0):
                level = data.step(level)
                total = add_weighted(total, level, (1.0 - self.alpha) / self.hops)
            return total

        return view.constant(self._key(), average)

    def _key(self) -> tuple[Any, ...]:
        return ("ssgc", self.hops, self.alpha)


class MeanHopsMLP(PropagatedModel):
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

    def propagated(self, view: View) -> Operator:
        def mean(data: GraphTensors) -> Matrix:
            level: Matrix = data.graph.features
            total = weighted(level, 1.0)
            for _ in range(self.hops):
                level = data.step(level)
                total = add_weighted(total, level, 1.0)
            return weighted(total, 1.0 / (self.hops + 1))

        return view.constant(self._key(), mean)

    def _key(self) -> tuple[Any, ...]:
        return ("mean hops", self.hops)
