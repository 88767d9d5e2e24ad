"""What FedLoG's encoder and classifiers say of nodes, and the loss of it.

Source: Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.layers import (
    BRANCHES,
    BranchTargets,
    Classifiers,
    log_probabilities,
    negative_log_likelihood,
)
from graphsilo.methods.fedlog.rows import degrees, neighbours
from graphsilo.models.base import Model
from graphsilo.models.generated import GeneratedGraph, pairs
from graphsilo.models.view import GraphTensors

_BLOCK = 1 << 20
"""Numbers in a tensor of a step's classifiers, at most."""
_CHUNK = 2048
"""Nodes classified at once in evaluation, at most."""
_POINTS = 1 << 14
"""Numbers w that a classifier's perceptrons give at once in evaluation, at most: each has a hidden row of width E."""


class Judged(NamedTuple):
    """Targets whose mean loss is a part of a step's.

    Attributes:
        targets: T nodes.
        trust: [T] logit of α.
        labels: [T].
    """

    targets: BranchTargets
    trust: Tensor
    labels: Tensor


class Network:
    """Encoder and classifiers at one client: what they say, and the loss of it.

    Args:
        model: The encoder.
        config: With λ, ``degree_threshold``: a node with λ + 1 neighbours trusts both branches alike.
        classes: C.
        parts: Parameters of the classifiers, by name: changed in place by whoever holds them.
    """

    def __init__(self, model: Model, config: FedLoGConfig, classes: int, parts: Mapping[str, Tensor]):
        self.model, self.classifiers, self.parts = model, Classifiers(config, classes), parts
        self.interaction, self.threshold, self.mixing = config.interaction, config.degree_threshold, config.mixing
        self._alone: GeneratedGraph | None = None

    def prototypes(self, learnable: Tensor, draw: torch.Generator | None = None) -> Tensor:
        """[2, s·C, E] what the classifiers take of [2, s·C, d] learnable nodes, which have no links."""
        nodes = learnable.flatten(0, 1)
        if self._alone is None:
            self._alone = GeneratedGraph(nodes.detach(), pairs(len(nodes), 0))
        embedded = self.model(self._alone.with_features(nodes).full, draw)
        values = embedded if self.interaction == "inert" else self.classifiers.normalise(embedded)
        return values.view(BRANCHES, -1, values.shape[1])

    def trust(self, degree: Tensor) -> Tensor:
        """Logit of α of nodes with so many neighbours."""
        return degree - self.threshold - 1.0

    def loss(self, prototypes: Tensor, judged: Sequence[Judged]) -> Tensor:
        """The sum of the mean losses of some targets each.

        They meet nothing but the prototypes: many of them are taken in blocks, which are made again on the way back.
        """
        parts = [
            (*targets, trust, labels, trust.new_full(trust.shape, 1.0 / len(labels)))
            for targets, trust, labels in judged
        ]
        whole = [torch.cat(fields) for fields in zip(*parts, strict=True)]
        size = max(1, _BLOCK // (BRANCHES * max(self.classifiers.width * self.classifiers.interp, prototypes.shape[1])))
        if len(whole[0]) <= size:
            return self._loss(prototypes, *whole)
        blocks = zip(*(each.split(size) for each in whole), strict=True)
        return torch.stack([checkpoint(self._loss, prototypes, *block, use_reentrant=False) for block in blocks]).sum()

    def _loss(
        self,
        prototypes: Tensor,
        own: Tensor,
        around: Tensor,
        connected: Tensor,
        trust: Tensor,
        labels: Tensor,
        counts: Tensor,
    ) -> Tensor:
        logits = self.classifiers.logits(self.parts, BranchTargets(own, around, connected), prototypes)
        return (negative_log_likelihood(logits, trust, labels, mixing=self.mixing) * counts).sum()

    @torch.no_grad()
    def recognise(self, learnable: Tensor, judged: Judged) -> Tensor:
        """Whether the predicted class of each of some nodes is its own."""
        logits = self.classifiers.logits(self.parts, judged.targets, self.prototypes(learnable))
        return log_probabilities(logits, judged.trust).argmax(1) == judged.labels

    @torch.no_grad()
    def predict(self, data: GraphTensors, learnable: Tensor) -> Tensor:
        """[n, C] log-probabilities of all nodes of a graph."""
        prototypes = self.prototypes(learnable)
        normal = self.classifiers.normalise(self.model(data.full))
        around = neighbours(data).mm(normal)
        degree = degrees(data)
        answers = []
        size = min(_CHUNK, max(1, _POINTS // (self.classifiers.interp or prototypes.shape[1])))
        for start in range(0, data.num_nodes, size):
            part = slice(start, start + size)
            targets = BranchTargets(normal[part], around[part], (degree[part] > 0).to(normal.dtype))
            logits = self.classifiers.logits(self.parts, targets, prototypes)
            answers.append(log_probabilities(logits, self.trust(degree[part])))
        return torch.cat(answers) if answers else normal.new_zeros(0, self.classifiers.classes)
