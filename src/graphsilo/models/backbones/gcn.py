"""GCN (Kipf and Welling, ICLR 2017): H' = Â H W + b with ReLU and dropout between layers."""

from __future__ import annotations

from graphsilo.models.settings import LayeredSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, Term
from graphsilo.models.view import View


class GCNSettings(LayeredSettings):
    """Settings of ``gcn``."""


class GCN(StackedModel):
    """Any number of graph convolutions, Â = D̃^-1/2 (A+I) D̃^-1/2.

    Arguments are those of ``StackedModel``.

    Source: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017, eq. 2.
    Deviation: no dropout on the input features, as in OpenFGL; the paper has it on every layer's input.
    """

    norm = "gcn"

    def plan(self, view: View, depth: int) -> Plan:
        def make() -> Plan:
            operators = [view.first_layer("gcn", depth), *view.blocks("gcn", depth)[1:]]
            return tuple((Term(operator),) for operator in operators)

        return view.cached(("gcn plan", depth), make)


BACKBONE = ModelEntry(
    name="gcn",
    summary="graph convolutions with the symmetrically normalised adjacency",
    paper="Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
    settings=GCNSettings,
    network=GCN,
    graphs=True,
    edge_weights=True,
)
