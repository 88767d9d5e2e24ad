"""The federated papers' SSGC: an MLP on the mean of the propagation levels."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.models.hops import add_weighted, scale, step
from graphsilo.models.settings import MOST, HiddenSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import GraphTensors, Matrix, View
from graphsilo.settings import setting


class SSGCMLPSettings(HiddenSettings):
    """Settings of ``ssgc_mlp``."""

    hops: int = setting(3, "propagation steps L; levels 0 to L are averaged", ge=0, le=MOST)


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

        key, weights = ("mean hops", self.hops), [1.0 / (self.hops + 1)] * (self.hops + 1)
        return feature_plan(view, depth, key, lambda: [view.mixed(key, weights, mean)])


BACKBONE = ModelEntry(
    name="ssgc_mlp",
    summary="the federated papers' SSGC: an MLP on the mean of the propagation levels",
    paper="Li et al., FedGTA: Topology-aware Averaging for Federated Graph Learning, VLDB 2024",
    settings=SSGCMLPSettings,
    network=MeanHopsMLP,
    edge_weights=True,
    keeps="sum",
)
