"""RGCN (Schlichtkrull et al., ESWC 2018): every relation of a graph with several kinds of links has its own weight."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from graphsilo.data.silos.silo import Schema
from graphsilo.models.base import Dense, Layer, Pooling, Readout, Weights, draw_uniform
from graphsilo.models.relations import relations_of
from graphsilo.models.settings import LayeredSettings, ModelEntry
from graphsilo.models.stack import Plan, StackedModel, Term
from graphsilo.models.view import View
from graphsilo.settings import setting


class RGCNSettings(LayeredSettings):
    """Settings of ``rgcn``."""

    bases: int = setting(
        0, "matrices of each layer that all relations' weights are mixed of; 0: each has its own", ge=0
    )


class RGCNLayer(Layer):
    """The weights of one layer: ``own`` (with the bias), and one per relation and direction, or so many bases and
    ``mix`` [relations and directions, bases], the share that each base has in each of these."""

    def __init__(self, inputs: int, outputs: int, relations: int, bases: int):
        super().__init__()
        self.own = Dense(inputs, outputs)
        self._neighbours = [Dense(inputs, outputs, bias=False) for _ in range(bases or relations)]
        self.neighbours = nn.ModuleList(self._neighbours)
        self.mix = nn.Parameter(torch.empty(relations, bases)) if bases else None

    def initialise(self, generator: torch.Generator) -> None:
        if self.mix is not None:
            draw_uniform(self.mix, sum(self.mix.shape), generator)

    @property
    def slots(self) -> Weights:
        return ((self.own, "weight"), *((each, "weight") for each in self._neighbours), (self.own, "bias"))

    def mixed(self) -> list[Tensor]:
        """The weight of the node itself, those of relations and directions, and the bias."""
        assert self.mix is not None
        assert self.own.bias is not None
        bases = torch.stack([each.weight for each in self._neighbours])
        return [self.own.weight, *torch.tensordot(self.mix, bases, 1).unbind(), self.own.bias]


class RGCN(StackedModel):
    """H'_v = H_v W_0 + Σ_r (mean over the neighbours of v by r of H) W_r + b.

    r runs over the relations, each once along its rows and once against them: who sent to v, whom v sent to. Rows
    between the same two nodes are one link. A node without neighbours by r receives the zero vector from them.

    Args:
        inputs: d.
        classes: C.
        schema: Of the federation, whose relations each silo counts in the same order. A silo without a relation leaves
            its weights as it received them, but for the weight decay, and what is averaged counts them like all others.
        hidden: As for every ``StackedModel``.
        dropout: Rate after each hidden activation.
        bases: B: W_r = Σ_b a_rb V_b with B matrices V_b that all r of a layer share (eq. 3); 0 gives each r its own.
        readout: As for every ``StackedModel``; with ``graph`` all layers are hidden.
        pooling: As for every ``StackedModel``.

    P = Σ over layers of (1 + 2R) p q + q, p and q being the layer's widths and R the number of relations; with bases
    (1 + B) p q + q + 2RB.

    Source: Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018, eqs. 2 and 3,
    with c = the number of neighbours. Deviations: a bias, and dropout on hidden activations in place of links.
    """

    norm = "relations"

    def __init__(
        self,
        inputs: int,
        classes: int,
        schema: Schema,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.5,
        bases: int = 0,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        self.relations, self.bases = relations_of(schema), bases
        layer = partial(RGCNLayer, relations=len(self.relations), bases=bases)
        super().__init__(inputs, classes, hidden, dropout, layer=layer, readout=readout, pooling=pooling)

    def plan(self, view: View, depth: int) -> Plan:
        def make() -> Plan:
            rows = view.own_rows("relations", depth)
            blocks = [view.blocks(relation, depth) for relation in self.relations]
            first = [view.features("relations", depth - 1)]
            first += [view.first_layer(relation, depth) for relation in self.relations]
            others = ((Term(None, rows[layer]), *(Term(block[layer]) for block in blocks)) for layer in range(1, depth))
            return (tuple(map(Term, first)), *others)

        return view.cached(("rgcn plan", depth), make)

    def _is_written_out(self, view: View) -> bool:
        return not self.bases and super()._is_written_out(view)

    def _weights(self, count: int) -> list[Tensor]:
        if not self.bases:
            return super()._weights(count)
        return [weight for layer in self.layers for weight in layer.mixed()][:count]  # type: ignore[operator]


BACKBONE = ModelEntry(
    name="rgcn",
    summary="the mean over the links of each relation and direction, each with a weight of its own",
    paper="Schlichtkrull et al., Modeling Relational Data with Graph Convolutional Networks, ESWC 2018",
    settings=RGCNSettings,
    network=RGCN,
    graphs=True,
    relational=True,
    keeps="relations",
)
