"""Nodes that are made for classes with few training nodes: between two of the silo's own, and linked one way.

Links lead from real nodes to made ones alone, so that what a model says of real nodes does not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.data.silos.parts import with_more_nodes
from graphsilo.data.silos.silo import Silo
from graphsilo.data.sources.transforms import stack_features
from graphsilo.models.view import GraphTensors
from graphsilo.training.label_propagation import propagation_matrix
from graphsilo.training.objective import Classified, ClassifyItems, ItemLoss

_ENTRIES = 1 << 24
"""Scores of walks that are in memory at once."""
_ERROR = 1e-4
"""Of a walk's scores (Euclidean length), what is still wrong where it is no longer followed."""


class OversampledItems(ClassifyItems):
    """Cross-entropy over labelled nodes and over nodes that are made anew for every step.

    A class with fewer training nodes than the mean over classes, or than the largest, is brought up to it.

    Args:
        data: The training graph.
        silo: Its items.
        each: The loss of an item; None for cross-entropy.
        share: γ, the share of the anchor in a made node's features.
        heat: τ of the softmax of the model's outputs, by which anchors and partners are drawn.
        restart: Chance of a walk to return to its start.
        reach: How many nodes of a walk can become neighbours.
        warm_up: First steps, in which all classes are brought up to the largest and draws know no outputs.

    Attributes:
        outputs: [num_samples, C] the model's outputs of the last step; None before.
        steps: How many were taken.
    """

    def __init__(
        self, data: GraphTensors, silo: Silo, each: ItemLoss | None = None, *, share: float, heat: float,
        restart: float, reach: int, warm_up: int,
    ):  # fmt: skip
        super().__init__(data, silo, each)
        self.share, self.heat, self.restart, self.reach, self.warm_up = share, heat, restart, reach, warm_up
        self.outputs: Tensor | None = None
        self.steps = 0

    def is_full(self, size: int) -> bool:
        """No two steps have the same rows."""
        return False

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Classified]:
        """Of training nodes and, behind them, of nodes that are made for this epoch."""
        data, items, labels = self.sample(generator)
        order = torch.randperm(len(items), generator=generator) if 0 < size < len(items) else torch.arange(len(items))
        for part in order.split(size or len(items)):
            some = labels[part.to(labels.device)]
            yield Classified(data.view(items[part.numpy()]), some, self._share(some))

    def sample(self, generator: torch.Generator) -> tuple[GraphTensors, NDArray[np.int64], Tensor]:
        """A graph with made nodes, and training nodes and made ones with their classes."""
        made, anchors = self.make(generator)
        items = np.concatenate([self.items, self.data.num_nodes + np.arange(len(anchors))])
        labels = torch.cat([self.labels, self.labels[torch.from_numpy(anchors).to(self.labels.device)]])
        return GraphTensors(made, device=self.data.device), items, labels

    def note(self, items: NDArray[np.int64], logits: Tensor) -> None:
        """Remember what a step's outputs for training nodes were: the next ones are drawn by them.

        Args:
            items: [b] of training nodes, and of nodes that were made.
            logits: [b, C].
        """
        own = np.flatnonzero(items < self.data.num_nodes)
        places = torch.from_numpy(np.searchsorted(self.items, items[own])).to(logits.device)
        if self.outputs is None:
            self.outputs = logits.new_zeros(self.num_samples, self._num_classes)
        self.outputs[places] = logits.detach()[torch.from_numpy(own).to(logits.device)]
        self.steps += 1

    def make(self, generator: torch.Generator) -> tuple[Graph, NDArray[np.int64]]:
        """The graph with made nodes behind its own, and the place among training nodes of each one's anchor."""
        labels = self.labels.cpu()
        chances = None
        if self.outputs is not None and self.steps >= self.warm_up:
            # A model that diverges says nothing; what it sends is refused elsewhere.
            chances = torch.softmax(self.outputs.cpu() / self.heat, 1).nan_to_num(1.0 / self._num_classes)
        anchors, partners = draw_pairs(labels, self._num_classes, chances, generator)
        return self.add(anchors.numpy(), partners.numpy(), generator), anchors.numpy()

    def add(self, anchors: NDArray[np.int64], partners: NDArray[np.int64], generator: torch.Generator) -> Graph:
        """The graph with a node for each pair of places among training nodes."""
        graph, count = self.data.graph, len(anchors)
        first, second = (graph.features[self.items[places]] for places in (anchors, partners))
        features: Any = self.share * first + (1.0 - self.share) * second
        wanted = np.minimum(self.degrees[torch.randint(graph.num_nodes, (count,), generator=generator).numpy()],
                            self.degrees[self.items[anchors]])  # fmt: skip
        nodes, weights = self.walks
        # The first k of an exponential race are k draws without replacement.
        race = torch.empty(count, nodes.shape[1], dtype=torch.float64).exponential_(generator=generator).numpy()
        with np.errstate(divide="ignore"):
            order = (race / weights[anchors]).argsort(axis=1)
        reached = np.minimum(wanted, (weights[anchors] > 0).sum(1))
        taken = np.arange(nodes.shape[1]) < reached[:, None]
        sources = np.take_along_axis(nodes[anchors], order, 1)[taken]
        links = np.stack([sources, graph.num_nodes + np.repeat(np.arange(count), reached)])
        return with_more_nodes(graph, stack_features([graph.features, features.astype(graph.features.dtype)]), links)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """[n] links that enter each node."""
        return np.diff(self.data.graph.adjacency().indptr).astype(np.int64)

    @cached_property
    def walks(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """[num_samples, reach] nodes that personalised PageRank from each training node reaches most, and how much."""
        return walk_from(self.data.graph.adjacency(), self.items, self.restart, self.reach)


def draw_pairs(
    labels: Tensor, num_classes: int, chances: Tensor | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Anchors and partners [m], places among training nodes, of the nodes to make.

    With chances a class is brought up to the mean size of all classes: its anchors are drawn by 1 − their chance of
    their class, the class of an anchor's partner by the anchor's chances of others, the partner by its chance of the
    anchor's class. Without, it is brought up to the largest; anchors are drawn alike, partners by log m / m of the size
    m of their class.

    Args:
        labels: [t] classes of training nodes.
        num_classes: C.
        chances: [t, C] probabilities; None: there are none yet.
        generator: Of the draws.
    """
    counts = torch.bincount(labels, minlength=num_classes)
    goal = int(counts.max()) if chances is None else len(labels) // num_classes
    lacking = torch.where(counts > 0, (goal - counts).clamp_min(0), 0)
    order = labels.argsort(stable=True)  # training nodes, class by class
    ends = counts.cumsum(0)
    classes = torch.arange(num_classes).repeat_interleave(lacking)
    every = torch.ones(len(labels), dtype=torch.float64)
    if chances is None:
        sizes = counts[labels].double()
        anchors = _draw(every, order, ends, counts, classes, generator)
        partners = (
            torch.multinomial(sizes.log() / sizes + 1e-12, len(classes), replacement=True, generator=generator)
            if len(classes)
            else classes
        )
        return anchors, partners
    chances = chances.double()
    doubt = 1.0 - chances.gather(1, labels[:, None]).flatten()
    anchors = _draw(doubt, order, ends, counts, classes, generator)
    other = chances[anchors].scatter(1, classes[:, None], 0.0) * (counts > 0)
    alone = other.sum(1) < 1e-8  # sure of its class, or there is no other
    other[alone] = torch.nn.functional.one_hot(classes[alone], num_classes).double()
    mates = torch.multinomial(other, 1, generator=generator).flatten() if len(classes) else classes
    partners = torch.zeros_like(anchors)
    for one in classes.unique():
        mine = classes == one
        partners[mine] = _draw(chances[:, one], order, ends, counts, mates[mine], generator)
    return anchors, partners


def _draw(
    weights: Tensor, order: Tensor, ends: Tensor, counts: Tensor, classes: Tensor, generator: torch.Generator
) -> Tensor:
    """[m] a training node of each of these classes, by weights [t]."""
    total = torch.cat([weights.new_zeros(1), (weights[order] + 1e-12).cumsum(0)])
    first, last = ends[classes] - counts[classes], ends[classes]
    chance = torch.rand(len(classes), dtype=torch.float64, generator=generator)
    where = torch.searchsorted(total, torch.lerp(total[first], total[last], chance), right=True) - 1
    return order[torch.minimum(torch.maximum(where, first), last - 1)]


def walk_from(
    adjacency: sp.csr_matrix, nodes: NDArray[np.int64], restart: float, reach: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[t, reach] the nodes with the largest α (I − (1−α) S)⁻¹ of each of these [t], and how large it is.

    S = D̃^-1/2 (A + I) D̃^-1/2; some nodes at a time, so that no [n, n] is made. Chebyshev's polynomials in S take a
    fourth of the steps of walks.

    Args:
        adjacency: [n, n] CSR; a link counts in both directions.
        nodes: Where walks begin.
        restart: α.
        reach: How many are kept.
    """
    n, rate = adjacency.shape[0], 1.0 - restart
    both, kept = propagation_matrix(adjacency.maximum(adjacency.T), self_loops=True), min(reach, n)
    onward = (rate * both).astype(np.float32)
    steps = math.ceil(math.acosh(1 / _ERROR) / math.acosh(1 / rate)) if rate > 0 else 0
    found, size = [np.zeros((0, kept), dtype=np.int64)], [np.zeros((0, kept))]
    block = max(1, _ENTRIES // n)
    for start in range(0, len(nodes), block):
        some = nodes[start : start + block]
        begin = np.zeros((n, len(some)), dtype=np.float32)
        begin[some, np.arange(len(some))] = restart
        before, scores, omega = np.zeros_like(begin), begin, 2.0
        for _ in range(steps):
            omega = 1.0 / (1.0 - omega * rate**2 / 4)
            # What is no longer needed takes the new scores: omega · (onward @ scores + begin) + (1 − omega) · before
            before *= 1.0 - omega
            before += omega * (onward @ scores)
            before[some, np.arange(len(some))] += omega * restart
            before, scores = scores, before
        scores = scores.T
        best = np.argpartition(-scores, kept - 1, axis=1)[:, :kept]
        found.append(best.astype(np.int64))
        size.append(np.take_along_axis(scores, best, 1).clip(0.0).astype(np.float64))
    return np.concatenate(found), np.concatenate(size)
