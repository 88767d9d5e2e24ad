"""A small graph on which random networks have the gradients that they have on a large one, class by class.

The networks are graph convolutions of two layers, Z = Â relu(Â X W + b) V + c. Of the mean cross-entropy of the n_c
items of class c the gradients are

    [Â X, 1]ᵀ R_c  for W and b,   R_c = ((Âᵀ E_c) Vᵀ) ⊙ [Â X W + b > 0],
    [J, 1]ᵀ E_c    for V and c,   J = Â relu(Â X W + b),   E_c = (softmax(Z) − Y) / n_c on items of c, 0 elsewhere.

As they are written out, autograd differentiates their distance once, where it would twice. Those of the first layer are
as wide as the features; a client never forms them, since inner products of its rows say all of their distance.

Source: Jin et al., "Graph Condensation for Graph Neural Networks", ICLR 2022, and "Condensing Graphs via One-Step
Gradient Matching", KDD 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.models.operators import Operator, SparseOperator
from graphsilo.models.view import View
from graphsilo.training.condensation import (
    Surrogate,
    SyntheticGraphConfig,
    finished_links,
    keep_links,
    make_links,
    symmetric_norm,
)
from graphsilo.training.optimizer import Adam
from graphsilo.training.upstream import gradients_of


class Layers(NamedTuple):
    """Numbers of a network of two layers, its weights or their gradients; the last row of a layer is its bias.

    Attributes:
        first: [d + 1, h].
        second: [h + 1, C].
    """

    first: Tensor
    second: Tensor

    def to(self, device: str) -> Layers:
        """The same on a device."""
        return Layers(self.first.to(device), self.second.to(device))


def draw_network(features: int, hidden: int, classes: int, draw: torch.Generator, device: str = "cpu") -> Layers:
    """Weights and biases of a random network, uniform to ±1/√(outputs)."""

    def layer(inputs: int, outputs: int) -> Tensor:
        return torch.rand(inputs + 1, outputs, generator=draw).mul_(2.0).sub_(1.0).mul_(outputs**-0.5).to(device)

    return Layers(layer(features, hidden), layer(hidden, classes))


class ClassItems:
    """Items of one class, and what a network needs to compute them.

    Args:
        number: The class.
        view: Of the items.
    """

    def __init__(self, number: int, view: View):
        self.number = number
        self.inner: Operator = view.first_layer("gcn", 2)
        self.outer: SparseOperator = view.blocks("gcn", 2)[1]

    def factors(self, network: Layers) -> Layers:
        """R_c [rows, h], and the gradient of the second layer."""
        first, second = network
        below = self.inner.mm(first[:-1]).add_(first[-1])
        mixed = self.outer.mm(below.relu())
        error = torch.addmm(second[-1], mixed, second[:-1]).softmax(1)
        error[:, self.number] -= 1.0
        error /= len(error)
        back = (self.outer.tmm(error) @ second[:-1].t()).mul_(below > 0)
        return Layers(back, torch.cat([mixed.t() @ error, error.sum(0, keepdim=True)]))

    def gradients(self, network: Layers) -> Layers:
        """The gradients of both layers."""
        back, second = self.factors(network)
        return Layers(torch.cat([self.inner.tmm(back), back.sum(0, keepdim=True)]), second)


class Target(NamedTuple):
    """Gradients of some classes that others are to come near to.

    Attributes:
        across: From rows [n, d] with a 1 behind each to their products with the first layer's gradients, [c, n, h].
            Has a gradient for the rows.
        second: [c, h + 1, C].
    """

    across: Callable[[Tensor], Tensor]
    second: Tensor

    @classmethod
    def of_items(cls, items: Sequence[ClassItems], network: Layers) -> Target:
        """Those of items, one entry for each class."""
        found = [each.factors(network) for each in items]

        def across(rows: Tensor) -> Tensor:
            turned = rows.t()
            parts = zip(items, found, strict=True)
            return torch.stack([((each.inner @ turned).t() + 1.0) @ back for each, (back, _) in parts])

        return cls(across, torch.stack([second for _, second in found]))

    @classmethod
    def of_gradients(cls, gradients: Layers) -> Target:
        """Known ones, [c, ...] of each layer."""
        first, second = gradients
        return cls(lambda rows: rows @ first[:, :-1] + first[:, -1:], second)


class Distance:
    """How far a small graph's class gradients are from a target: Σ_c (n'_c / max n') ‖g'_c − g_c‖².

    The part that depends on the target alone, the length of its first layer, is left out.

    Args:
        labels: [n'] classes of the small graph's nodes.
        numbers: [c] the classes that count, each of some node.
        classes: C.
    """

    def __init__(self, labels: Tensor, numbers: Tensor, classes: int):
        sizes = torch.bincount(labels, minlength=classes)
        self.one_hot = F.one_hot(labels, classes).float()
        # [c, n', 1]: E_c is this times the error of each node.
        self.shares = (labels == numbers[:, None]).float().div_(sizes[numbers][:, None])[:, :, None]
        self.weights = sizes[numbers] / sizes.max()

    def __call__(self, network: Layers, features: Tensor, mixing: Tensor | Operator, target: Target) -> Tensor:
        """The distance, with a gradient for features and mixing.

        Args:
            network: A random one.
            features: [n', d].
            mixing: Â' [n', n'], symmetric.
            target: Of the classes that count.
        """
        first, second = network
        rows = mixing @ features
        below = rows @ first[:-1] + first[-1]
        mixed = mixing @ torch.relu(below)
        error = torch.addmm(second[-1], mixed, second[:-1]).softmax(1) - self.one_hot
        errors = self.shares * error
        wide = mixing @ errors.transpose(0, 1).flatten(1)
        back = (wide.view(len(rows), -1, error.shape[1]).transpose(0, 1) @ second[:-1].t()) * (below > 0)
        # ‖[U, 1]ᵀ R‖² by whichever of both products is smaller.
        if len(rows) <= rows.shape[1]:
            length = (back * ((rows @ rows.t() + 1.0) @ back)).sum((1, 2))
        else:
            length = (rows.t() @ back).square().sum((1, 2)) + back.sum(1).square().sum(1)
        gap = length - 2.0 * (back * target.across(rows)).sum((1, 2))
        other = torch.cat([mixed.t() @ errors, errors.sum(1, keepdim=True)], 1) - target.second
        return (self.weights * (gap + other.square().sum((1, 2)))).sum()


Draw: TypeAlias = Callable[[torch.Generator], Sequence[ClassItems]]


def match_gradients(
    items: Draw,
    labels: NDArray[np.int64],
    start: Tensor,
    classes: int,
    settings: SyntheticGraphConfig,
    draw: torch.Generator,
    *,
    steps: int,
    hidden: int,
) -> Surrogate:
    """A graph whose class gradients are near those of items, on average over random networks.

    Args:
        items: The items of a step, those of each class that ``labels`` has, ascending.
        labels: [n'] classes of its nodes, ascending.
        start: [n', d] features to begin with, which are changed.
        classes: C.
        settings: How it is trained: with a new network in every step, features and links in turn.
        draw: Source of the networks and of the link predictor.
        steps: How many.
        hidden: h of the networks.

    Returns:
        The graph of the last step, on the CPU.
    """
    count, device = len(labels), str(start.device)
    links = make_links(settings, count, start.shape[1], draw, device)
    known = torch.from_numpy(labels).to(device)
    distance = Distance(known, known.unique(), classes)
    parts = [[start], links.parameters if links is not None else []]
    optimizers = [Adam(parts[0], lr=settings.lr_features), Adam(parts[1], lr=settings.lr_links)]
    alone = SparseOperator(sp.identity(count, dtype=np.float32, format="csr"), device=device, symmetric=True)
    for step in range(steps):
        network = draw_network(start.shape[1], hidden, classes, draw, device)
        with torch.no_grad():
            target = Target.of_items(items(draw), network)
        turn = int(bool(parts[1]) and step % settings.cycle < settings.link_steps)
        for tensor in parts[turn]:
            tensor.requires_grad_(True)
        with torch.enable_grad():
            mixing: Tensor | Operator = (
                alone if links is None else symmetric_norm(keep_links(links.soft(start), settings.link_threshold))
            )
            slopes = gradients_of(distance(network, start, mixing, target), parts[turn])
        for tensor in parts[turn]:
            tensor.requires_grad_(False)
        optimizers[turn].step(slopes)
    with torch.no_grad():
        adjacency = start.new_zeros(count, count) if links is None else finished_links(links, start, settings)
    return Surrogate(start.cpu(), torch.from_numpy(labels), adjacency.cpu())
