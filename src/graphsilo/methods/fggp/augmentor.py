"""The augmented view: links between nodes far apart that look alike, of which each step draws some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphsilo.models.base import Dense
from graphsilo.models.operators import SPARSE_COST
from graphsilo.models.view import GraphTensors, View
from graphsilo.training.synthesis import nearest

_TINY = 1e-6


class Augmentor(nn.Module):
    """h = ReLU(Â (Â X W₁) W₂) on a graph; the likelier two nodes are linked the larger hᵥ · hᵤ.

    Args:
        inputs: d.
        width: Of h.
    """

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.inner, self.outer = Dense(inputs, width, bias=False), Dense(width, width, bias=False)

    def reset(self, draw: torch.Generator) -> None:
        """Draw both weights."""
        for part in (self.inner, self.outer):
            part.initialise(draw)

    def forward(self, view: View) -> Tensor:
        """[rows, width] of a view of the graph."""
        hidden = view.first_layer("gcn", 2) @ self.inner.weight
        found: Tensor = self.outer(hidden)
        return (view.blocks("gcn", 2)[1] @ found).relu()


class Pairs(NamedTuple):
    """Pairs of a view's rows that may be linked.

    Attributes:
        ends: [2, m] int64, each pair once.
        linked: [m] float, 1 for links of the union.
    """

    ends: Tensor
    linked: Tensor


def union_keys(data: GraphTensors, embeddings: Tensor, neighbours: int) -> Tensor:
    """[m] int64, ascending: i · n + j of each link i < j of the graph, or between nodes whose embeddings are near.

    Args:
        data: The graph; in a collection only nodes of one graph are linked.
        embeddings: [n, p].
        neighbours: k: nodes of the largest cosines that each is linked to.
    """
    sizes = graph_sizes(data)
    groups = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(embeddings.device)
    given = torch.from_numpy(np.asarray(data.graph.edges, dtype=np.int64)).to(embeddings.device)
    low, high = torch.cat([given, nearest(embeddings, neighbours, groups)], 1).sort(0).values
    keys: Tensor = torch.unique((low * data.num_nodes + high)[low < high])
    return keys


def link(data: GraphTensors, keys: Tensor) -> GraphTensors:
    """The same nodes under these links, which have no weights."""
    ends = torch.stack([keys // data.num_nodes, keys % data.num_nodes]).cpu().numpy()
    graph = data.graph.with_edges(np.concatenate([ends, ends[::-1]], 1))
    whole = graph if data.collection is None else replace(data.collection, union=graph)
    return GraphTensors(whole, device=data.device, dtype=data.dtype)


def graph_sizes(data: GraphTensors, items: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Nodes of each graph, or of some; of the only one where it is no collection."""
    if data.collection is None:
        return np.array([data.num_nodes])
    sizes = np.diff(data.collection.pointer)
    return sizes if items is None else sizes[items]


def all_pairs(view: View, keys: Tensor) -> Pairs:
    """Every two rows of one graph.

    Args:
        view: All rows, or whole graphs.
        keys: As of ``union_keys``.
    """
    sizes = graph_sizes(view.data, view.items)
    ends = np.cumsum(sizes)
    rows = np.arange(int(ends[-1]) if len(ends) else 0)
    later = np.repeat(ends, sizes) - 1 - rows  # a row's pairs are those with later rows of its graph
    first = np.repeat(rows, later)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    nodes = torch.from_numpy(view.nodes).to(keys.device)
    both = torch.from_numpy(np.stack([first, second])).to(keys.device)
    return Pairs(both, contains(keys, nodes[both[0]] * view.data.num_nodes + nodes[both[1]]).to(torch.float32))


def union_pairs(view: View, keys: Tensor) -> Pairs:
    """The links of the union alone, between rows of a view; arguments as of ``all_pairs``."""
    ends = torch.stack([keys // view.data.num_nodes, keys % view.data.num_nodes])
    if view.items is not None:
        places = torch.full((view.data.num_nodes,), -1, dtype=torch.int64, device=keys.device)
        nodes = torch.from_numpy(view.nodes).to(keys.device)
        places[nodes] = torch.arange(len(nodes), device=keys.device)
        ends = places[ends]
        ends = ends[:, ends[0] >= 0]
    return Pairs(ends, torch.ones(ends.shape[1], device=keys.device))


def contains(keys: Tensor, wanted: Tensor) -> Tensor:
    """[m] whether each of ``wanted`` [m] is among ``keys``, which ascend."""
    if not len(keys):
        return torch.zeros_like(wanted, dtype=torch.bool)
    return keys[torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)] == wanted


def random_pairs(view: View, keys: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """[2, at most count] pairs of different rows of one graph, in either order, that the union does not link."""
    sizes = graph_sizes(view.data, view.items)
    starts = torch.from_numpy(np.repeat(np.cumsum(sizes) - sizes, sizes))
    rows = torch.randint(max(len(starts), 1), (count,), generator=draw)
    offsets = torch.rand(count, generator=draw) * torch.from_numpy(np.repeat(sizes, sizes))[rows]
    ends = torch.stack([rows, starts[rows] + offsets.long()]).to(keys.device)
    low, high = torch.from_numpy(view.nodes).to(keys.device)[ends].sort(0).values
    return ends[:, (low < high) & ~contains(keys, low * view.data.num_nodes + high)]


def scores_of(hidden: Tensor, ends: Tensor) -> Tensor:
    """[m] h · h of pairs [2, m] of the rows of ``hidden``."""
    count = len(hidden)
    if 2 * SPARSE_COST * ends.shape[1] > count * count:
        return (hidden @ hidden.t()).flatten().index_select(0, ends[0] * count + ends[1])
    return (hidden.index_select(0, ends[0]) * hidden.index_select(0, ends[1])).sum(1)


def draw_links(scores: Tensor, linked: Tensor, largest: Tensor, draw: torch.Generator) -> Tensor:
    """[m] 1 with probability π = ½ s / max s + ½ A, else 0, with the gradient of the relaxed draw.

    Args:
        scores: [m] s, at least 0.
        linked: [m] A, 0 or 1.
        largest: max s; 1e-6 is added.
        draw: Source of the draw; of temperature 1.
    """
    likely = 0.5 * scores / (largest + _TINY) + 0.5 * linked
    uniform = torch.rand(len(scores), generator=draw).clamp_(_TINY, 1.0 - _TINY).to(scores)
    found: Tensor = _Draw.apply(likely, uniform)  # type: ignore[no-untyped-call]
    return found


class _Draw(torch.autograd.Function):
    """1 where p + u > 1, with the gradient of p u / (p u + (1 − p)(1 − u)), which is σ(logit p + logit u)."""

    @staticmethod
    def forward(ctx: Any, likely: Tensor, uniform: Tensor) -> Tensor:
        ctx.save_for_backward(likely, uniform)
        return (likely + uniform > 1.0).to(likely.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        likely, uniform = ctx.saved_tensors
        other = 1.0 - uniform
        total = likely * uniform + (1.0 - likely) * other
        return gradient * (uniform * other) / total.square(), None


def link_loss(scores: Tensor, linked: Tensor, others: Tensor) -> Tensor:
    """½ (mean of −log σ(s) over links + mean of −log σ(−s) over pairs that are none).

    Args:
        scores: [m].
        linked: [m] 0 or 1.
        others: [b] further scores of pairs that are not linked.
    """
    apart, count = F.softplus(scores), linked.sum()
    near = (apart - scores) @ linked / count.clamp_min(1.0)
    total = apart @ (1.0 - linked) + F.softplus(others).sum()
    return 0.5 * (near + total / (len(linked) - count + len(others)).clamp_min(1.0))
