"""Graphs that a generator makes for frozen models to answer on: what a server distils without anybody's data.

A generator makes the features of some nodes from noise; each node is linked to those that are most like it. It is
trained, noise included, on a loss of what the models say of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphsilo.data.graph import Graph
from graphsilo.models.base import Dense, Model
from graphsilo.models.dropout import dropout
from graphsilo.models.generated import GeneratedGraph
from graphsilo.models.side_by_side import join_models
from graphsilo.models.view import GraphTensors, View
from graphsilo.training.optimizer import Adam, shorten

WIDTHS = (64, 128, 256)
"""Of the generator's hidden layers."""
_SPREAD = 0.02
_ROWS, _COSINES = 1 << 12, 1 << 26
"""Nodes whose neighbours are looked for at once, and cosines that are computed for it, at most."""


class Synthetic(NamedTuple):
    """A graph that was made.

    Attributes:
        features: [n, d].
        ends: [2, m] int64, its links, both directions of each.
        labels: [n] the classes that it was made for.
    """

    features: Tensor
    ends: Tensor
    labels: Tensor

    def tensors(self, features: Tensor | None = None) -> GraphTensors:
        """For models to run on; with other features than its own, if given."""
        values = (self.features if features is None else features).cpu().numpy()
        graph = Graph(values, self.ends.cpu().numpy(), np.full(len(values), -1, dtype=np.int64), 1, name="generated")
        return GraphTensors(graph, device=self.features.device)

    def live(self, features: Tensor) -> View:
        """The same links under features that need a gradient."""
        return GeneratedGraph(features, link_matrix(self.ends, len(features))).full


class Generator(nn.Module):
    """From noise to features of nodes: linear layers with Tanh between them.

    Args:
        noise: Width of the noise.
        features: d.
        draw: Source of the weights, N(0, 0.02²); biases are 0.
        row_length: Length of every node's features; None: whatever it comes to.
    """

    rate = 0.0
    """Of dropout behind each Tanh."""

    def __init__(self, noise: int, features: int, draw: torch.Generator, row_length: float | None = None):
        super().__init__()
        self.row_length = row_length
        sizes = (noise, *WIDTHS, features)
        self.layers = nn.ModuleList(Dense(*pair) for pair in pairwise(sizes))
        self.reset(draw)

    def reset(self, draw: torch.Generator) -> None:
        """Draw every weight."""
        for name, parameter in self.named_parameters():
            value = torch.zeros(parameter.shape)
            parameter.data = value if name.endswith("bias") else value.normal_(0.0, _SPREAD, generator=draw)

    def forward(self, noise: Tensor, draw: torch.Generator | None = None) -> Tensor:
        """[n, d] of noise [n, noise]; with dropout from ``draw``, if there is one."""
        for layer in self.layers[:-1]:
            noise = dropout(torch.tanh(layer(noise)), self.rate, draw)
        result: Tensor = self.layers[-1](noise)
        return result if self.row_length is None else self.row_length * F.normalize(result, dim=1)


class ConditionalGenerator(Generator):
    """From noise and a class to features of a node: it reads a learned row for the class beside the noise.

    Args:
        noise: Width of the noise.
        classes: C; a class's row has so many entries.
        features: d.
        draw: Source of the weights: Xavier-uniform in layers, N(0, 1) in the rows of classes.
        rate: Of dropout behind each Tanh.
    """

    def __init__(self, noise: int, classes: int, features: int, draw: torch.Generator, rate: float = 0.0):
        super().__init__(noise + classes, features, draw)
        self.classes = nn.Parameter(torch.randn(classes, classes, generator=draw))
        self.rate = rate

    def reset(self, draw: torch.Generator) -> None:
        for layer in self.layers:
            layer.initialise(draw)  # type: ignore[operator]

    def of_classes(self, noise: Tensor, labels: Tensor, draw: torch.Generator | None = None) -> Tensor:
        """[n, d] of noise [n, noise] and classes [n]; with dropout from ``draw``, if there is one."""
        found: Tensor = self(torch.cat([self.classes[labels], noise], 1), draw)
        return found


class Ensemble:
    """Frozen models of any kinds, which answer together; equal ones are run as one.

    Args:
        models: Name in the registry, settings and model of each, in order. They are frozen.
    """

    def __init__(self, models: Sequence[tuple[str, Mapping[str, Any], Model]]):
        groups: dict[str, list[int]] = {}
        for place, (name, settings, _) in enumerate(models):
            groups.setdefault(repr((name, settings)), []).append(place)
        self.parts: list[tuple[list[int], Model]] = []
        for places in groups.values():
            name, settings, _ = models[places[0]]
            same = [models[place][2].requires_grad_(False) for place in places]
            joined = join_models(same, name, settings) if len(same) > 1 else None
            self.parts += (
                zip([[place] for place in places], same, strict=True) if joined is None else [(places, joined)]
            )
        order = [place for places, _ in self.parts for place in places]
        self.order = torch.tensor(sorted(range(len(order)), key=order.__getitem__))

    def __call__(self, view: View) -> Tensor:
        """Logits [m, n, C] of every model, without dropout."""
        found = []
        for places, model in self.parts:
            logits = model(view)
            found.append(logits.view(len(logits), len(places), -1).transpose(0, 1))
        return torch.cat(found).index_select(0, self.order.to(found[0].device))


def nearest(features: Tensor, neighbours: int, groups: Tensor | None = None) -> Tensor:
    """[2, m] links of every node with those whose features have the largest cosines, both directions of each.

    Args:
        features: [n, d].
        neighbours: How many; all others where there are fewer.
        groups: [n] ascending; only nodes of one group are linked. None: all are of one.
    """
    total, unit = len(features), F.normalize(features.detach(), dim=1)
    places = torch.arange(total, device=features.device)
    groups = torch.zeros_like(places) if groups is None else groups
    found = []
    for rows in places.split(max(1, min(_ROWS, _COSINES // max(total, 1)))):
        mine = groups[rows]
        # Of a block's rows the columns of its groups alone.
        first, last = (int(torch.searchsorted(groups, mine[end], right=bool(end))) for end in (0, -1))
        alike = unit[rows] @ unit[first:last].t()
        alike[(groups[first:last] != mine[:, None]) | (places[first:last] == rows[:, None])] = -torch.inf
        cosines, others = alike.topk(min(neighbours, last - first - 1), dim=1)
        there = cosines > -torch.inf
        node, other = rows[:, None].expand_as(others)[there], (others + first)[there]
        found += [node * total + other, other * total + node]
    numbers = torch.cat(found).unique() if found else places
    return torch.stack([numbers // max(total, 1), numbers % max(total, 1)])


def spread_classes(classes: Tensor, count: int) -> Tensor:
    """[count] classes, of each of these [c] as many as of the others but for one, side by side in their order."""
    return classes[torch.arange(count, device=classes.device) * len(classes) // count]


def check_takes_features(model: Model, features: int) -> None:
    """Run a model on two generated nodes.

    Args:
        model: For nodes.
        features: d.

    Raises:
        UnsupportedError: It has no gradient for features.
    """
    device = next(model.parameters()).device
    probe = Synthetic(torch.zeros(2, features), torch.tensor([[0, 1], [1, 0]]), torch.zeros(2))
    model(probe.live(probe.features.to(device)))


def synthesise(
    generator: Generator,
    noise: Tensor,
    labels: Tensor,
    loss: Callable[[View, Tensor], Tensor],
    *,
    steps: int,
    lr: float,
    neighbours: int,
    max_norm: float | None = None,
) -> tuple[Synthetic, float]:
    """Train a generator and its noise; the graph of the step with the lowest loss, and this loss.

    Args:
        generator: Trained in place.
        noise: [n, noise], trained in place.
        labels: [n] classes that the graph is made for.
        loss: Of a view of the graph and the labels; its gradient reaches the features, not the links.
        steps: How many.
        lr: Adam's rate.
        neighbours: Links of each node before the other direction is added; found again in each step.
        max_norm: Length to which the generator's gradient is shortened; None: it is not.
    """
    parameters = [noise, *generator.parameters()]
    optimizer = Adam(parameters, lr=lr, betas=(0.5, 0.999))
    best: Synthetic | None = None
    lowest = float("inf")
    for _ in range(steps):
        with torch.enable_grad():
            features = generator(noise.requires_grad_())
            made = Synthetic(features.detach(), nearest(features, neighbours), labels)
            value = loss(made.live(features), labels)
        gradients = list(torch.autograd.grad(value, parameters))
        if best is None or float(value.detach()) < lowest:
            best, lowest = made, float(value.detach())
        if max_norm is not None:
            shorten(gradients[1:], max_norm)
        optimizer.step(gradients)
    noise.requires_grad_(False)
    assert best is not None
    return best, lowest


def pack(pool: Sequence[Synthetic]) -> list[dict[str, Tensor]]:
    """Graphs for a state."""
    return [graph._asdict() for graph in pool]


def unpack(state: Sequence[Mapping[str, Tensor]]) -> list[Synthetic]:
    """The graphs of ``pack``."""
    return [Synthetic(**graph) for graph in state]


def link_matrix(ends: Tensor, count: int) -> sp.csr_matrix:
    """[n, n] with 1 where a link [2, m] is."""
    rows, columns = ends.cpu().numpy()
    return sp.csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(count, count))
