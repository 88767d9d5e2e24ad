"""HGT (Hu et al., WWW 2020): attention whose weights depend on the types of nodes and the relation between them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor, nn

from graphsilo.data.silos.silo import Schema
from graphsilo.models.backbones.gat import softmax
from graphsilo.models.base import Dense, HeadedModel, Pooling, Readout, draw_uniform
from graphsilo.models.dense import times
from graphsilo.models.dropout import dropout as drop
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.precision import widen
from graphsilo.models.relations import relations_of
from graphsilo.models.settings import MOST, EvenSettings, ModelEntry, check_heads
from graphsilo.models.view import View
from graphsilo.settings import setting


class HGTSettings(EvenSettings):
    """Settings of ``hgt``."""

    layers: int = setting(2, "attention layers; a linear layer stands before and behind them", ge=1, le=MOST)
    heads: int = setting(4, "attention heads of each layer, side by side; they share its width", ge=1)
    attention_dropout: float = setting(0.0, "share of attention weights set to 0 in training", ge=0, lt=1)

    _heads_share = model_validator(mode="after")(check_heads)


class HGTLayer(nn.Module):
    """The weights of one layer.

    Attributes:
        inner, outer: For each type of nodes [h, 3h] to key, query and value, and [h, h] behind the attention.
        key, value: [relations and directions, heads, h / heads, h / heads].
        prior: [relations and directions, heads].
        skip: [types]; its sigmoid is the share of what is new in a node's row.
    """

    def __init__(self, width: int, heads: int, types: int, relations: int):
        super().__init__()
        self.heads, each = heads, width // heads
        self._inner, self._outer = ([Dense(width, m * width) for _ in range(types)] for m in (3, 1))
        self.inner, self.outer = nn.ModuleList(self._inner), nn.ModuleList(self._outer)
        self.key = nn.Parameter(torch.empty(relations, heads, each, each))
        self.value = nn.Parameter(torch.empty(relations, heads, each, each))
        self.prior = nn.Parameter(torch.empty(relations, heads))
        self.skip = nn.Parameter(torch.empty(types))

    def initialise(self, generator: torch.Generator) -> None:
        for weight in (self.key, self.value):
            draw_uniform(weight, 2 * weight.shape[-1], generator)
        nn.init.ones_(self.prior)
        nn.init.ones_(self.skip)


class HGT(HeadedModel):
    """H⁰ = dropout(ReLU(X W_in + b)); logits = H W_out + b; in between, with τ a node's type and r a relation:

    α_vu = softmax over all u of every r of p_r (K_u A_r) · Q_v / √(h / heads), with K, Q, V linear in H by τ;
    H'_v = dropout(σ(s_τ) (GELU(Σ α_vu V_u M_r) W_τ + b_τ) + (1 - σ(s_τ)) H_v).

    r runs over the relations, each once along its rows and once against them. Rows between the same two nodes are one
    link. Features of several types stand side by side, so that W_in is a weight of its own for each type.

    Args:
        inputs: d.
        classes: C.
        schema: Of the federation: names its T types of nodes (1 where it names none) and its R relations.
        hidden: Width h of every layer.
        layers: L, the attention layers; a linear layer stands before and behind them.
        dropout: Rate behind the first linear layer and behind every attention layer.
        heads: Heads of the attention; they share the width.
        attention_dropout: Rate on α.
        readout: ``graph`` pools H before the last linear layer.
        pooling: ``sum`` or ``mean`` over a graph's nodes.

    P = dh + h + L (4T (h² + h) + T + 2R (2h² / heads + heads)) + hC + C.

    Source: Hu et al., "Heterogeneous Graph Transformer", WWW 2020, eqs. 1 to 5, with the learned share of the authors'
    release and PyG in place of eq. 5's plain sum. Deviations: no relative times; ReLU for tanh behind W_in.
    """

    def __init__(
        self,
        inputs: int,
        classes: int,
        schema: Schema,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        heads: int = 4,
        attention_dropout: float = 0.0,
        *,
        readout: Readout = "node",
        pooling: Pooling = "sum",
    ):
        super().__init__()
        self.relations, self.types = relations_of(schema), max(1, len(schema.types))
        self._rows = [HGTLayer(hidden, heads, self.types, len(self.relations)) for _ in range(layers)]
        self.input, self.layers, self.output = Dense(inputs, hidden), nn.ModuleList(self._rows), Dense(hidden, classes)
        self.embedding_dim, self.num_classes = hidden, classes
        self.head, self.message_layers = "output.", layers
        self.dropout, self.attention_dropout = dropout, attention_dropout
        self.readout, self.pooling = readout, pooling

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        depth = len(self._rows)
        assert self.input.bias is not None
        hidden = view.features("relations", depth) @ self.input.weight + self.input.bias
        hidden = relu_dropout(hidden, self.dropout, generator)
        own = view.own_rows("relations", depth)
        for position, (rows, layer) in enumerate(zip(own, self._rows, strict=True)):
            before, after = (self._by_type(view, depth - position - later) for later in (0, 1))
            heads = _linear_by_type(layer._inner, hidden, before).unflatten(1, (3, layer.heads, -1))
            key, query, value = heads.unbind(1)
            if rows is not None:
                hidden, query = hidden.index_select(0, rows), query.index_select(0, rows)
            links = self._links(view, depth, position)
            found = nn.functional.gelu(self._attend(layer, key, query, value, links, generator))
            share = torch.sigmoid(layer.skip).index_select(0, after.kinds).unsqueeze(1)
            hidden = torch.lerp(hidden, _linear_by_type(layer._outer, found, after), share)
            hidden = drop(hidden, self.dropout, generator)
        return view.pool(hidden, self.pooling) if self.readout == "graph" else hidden

    def _attend(
        self, layer: HGTLayer, key: Tensor, query: Tensor, value: Tensor, links: Links, draw: torch.Generator | None
    ) -> Tensor:
        """Σ α V M at each target, [rows, h] from [rows of the layer, heads, h / heads], queries of the targets."""
        keys, values = [], []
        for relation, (used, at) in enumerate(links.sources):
            scale = layer.prior[relation].unsqueeze(1) / math.sqrt(key.shape[-1])
            keys.append((_times_each(key.index_select(0, used), layer.key[relation]) * scale).index_select(0, at))
            values.append(_times_each(value.index_select(0, used), layer.value[relation]).index_select(0, at))
        scores = (torch.cat(keys) * query.index_select(0, links.target)).sum(-1)
        weights = drop(softmax(scores, links.target, len(query)), self.attention_dropout, draw)
        messages = weights.unsqueeze(-1) * torch.cat(values)
        return query.new_zeros(query.shape).index_add(0, links.target, messages).flatten(1)

    def _links(self, view: View, depth: int, layer: int) -> Links:
        def make() -> Links:
            entries = [view.blocks(relation, depth)[layer].entries for relation in self.relations]
            sources = [torch.unique(source, return_inverse=True) for _, source in entries]
            return Links(torch.cat([target for target, _ in entries]), sources)

        place, key = (view.data, ("hgt links",)) if view.is_full else (view, ("hgt links", depth, layer))
        return place.cached(key, make)

    def _by_type(self, view: View, depth: int) -> Types:
        """The rows that so many more layers will need."""

        def make() -> Types:
            rows, types = view.needed_rows("relations", depth), view.data.graph.types
            count = view.data.num_nodes if rows is None else len(rows)
            kinds = np.zeros(count, dtype=np.int64) if types is None else types.of_node.astype(np.int64)
            kinds = kinds if types is None or rows is None else kinds[rows]
            members = [np.flatnonzero(kinds == number) for number in range(self.types)]
            kind, place, *of_each = (
                torch.from_numpy(each).to(view.device)
                for each in (kinds, np.argsort(np.concatenate(members)), *members)
            )
            return Types(kind, of_each, place)

        return view.cached(("by type", depth), make)


class Links(NamedTuple):
    """Links between the rows of a layer and those of the next one.

    Attributes:
        target: [m] rows of the next layer, relation by relation.
        sources: For each relation and direction the rows of the layer that its links come from, each once, and which
            of these each link does.
    """

    target: Tensor
    sources: list[tuple[Tensor, Tensor]]


class Types(NamedTuple):
    """Rows by the types of their nodes.

    Attributes:
        kinds: [rows] numbers of types.
        members: The rows of each type.
        place: [rows] where each row stands among all members.
    """

    kinds: Tensor
    members: list[Tensor]
    place: Tensor


def _linear_by_type(linears: list[Dense], values: Tensor, rows: Types) -> Tensor:
    """Each row times the weight of its type, plus the bias."""
    if len(linears) == 1:
        return times(values, linears[0].weight, linears[0].bias)
    pairs = zip(linears, rows.members, strict=True)
    parts = [times(values.index_select(0, members), one.weight, one.bias) for one, members in pairs]
    return torch.cat(parts).index_select(0, rows.place)


def _times_each(values: Tensor, weights: Tensor) -> Tensor:
    """[rows, heads, p] times [heads, p, q], head by head."""
    return widen(torch.bmm(values.transpose(0, 1), weights)).transpose(0, 1)


BACKBONE = ModelEntry(
    name="hgt",
    summary="attention by the types of nodes and the relation between them",
    paper="Hu et al., Heterogeneous Graph Transformer, WWW 2020",
    settings=HGTSettings,
    network=HGT,
    graphs=True,
    relational=True,
)
