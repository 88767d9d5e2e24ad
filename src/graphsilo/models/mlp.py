"""The multi-layer perceptron: H' = H W + b with ReLU and dropout between layers."""

from __future__ import annotations

from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import View


class MLP(StackedModel):
    """Linear layers with ReLU and dropout between; sees no edge.

    Arguments are those of ``StackedModel``; ``hidden=()`` is logistic regression.

    Source: the structure-free baseline of the federated graph papers (hidden 64, 2 layers, dropout 0.5).
    """

    def plan(self, view: View, depth: int) -> Plan:
        return feature_plan(view, depth, ("features",), lambda: [view.features()])
