"""O-pFGL's APPNP: personalised PageRank on the features, then an MLP."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.models.hops import add_weighted, scale, step
from graphsilo.models.settings import MOST, HiddenSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import GraphTensors, Matrix, View
from graphsilo.settings import setting


class APPNPFeaturesSettings(HiddenSettings):
    """Settings of ``appnp_features``."""

    hops: int = setting(2, "propagation steps K", ge=0, le=MOST)
    alpha: float = setting(0.1, "teleport probability; 1 is an MLP on the features", ge=0, le=1)


class PropagatedAPPNP(StackedModel):
    """``appnp_features``: personalised PageRank on the raw features first, then an MLP.

    Args:
        inputs: d.
        classes: C.
        hops: K.
        alpha: Teleport probability; 1 is an MLP on X.
        hidden: Width of each hidden layer.
        dropout: Rate after each hidden activation.

    Source: the model called APPNP in O-pFGL's release (K = 2, α = 0.1, hidden 64). Deviation: ReLU and dropout
    between its two linear layers in place of BatchNorm alone, which made it affine in evaluation.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        hops: int = 2,
        alpha: float = 0.1,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
    ):
        super().__init__(inputs, classes, hidden, dropout)
        self.hops, self.alpha = hops, alpha

    def plan(self, view: View, depth: int) -> Plan:
        def propagate(data: GraphTensors) -> Matrix:
            start: Matrix = data.graph.features
            level = start
            for _ in range(self.hops if self.alpha < 1.0 else 0):
                level = add_weighted(scale(step(data, level), 1.0 - self.alpha), start, self.alpha)
            return level

        key = ("appnp features", self.hops, self.alpha)
        weights = [self.alpha * (1.0 - self.alpha) ** level for level in range(self.hops)]
        weights.append((1.0 - self.alpha) ** self.hops)
        return feature_plan(view, depth, key, lambda: [view.mixed(key, weights, propagate)])


BACKBONE = ModelEntry(
    name="appnp_features",
    summary="O-pFGL's APPNP: personalised PageRank on the features, then an MLP",
    paper="Yan et al., Personalized One-shot Federated Graph Learning for Heterogeneous Clients, 2024",
    settings=APPNPFeaturesSettings,
    network=PropagatedAPPNP,
    edge_weights=True,
    keeps="sum",
)
