"""GraphConv (Morris et al., AAAI 2019): H' = A H W_n + H W_s + b. A complete backbone."""

import graphsilo
from graphsilo.models.backbones.sage import SageLayer
from graphsilo.models.registry import register
from graphsilo.models.settings import ModelEntry, ModelSettings
from graphsilo.models.stack import Plan, StackedModel, Term
from graphsilo.models.view import View
from graphsilo.settings import setting


class GraphConvSettings(ModelSettings):
    """Settings of ``graphconv``."""

    hidden: int = setting(64, "width of each hidden layer", ge=1)
    layers: int = setting(2, "graph convolutions", ge=1)
    dropout: float = setting(0.5, "rate after each hidden activation", ge=0, lt=1)


class GraphConv(StackedModel):
    """The sum of the neighbours beside the node itself, each with a weight of its own."""

    layer = SageLayer
    norm = "sum"

    def plan(self, view: View, depth: int) -> Plan:
        def make() -> Plan:
            blocks, rows = view.blocks("sum", depth), view.own_rows("sum", depth)
            first = (Term(view.first_layer("sum", depth)), Term(view.features("sum", depth - 1)))
            return (first, *((Term(blocks[layer]), Term(None, rows[layer])) for layer in range(1, depth)))

        return view.cached(("graphconv plan", depth), make)


BACKBONE = ModelEntry(
    name="graphconv",
    summary="the sum of the neighbours beside the node itself",
    paper="Morris et al., Weisfeiler and Leman Go Neural, AAAI 2019",
    settings=GraphConvSettings,
    network=GraphConv,
)

if __name__ == "__main__":
    register(BACKBONE)
    for model in ("gcn", "graphconv"):
        print(model, graphsilo.run(clients=5, model=model, rounds=20).accuracy())
