"""SGC (Wu et al., ICML 2019): a linear model on Â^K X."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.models.settings import LINEAR_LAYERS, MOST, HiddenSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, feature_plan
from graphsilo.models.view import View
from graphsilo.settings import setting


class SGCSettings(HiddenSettings):
    """Settings of ``sgc``."""

    hops: int = setting(2, "propagation steps K; 0 ignores the edges", ge=0, le=MOST)
    layers: int = setting(1, LINEAR_LAYERS, ge=1, le=MOST)


class SGC(StackedModel):
    """logits = Â^K X W + b.

    Args:
        inputs: d.
        classes: C.
        hops: K; 0 is logistic regression on X.
        hidden: Widths of hidden layers between propagation and head. Empty in the paper. With one layer (ReLU and
            dropout behind it) the model has an embedding of a chosen width, which prototype methods need.
        dropout: Rate after each hidden activation; without effect in the linear model.

    Source: Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019, eq. 8. OpenFGL's ``sgc`` is another
    model: see ``sgc_stacked``.
    """

    def __init__(self, inputs: int, classes: int, hops: int = 2, hidden: Sequence[int] = (), dropout: float = 0.5):
        super().__init__(inputs, classes, hidden, dropout)
        self.hops = hops

    def plan(self, view: View, depth: int) -> Plan:
        return feature_plan(view, depth, ("sgc", self.hops), lambda: [view.hop(self.hops)])


BACKBONE = ModelEntry(
    name="sgc",
    summary="a linear model on features propagated K times",
    paper="Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
    settings=SGCSettings,
    network=SGC,
    edge_weights=True,
    keeps="hop",
)
