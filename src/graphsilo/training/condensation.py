"""A tiny surrogate graph whose class statistics match given ones: class statistics, link predictors, the schedule.

The wide half of a step (propagated features, their class moments, the gradient back to the features) is written out by
hand; autograd follows only the [n', n'] half, from the links to the normalised adjacency.

Source: Xiao et al., "Simple Graph Condensation", ECML-PKDD 2024, without its teacher, as O-pFGL uses it (Yan et al.,
arXiv 2411.11304).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import ConfigError
from graphsilo.models.view import GraphTensors, View
from graphsilo.settings import ABOVE_ZERO, WIDEST, Settings, setting
from graphsilo.training.optimizer import Adam
from graphsilo.training.upstream import gradients_of
from graphsilo.training.work import Begin, Work

Array: TypeAlias = "NDArray[np.float64]"

ROWS = 4096
"""Rows that are turned into a dense float64 block at once."""
PAIR_BYTES = 1 << 34
"""Most bytes that a step of learned links may hold."""
TINY = 1e-12
"""Variances below this have no gradient of their root, which would be infinite at 0."""


# -- class statistics ----------------------------------------------------------------------------------------------


class ClassSums(NamedTuple):
    """What one client adds to the class statistics; every field is additive over clients.

    Attributes:
        counts: [C] N, nodes behind the statistics; 0 for a class below the threshold.
        contributors: [C] 1 where N > 0: its sum is m_c.
        totals: [C, w] N · μ.
        within: [C, w] (N − 1) · s².
        squares: [C, w] N · μ².
    """

    counts: Array
    contributors: Array
    totals: Array
    within: Array
    squares: Array


class ClassStatistics(NamedTuple):
    """Count, mean and variance of every class over all clients.

    Attributes:
        counts: [C] N; 0 where no client had enough nodes of the class, whose rows are then 0.
        mean: [C, w].
        variance: [C, w].
    """

    counts: Tensor
    mean: Tensor
    variance: Tensor


def class_sums(
    levels: Sequence[NDArray[np.float32] | sp.csr_matrix],
    classes: NDArray[np.int64],
    num_classes: int,
    *,
    min_count: int = 2,
) -> ClassSums:
    """The additive statistics of one client.

    Args:
        levels: X, ÂX, …: matrices [n, d], dense or CSR, taken side by side (w = Σ d).
        classes: [n] class of every node that counts, -1 for the others.
        num_classes: C.
        min_count: Classes with fewer nodes contribute zeros.

    Returns:
        float64 sums; mean and deviations in two passes, so that nothing cancels.

    Source: O-pFGL, section "statistics": A = N, B = N μ, C = (N − 1) s², D = N μ².
    """
    width = sum(level.shape[1] for level in levels)
    counts = np.bincount(classes[classes >= 0], minlength=num_classes).astype(np.float64)
    counts[counts < min_count] = 0.0
    totals, within, squares = (np.zeros((num_classes, width)) for _ in range(3))
    for number in np.flatnonzero(counts).tolist():
        rows = np.flatnonzero(classes == number)
        start = 0
        for level in levels:
            place = slice(start, start + level.shape[1])
            start += level.shape[1]
            total = np.sum([block.sum(axis=0) for block in _blocks(level, rows)], axis=0)
            mean = total / counts[number]
            totals[number, place] = total
            squares[number, place] = counts[number] * mean * mean
            for block in _blocks(level, rows):
                block -= mean
                within[number, place] += np.square(block, out=block).sum(axis=0)
    return ClassSums(counts, (counts > 0).astype(np.float64), totals, within, squares)


def _blocks(matrix: NDArray[np.float32] | sp.csr_matrix, rows: NDArray[np.int64]) -> Iterator[Array]:
    """These rows as dense float64 blocks, one at a time."""
    for start in range(0, len(rows), ROWS):
        block = matrix[rows[start : start + ROWS]]
        yield (block.toarray() if sp.issparse(block) else block).astype(np.float64)


def pooled_statistics(
    counts: Tensor,
    contributors: Tensor,
    totals: Tensor,
    within: Tensor,
    squares: Tensor,
    *,
    ddof: Literal["paper", "pooled"] = "paper",
) -> ClassStatistics:
    """Global class statistics from the sums over clients, float64.

    Args:
        counts, contributors, totals, within, squares: The fields of ``ClassSums``, summed.
        ddof: Denominator of the variance: ``paper`` is N − m_c (clients that contributed), ``pooled`` N − 1, which
            gives the variance of the pooled data.

    Source: O-pFGL: within = ΣC, between = ΣD − (ΣB)²/N, variance = (within + between) / (N − m_c).
    """
    present = (counts > 0)[:, None]
    number = counts.clamp_min(1.0)[:, None]
    mean = totals / number
    lost = contributors[:, None] if ddof == "paper" else torch.ones_like(number)
    spread = within + (squares - totals * mean)
    variance = (spread / (number - lost).clamp_min(1.0)).clamp_min(0.0)
    zero = torch.zeros_like(mean)
    return ClassStatistics(counts, torch.where(present, mean, zero), torch.where(present, variance, zero))


def surrogate_labels(
    counts: Tensor, labelled: Tensor, *, per_class: int = 1, percent: float = 0.0
) -> NDArray[np.int64]:
    """Y': the classes of the surrogate nodes, ascending; classes without statistics have none.

    Args:
        counts: [C] N behind the statistics.
        labelled: [C] training nodes of each class.
        per_class: Nodes of every class, where ``percent`` is 0.
        percent: Nodes of a class as a share of its training nodes, rounded up and at least 1.
    """
    sizes = np.full(len(counts), per_class, dtype=np.int64)
    if percent > 0.0:
        # Rounded first: 0.07 · 100 is a little more than 7 in binary.
        share = np.round(labelled.numpy() * (percent / 100.0), 9)
        sizes = np.maximum(1, np.ceil(share)).astype(np.int64)
    return np.repeat(np.arange(len(counts)), np.where(counts.numpy() > 0, sizes, 0))


# -- links ---------------------------------------------------------------------------------------------------------


class SurrogateLinks(ABC):
    """How the surrogate's links come about.

    Attributes:
        parameters: What the link steps of the schedule train; empty where there is nothing to train.
    """

    parameters: list[Tensor]

    @abstractmethod
    def soft(self, features: Tensor) -> Tensor:
        """[n', n'] symmetric weights from 0 to 1, before the threshold; the diagonal does not matter."""


class LearnedLinks(SurrogateLinks):
    """e_ij = σ((g([x_i ‖ x_j]) + g([x_j ‖ x_i])) / 2), g a three-layer MLP over ordered pairs.

    Args:
        width: d.
        hidden: Width of its hidden layers.
        generator: Parameters are drawn from it, as torch's Linear does: uniform to ±1/√(inputs).
        norm: BatchNorm before each ReLU, over all n'² pairs; always in training mode, as the graph would change
            otherwise.
        device: Where it computes.

    Source: SimGC's link predictor. Deviation: the first layer is computed as W₁ x_i + W₂ x_j, which is the same
    without the [n'², 2d] input.
    """

    def __init__(self, width: int, hidden: int, generator: torch.Generator, *, norm: bool = True, device: str = "cpu"):
        def draw(*shape: int, inputs: int) -> Tensor:
            bound = 1.0 / math.sqrt(inputs)
            return ((torch.rand(shape, generator=generator) * 2.0 - 1.0) * bound).to(device)

        self.norm = norm
        self.parameters = [
            draw(width, hidden, inputs=2 * width), draw(width, hidden, inputs=2 * width),
            draw(hidden, inputs=2 * width),
            draw(hidden, hidden, inputs=hidden), draw(hidden, inputs=hidden),
            draw(hidden, 1, inputs=hidden), draw(1, inputs=hidden),
        ]  # fmt: skip
        if norm:
            self.parameters += [part(hidden, device=device) for part in (torch.ones, torch.zeros) * 2]

    def soft(self, features: Tensor) -> Tensor:
        left, right, bias, weight, inner, last, shift, *scales = self.parameters
        count = len(features)
        first = (features @ left + bias)[:, None, :] + (features @ right)[None, :, :]
        hidden = self._activate(first.reshape(count * count, -1), scales[:2])
        hidden = self._activate(torch.addmm(inner, hidden, weight), scales[2:])
        score = torch.addmm(shift, hidden, last).view(count, count)
        return torch.sigmoid(0.5 * (score + score.t()))

    def _activate(self, values: Tensor, scales: Sequence[Tensor]) -> Tensor:
        if self.norm:
            values = F.batch_norm(values, None, None, scales[0], scales[1], training=True)
        return torch.relu(values)


class DirectLinks(SurrogateLinks):
    """e_ij = σ((θ_ij + θ_ji) / 2) with θ learned entry by entry, from N(0, 1)."""

    def __init__(self, count: int, generator: torch.Generator, *, device: str = "cpu"):
        self.parameters = [torch.randn((count, count), generator=generator).to(device)]

    def soft(self, features: Tensor) -> Tensor:
        score = self.parameters[0]
        return torch.sigmoid(0.5 * (score + score.t()))


class CosineLinks(SurrogateLinks):
    """e_ij = max(0, cos(x_i, x_j)): normalised dot products, nothing to learn."""

    def __init__(self) -> None:
        self.parameters = []

    def soft(self, features: Tensor) -> Tensor:
        unit = F.normalize(features, dim=1)
        product = unit @ unit.t()
        return (0.5 * (product + product.t())).clamp(0.0, 1.0)  # BLAS may round the two halves differently


# -- condensation --------------------------------------------------------------------------------------------------


_LINKED = {"links": ("learned", "direct", "cosine")}
_LEARNED = {"links": ("learned",)}


class SyntheticGraphConfig(Settings):
    """Settings of a graph whose features and links are learned in turn."""

    links: Literal["learned", "edgeless", "direct", "cosine"] = setting(
        "edgeless", "A': none at all, from a link predictor, learned entry by entry, or normalised dot products",
        source="ours; paper: learned",
    )  # fmt: skip
    link_threshold: float = setting(
        0.01, "δ: lighter links are dropped; 1 leaves isolated nodes", source="release", ge=0, le=1, when=_LINKED
    )
    cycle: int = setting(50, "updates in a cycle", source="SimGC", ge=1)
    link_steps: int = setting(10, "of these, so many update the links, the others the features", source="SimGC", ge=0)
    lr_features: float = setting(5e-3, "Adam's rate for X'", source="release; large graphs 5e-2", gt=0)
    lr_links: float = setting(
        1e-3,
        "Adam's rate for the links",
        source="release; large graphs 1e-2",
        gt=0,
        when={"links": ("learned", "direct")},
    )
    link_hidden: int = setting(
        128, "width of the link predictor", source="SimGC; ogbn-arxiv 256", ge=1, le=WIDEST, when=_LEARNED
    )
    link_norm: bool = setting(True, "BatchNorm in the link predictor", source="SimGC", when=_LEARNED)


class CondensationConfig(SyntheticGraphConfig):
    """Settings of a condensation, for the configuration of a method that has one."""

    hops: int = setting(2, "h: the statistics are of X, ÂX, …, Â^h X; the published scripts use 1", source="paper: at "
                        "most 2", ge=0, le=10)  # fmt: skip
    link_values: Literal["weights", "indicator"] = setting(
        "weights",
        "what a link of the finished surrogate carries: its weight, or 1",
        source="release; paper: indicator",
        when=_LINKED,
    )
    moment: Literal["std", "variance"] = setting(
        "std", "second moment that is matched; only for classes with several nodes", source="release; paper: variance"
    )
    smoothness: Literal["reward", "printed"] = setting(
        "reward", "sign of the smoothness term: links between similar nodes are rewarded, or as printed in the paper",
        source="SimGC", when={"smooth_weight": ABOVE_ZERO},
    )  # fmt: skip
    feature_weight: float = setting(10.0, "α_f, weight of the statistics", source="release; SimGC", ge=0)
    smooth_weight: float = setting(0.1, "α_s, weight of the smoothness", source="release; SimGC", ge=0, when=_LINKED)
    surrogate_steps: int = setting(3000, "updates of the surrogate", source="release; ogbn-arxiv 2000", ge=0)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A small graph to train on.

    Attributes:
        features: [n', d] float32.
        labels: [n'] int64.
        adjacency: [n', n'] float32 weights: symmetric, zero diagonal, entries 0 or at least δ (or 1).
    """

    features: Tensor
    labels: Tensor
    adjacency: Tensor

    def view(self, num_classes: int, device: str) -> View:
        """All rows, as models see a graph."""
        ends = self.adjacency.triu(1).nonzero().t()
        return view_of(self.features, self.labels, ends, self.adjacency[ends[0], ends[1]], num_classes, device)


def view_of(features: Tensor, labels: Tensor, ends: Tensor, weights: Tensor, num_classes: int, device: str) -> View:
    """All rows of a synthetic graph, as models see a graph.

    Args:
        features: [n', d].
        labels: [n'].
        ends: [2, m] int64 linked nodes, each pair once.
        weights: [m] of these links, above 0.
        num_classes: C.
        device: Where models compute.
    """
    graph = Graph(
        features=features.cpu().numpy(),
        edges=torch.cat([ends, ends.flip(0)], 1).numpy(),
        labels=labels.numpy(),
        num_classes=num_classes,
        name="surrogate",
        edge_weights=weights.repeat(2).numpy(),
    )
    return GraphTensors(graph, device=device).full


class Moments:
    """The distance of a surrogate's class statistics from the targets, and its gradient by hand.

    Args:
        statistics: Targets; only classes that ``labels`` names count.
        labels: [n'] classes of the surrogate nodes.
        settings: ``hops``, ``moment`` and ``feature_weight`` are used.
        device: Where it computes.
        dtype: float32; float64 in tests of gradients.
    """

    def __init__(
        self,
        statistics: ClassStatistics,
        labels: NDArray[np.int64],
        settings: CondensationConfig,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        present, place = np.unique(labels, return_inverse=True)
        sizes = np.bincount(place, minlength=len(present)).astype(np.float64)
        nodes = np.arange(len(labels))
        average = np.zeros((len(present), len(labels)))
        average[place, nodes] = 1.0 / sizes[place]
        spread = np.zeros((len(present), len(labels)))
        spread[place, nodes] = np.where(sizes[place] > 1, 1.0 / np.maximum(sizes[place] - 1.0, 1.0), 0.0)

        def tensor(values: Tensor | Array) -> Tensor:
            return torch.as_tensor(values).to(device, dtype)

        self.hops, self.std = settings.hops, settings.moment == "std"
        self.average, self.spread = tensor(average), tensor(spread)
        self.place = torch.from_numpy(place).to(device)
        chosen = torch.from_numpy(present)
        self.mean = tensor(statistics.mean[chosen])
        variance = statistics.variance[chosen]
        self.target = tensor(variance.sqrt() if self.std else variance)
        share = statistics.counts[chosen].double() / statistics.counts.double().sum()
        width = self.mean.shape[1]
        self.share = tensor(settings.feature_weight * share / width)[:, None]
        # One node has no spread: the second moment of its class plays no part.
        several = sizes > 1
        self.share2 = self.share * tensor(several.astype(np.float64))[:, None] if several.any() else None

    def __call__(self, features: Tensor, propagation: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The loss, its gradient for the features, and that for the propagation matrix.

        Args:
            features: [n', d].
            propagation: Ã' [n', n']; None stands for the identity of an edgeless graph.
        """
        levels = [features]
        for _ in range(self.hops):
            levels.append(levels[-1] if propagation is None else propagation @ levels[-1])
        wide = torch.cat(levels, dim=1)
        centre = self.average @ wide
        gap = centre - self.mean
        scaled = self.share * gap
        loss = (scaled * gap).sum()
        gradient = self.average.t() @ scaled.mul_(2.0)
        if self.share2 is not None:
            deviation = wide - centre[self.place]
            variance = self.spread @ deviation.square()
            moment = variance.clamp_min(TINY).sqrt() if self.std else variance
            gap = moment - self.target
            scaled = self.share2 * gap
            loss = loss + (scaled * gap).sum()
            slope = scaled.mul_(2.0)
            if self.std:
                slope = torch.where(variance > TINY, slope / (2.0 * moment), torch.zeros_like(slope))
            gradient.add_(deviation.mul_(self.spread.t() @ slope), alpha=2.0)
        parts = gradient.split(features.shape[1], dim=1)
        if propagation is None:
            return loss, torch.stack(parts).sum(0), None
        back, below = parts[-1], torch.zeros_like(propagation)
        for level in range(self.hops, 0, -1):
            below.addmm_(back, levels[level - 1].t())
            back = propagation.t() @ back + parts[level - 1]
        return loss, back, below


def smooth_loss(adjacency: Tensor, features: Tensor, sign: Literal["reward", "printed"]) -> Tensor:
    """∓ Σ A'_ij exp(−‖x_i − x_j‖² / 2d) / Σ A'_ij; 0 without links. Minus for ``reward``."""
    square = features.square().sum(dim=1)
    distance = (square[:, None] + square[None, :] - 2.0 * (features @ features.t())).clamp_min(0.0)
    kernel = torch.exp(distance * (-0.5 / features.shape[1]))
    value = (adjacency * kernel).sum() / adjacency.sum().clamp_min(TINY)
    return -value if sign == "reward" else value


def keep_links(soft: Tensor, delta: float) -> Tensor:
    """A': the links of at least δ, with their weight, off the diagonal."""
    kept = soft.detach() >= delta
    kept.fill_diagonal_(False)
    return soft * kept


def symmetric_norm(adjacency: Tensor) -> Tensor:
    """D̃^-1/2 (A' + I) D̃^-1/2 of a dense adjacency."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype, device=adjacency.device)
    root = looped.sum(dim=1).rsqrt()
    return root[:, None] * looped * root[None, :]


def condense(
    statistics: ClassStatistics,
    labels: NDArray[np.int64],
    settings: CondensationConfig,
    generator: torch.Generator,
    *,
    device: str = "cpu",
    begin: Begin | None = None,
) -> tuple[Surrogate, dict[str, float]]:
    """Fit a surrogate graph to class statistics.

    Args:
        statistics: Targets, with w = (hops + 1) · d.
        labels: Y', classes of the surrogate nodes, each with a count above 0.
        settings: How.
        generator: Source of the initial features and links.
        device: Where it computes; the result lies on the CPU.
        begin: Makes the steps a piece of work whose progress is shown, with the loss as its curve; None: not shown.

    Returns:
        The surrogate of the last step, and numbers about it: ``loss`` (of the statistics, α_f included), ``links``
        (undirected) and ``link_weight`` (their mean).

    Raises:
        ConfigError: A step of learned links would take more than ``PAIR_BYTES``.

    Source: SimGC's schedule; O-pFGL, L = α_f Σ_c λ_c (MSE(μ'_c, μ_c) + MSE(m'_c, m_c)) + α_s L_smooth, λ_c the share
    of class c. Cost: a step of ``learned`` links holds [n'², hidden] numbers several times.
    """
    count = len(labels)
    width = statistics.mean.shape[1] // (settings.hops + 1)
    features = torch.randn((count, width), generator=generator).to(device)
    if count == 0:
        return Surrogate(features.cpu(), torch.from_numpy(labels), torch.zeros(0, 0)), {}
    check_pairs(count, settings, "method.nodes_percent or method.nodes_per_class")
    links = make_links(settings, count, width, generator, device)
    moments = Moments(statistics, labels, settings, device)
    by_features = Adam([features], lr=settings.lr_features)
    by_links = Adam(links.parameters, lr=settings.lr_links) if links is not None and links.parameters else None
    tensors = [features, *(links.parameters if links is not None else ())]
    optimizers = [by_features, *([by_links] if by_links is not None else ())]

    def state() -> dict[str, Any]:
        return {"tensors": tensors, "optimizers": [each.state() for each in optimizers]}

    def load_state(saved: Mapping[str, Any]) -> None:
        for mine, tensor in zip(tensors, saved["tensors"], strict=True):
            mine.copy_(tensor)
        for optimizer, kept in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state(kept)

    alone = Work("surrogate", settings.surrogate_steps, state, lambda work: None)
    work = alone if begin is None else begin(settings.surrogate_steps, state, load_state)
    for step in work:
        found: Tensor | None = None
        if step % settings.cycle < settings.link_steps:
            if links is not None and by_links is not None:
                found, _, gradients = _gradients(moments, links, features, settings, links.parameters)
                by_links.step(gradients)
        elif links is None:
            found, slope, _ = moments(features, None)
            by_features.step([slope])
        else:
            found, direct, (through,) = _gradients(moments, links, features, settings, [features])
            by_features.step([direct.add_(through)])
        if found is not None and work.is_noted:
            work.note(loss=float(found))
    with torch.no_grad():
        adjacency = features.new_zeros(count, count)
        if links is not None:
            adjacency = finished_links(links, features, settings)
            if settings.link_values == "indicator":
                adjacency = (adjacency > 0).to(adjacency.dtype)
        loss = moments(features, None if links is None else symmetric_norm(adjacency))[0]
    number = int((adjacency > 0).sum()) // 2
    facts = {
        "loss": float(loss),
        "links": float(number),
        "link_weight": float(adjacency.sum()) / (2 * number) if number else 0.0,
    }
    return Surrogate(features.cpu(), torch.from_numpy(labels), adjacency.cpu()), facts


def check_pairs(nodes: int, settings: SyntheticGraphConfig, fewer: str) -> None:
    """Refuse links over so many synthetic nodes that a step does not fit in memory.

    Args:
        nodes: How many.
        settings: How their links come about.
        fewer: The settings by which there are fewer.

    Raises:
        ConfigError: They do not; the text says what they would take.
    """
    if settings.links == "edgeless" or settings.link_threshold >= 1.0:
        return
    # Kept for the way back: the inputs, the normed and the active values of both hidden layers; some matrices of pairs.
    needed = 4 * nodes**2 * (6 * settings.link_hidden if settings.links == "learned" else 8)
    if needed > PAIR_BYTES:
        others = "edgeless, direct or cosine" if settings.links == "learned" else "edgeless"
        raise ConfigError(
            f"method.links={settings.links} looks at every pair of the {nodes} nodes of a synthetic graph, which takes "
            f"{needed / 1e9:.0f} GB in each step; the papers have some hundreds at most. Lower {fewer}, or set "
            f"method.links to {others}."
        )


def make_links(
    settings: SyntheticGraphConfig, count: int, width: int, generator: torch.Generator, device: str
) -> SurrogateLinks | None:
    """How the links of so many nodes of so many features come about; None where there are none."""
    # A pair needs two nodes; and no sigmoid reaches a threshold of 1.
    if settings.links == "edgeless" or settings.link_threshold >= 1.0 or count < 2:
        return None
    if settings.links == "learned":
        return LearnedLinks(width, settings.link_hidden, generator, norm=settings.link_norm, device=device)
    return DirectLinks(count, generator, device=device) if settings.links == "direct" else CosineLinks()


def finished_links(links: SurrogateLinks, features: Tensor, settings: SyntheticGraphConfig) -> Tensor:
    """A' [n', n'] of these features, equal in both halves bit for bit: one half travels."""
    upper = keep_links(links.soft(features), settings.link_threshold).triu(1)
    return upper + upper.t()


def _gradients(
    moments: Moments, links: SurrogateLinks, features: Tensor, settings: CondensationConfig, wanted: list[Tensor]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The statistics' loss, its gradient for the features with Ã' held fixed, and what flows to ``wanted`` through the
    links."""
    for tensor in wanted:
        tensor.requires_grad_(True)
    try:
        with torch.enable_grad():
            adjacency = keep_links(links.soft(features), settings.link_threshold)
            propagation = symmetric_norm(adjacency)
            with torch.no_grad():
                loss, direct, pull = moments(features.detach(), propagation.detach())
            assert pull is not None
            total = (propagation * pull).sum()
            if settings.smooth_weight:
                total = total + settings.smooth_weight * smooth_loss(adjacency, features, settings.smoothness)
            found = gradients_of(total, wanted) if total.requires_grad else [torch.zeros_like(one) for one in wanted]
    finally:
        for tensor in wanted:
            tensor.requires_grad_(False)
    return loss, direct, found
