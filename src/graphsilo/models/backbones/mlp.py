"""The multi-layer perceptron: H' = H W + b with ReLU and dropout between layers."""

from __future__ import annotations

from graphsilo.models.settings import MOST, LayeredSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import View
from graphsilo.settings import setting


class MLPSettings(LayeredSettings):
    """Settings of ``mlp``."""

    layers: int = setting(2, "linear layers; for graphs one more follows the pooling", ge=1, le=MOST)


class MLP(StackedModel):
    """Linear layers with ReLU and dropout between; sees no edge.

    Arguments are those of ``StackedModel``; ``hidden=()`` is logistic regression.

    Source: the structure-free baseline of the federated graph papers (hidden 64, 2 layers, dropout 0.5).
    """

    def plan(self, view: View, depth: int) -> Plan:
        return feature_plan(view, depth, ("features",), lambda: [view.features()])


BACKBONE = ModelEntry(
    name="mlp",
    summary="linear layers; sees no edge",
    paper="structure-free baseline",
    settings=MLPSettings,
    network=MLP,
    graphs=True,
    edge_weights=True,
)
