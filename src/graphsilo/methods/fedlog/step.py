"""A step of FedLoG: learnable and synthetic nodes through the encoder, their part of the loss, and its gradient.

Source: Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.layers import (
    BRANCHES,
    BranchTargets,
    Classifiers,
    Interaction,
    log_probabilities,
    negative_log_likelihood,
    normalise,
    normalise_backward,
)
from graphsilo.methods.fedlog.points import PointEncoder, Points
from graphsilo.methods.fedlog.rows import Batch, degrees, neighbours
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors

_BLOCK = 1 << 20
"""Numbers in a tensor of a step's classifiers, at most."""
_CHUNK = 2048
"""Nodes classified at once in evaluation, at most."""
_POINTS = 1 << 14
"""Numbers w that a classifier's perceptrons give at once in evaluation, at most: each has a hidden row of width E."""


class Synthetic(NamedTuple):
    """What a client trains on besides its own nodes, for one round.

    Attributes:
        points: [S, d] customised nodes, or [2 S, d] with their generated neighbours behind them.
        labels: [S].
        paired: Whether there are neighbours.
    """

    points: Tensor
    labels: Tensor
    paired: bool

    def take(self, chosen: Tensor) -> Synthetic:
        """Some of the nodes, with their neighbours."""
        rows = torch.cat([chosen, len(self.labels) + chosen]) if self.paired else chosen
        return Synthetic(self.points[rows], self.labels[chosen], self.paired)


class Judged(NamedTuple):
    """What a step's loss asks of targets.

    Attributes:
        labels: [T].
        trust: [T] logit of α.
        counts: [T] what each counts in the loss.
    """

    labels: Tensor
    trust: Tensor
    counts: Tensor


class EncodedNodes(NamedTuple):
    """The learnable nodes and, behind them, the synthetic ones, encoded.

    Attributes:
        encoded: The encoder's run.
        normal, factor: Its output after the layer norm (without scale and shift), and the factor of each row; without
            a layer norm its output and None.
        alone: How many learnable nodes there are, both branches together.
    """

    encoded: Points
    normal: Tensor
    factor: Tensor | None
    alone: int

    def prototypes(self, interaction: Interaction) -> Tensor:
        """[2, s·C, E] what the classifiers take of the learnable nodes."""
        values = self.encoded.output if interaction == "inert" else self.normal
        return values[: self.alone].view(BRANCHES, -1, values.shape[1])

    def targets(self, synthetic: Synthetic) -> BranchTargets:
        """The synthetic nodes, to be classified."""
        nodes, half = self.normal[self.alone :], len(synthetic.labels)
        around = nodes[half:] if synthetic.paired else torch.zeros_like(nodes)
        return BranchTargets(nodes[:half], around, nodes.new_full((half,), float(synthetic.paired)))

    def gradient(
        self, interaction: Interaction, synthetic: Synthetic | None, prototypes: Tensor, own: Tensor, around: Tensor
    ) -> Tensor:
        """Gradient of the encoder's output, from those of what ``prototypes`` and ``targets`` gave."""
        prototypes = prototypes.flatten(0, 1)
        pairs = [] if synthetic is None else [own, around] if synthetic.paired else [own]
        whole = normalise_backward(torch.cat([prototypes, *pairs]), self.normal, self.factor)
        if interaction == "inert":
            whole[: self.alone] = prototypes  # plain prototypes pass no layer norm
        return whole


class Network:
    """Encoder and classifiers at one client; what they learn, and what they say.

    Args:
        model: The encoder.
        dropout: Its rate.
        config: With λ, ``degree_threshold``: a node with λ + 1 neighbours trusts both branches alike.
        classes: C.
        parts: Parameters of the classifiers, by name: changed in place by whoever holds them.
    """

    def __init__(self, model: Model, dropout: float, config: FedLoGConfig, classes: int, parts: Mapping[str, Tensor]):
        self.model, self.encoder = model, PointEncoder(model, dropout)
        self.classifiers, self.parts = Classifiers(config, classes), parts
        self.interaction, self.threshold, self.mixing = config.interaction, config.degree_threshold, config.mixing

    def encode(self, learnable: Tensor, synthetic: Synthetic | None, draw: torch.Generator | None) -> EncodedNodes:
        """Encoder and layer norm on [2, s·C, d] learnable nodes and, behind them, the synthetic ones."""
        alone = learnable.flatten(0, 1)
        nodes, pairs = len(alone), alone[:0]
        if synthetic is not None and synthetic.paired:
            pairs = synthetic.points
        elif synthetic is not None:
            alone = torch.cat([alone, synthetic.points])
        encoded = self.encoder.forward(alone, pairs, draw)
        return EncodedNodes(encoded, *normalise(encoded.output, self.classifiers.layer_norm), nodes)

    @torch.no_grad()
    def gradients(
        self,
        real: Batch | None,
        labels: Tensor,
        learnable: Tensor,
        synthetic: Synthetic | None,
        draw: torch.Generator | None,
        *,
        norm_weight: float,
    ) -> tuple[float, list[Tensor], Tensor]:
        """The loss of a step, L_cls + β L_norm + L_g, and its gradients.

        Args:
            real: A batch of training nodes.
            labels: Its classes.
            learnable: [2, s·C, d] the learnable nodes.
            synthetic: The synthetic nodes.
            draw: Of dropout.
            norm_weight: β.

        Returns:
            The loss; gradients of the encoder's parameters and of the classifiers', in order; that of the learnable
            nodes.
        """
        count = 0 if real is None else len(labels)
        points = self.encode(learnable, synthetic, draw)
        # Targets: the batch, then the synthetic nodes.
        parts = [] if real is None else [real.targets()]
        parts += [] if synthetic is None else [points.targets(synthetic)]
        targets = BranchTargets(*(torch.cat(fields) for fields in zip(*parts, strict=True)))
        judged = self._judged(real, labels, synthetic)
        prototypes = points.prototypes(self.interaction)
        loss, found, own, around, to_prototypes = self._judge(targets, prototypes, judged)

        to_points = points.gradient(self.interaction, synthetic, to_prototypes, own[count:], around[count:])
        modules, below = self.encoder.backward(points.encoded, to_points, wanted=points.alone)
        if real is not None:
            pairs = zip(modules, real.pull(own[:count], around[:count]), strict=True)
            modules = [mine.add_(more) for mine, more in pairs]
        below = below.view(learnable.shape)
        if norm_weight:
            # L_norm is the mean of the two branches' norms.
            norm = learnable.flatten(1).norm(dim=1).clamp_(min=1e-12)
            loss += 0.5 * norm_weight * float(norm.sum())
            below = torch.addcmul(below, learnable, (0.5 * norm_weight / norm)[:, None, None])
        return loss, [*modules, *(found[name] for name in self.parts)], below

    def _judged(self, real: Batch | None, labels: Tensor, synthetic: Synthetic | None) -> Judged:
        """The batch and the synthetic nodes, the mean over each counting alike."""
        parts = []
        if real is not None:
            parts.append((labels, real.degree - self.threshold - 1.0))
        if synthetic is not None:
            parts.append((synthetic.labels, synthetic.points.new_zeros(len(synthetic.labels))))
        counts = [trust.new_full(trust.shape, 1.0 / len(trust)) for _, trust in parts]
        classes, trusts = zip(*parts, strict=True)
        return Judged(torch.cat(classes), torch.cat(trusts), torch.cat(counts))

    def _judge(
        self, targets: BranchTargets, prototypes: Tensor, judged: Judged
    ) -> tuple[float, dict[str, Tensor], Tensor, Tensor, Tensor]:
        """The loss of targets and its gradients, as ``Classifiers.backward`` gives them.

        Targets meet nothing but the prototypes: they are taken through both passes in blocks that stay in a cache.
        """
        loss, found = 0.0, dict[str, Tensor]()
        to_prototypes = torch.zeros_like(prototypes)
        owns, arounds = [], []
        size = max(1, _BLOCK // (BRANCHES * max(self.classifiers.width * self.classifiers.interp, prototypes.shape[1])))
        for start in range(0, len(judged.labels), size):
            part = slice(start, start + size)
            run = self.classifiers.forward(self.parts, BranchTargets(*(each[part] for each in targets)), prototypes)
            labels, trust, counts = (each[part] for each in judged)
            value, gradient = negative_log_likelihood(run.logits, trust, labels, mixing=self.mixing, counts=counts)
            loss += float(value)
            more, own, around, below = self.classifiers.backward(self.parts, run, gradient)
            for name, each in more.items():
                found[name] = found[name].add_(each) if name in found else each
            to_prototypes += below
            owns.append(own)
            arounds.append(around)
        return loss, found, torch.cat(owns), torch.cat(arounds), to_prototypes

    @torch.no_grad()
    def recognised(self, learnable: Tensor, synthetic: Synthetic) -> Tensor:
        """Whether each synthetic node is told apart from those of other classes, both branches counting alike."""
        points = self.encode(learnable, synthetic, None)
        prototypes = points.prototypes(self.interaction)
        logits = self.classifiers.forward(self.parts, points.targets(synthetic), prototypes).logits
        return log_probabilities(logits, logits.new_zeros(len(synthetic.labels))).argmax(1) == synthetic.labels

    @torch.no_grad()
    def predict(self, data: GraphTensors, learnable: Tensor) -> Tensor:
        """[n, C] log-probabilities of all nodes of a graph."""
        prototypes = self.encode(learnable, None, None).prototypes(self.interaction)
        normal, _ = normalise(self.model(data.full), self.classifiers.layer_norm)
        around = neighbours(data).mm(normal)
        degree = degrees(data)
        answers = []
        size = min(_CHUNK, max(1, _POINTS // (self.classifiers.interp or prototypes.shape[1])))
        for start in range(0, data.num_nodes, size):
            part = slice(start, start + size)
            targets = BranchTargets(normal[part], around[part], (degree[part] > 0).to(normal.dtype))
            logits = self.classifiers.forward(self.parts, targets, prototypes).logits
            answers.append(log_probabilities(logits, degree[part] - self.threshold - 1.0))
        return torch.cat(answers) if answers else normal.new_zeros(0, self.classifiers.classes)
