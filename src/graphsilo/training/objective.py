"""What local training minimises, by task. Batches and negatives are drawn from the caller's generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Silo
from graphsilo.models.base import Model
from graphsilo.models.dropout import Source
from graphsilo.models.view import GraphTensors, View

Classified: TypeAlias = tuple[View, Tensor, Tensor]
"""Rows to compute, their labels, and the one-hot labels over their number."""
ExtraLoss = Callable[[Model], Tensor]
"""A term that a method adds to the loss of every step."""


class Objective(ABC):
    """The loss of one silo.

    Attributes:
        num_samples: Labelled items it learns from; 0 means that there is nothing to train on.
    """

    num_samples: int

    @abstractmethod
    def batches(self, size: int, generator: torch.Generator) -> Iterator[object]:
        """What one epoch steps through: one full batch for size 0, else shuffled batches of ``size`` items."""

    @abstractmethod
    def loss(self, model: Model, batch: object, generator: torch.Generator | None) -> Tensor:
        """The scalar to minimise on a batch."""

    def gradient_steps(
        self,
        model: Model,
        epochs: int,
        size: int,
        generator: torch.Generator,
        parameters: Sequence[Tensor],
        extra_loss: ExtraLoss | None = None,
    ) -> Iterator[list[Tensor]]:
        """The gradients of each step of so many epochs; the caller changes the parameters in between."""
        for _ in range(epochs):
            for batch in self.batches(size, generator):
                yield self.gradients(model, batch, generator, parameters, extra_loss)

    def gradients(
        self,
        model: Model,
        batch: object,
        generator: torch.Generator,
        parameters: Sequence[Tensor],
        extra_loss: ExtraLoss | None = None,
    ) -> list[Tensor]:
        """The gradient of a batch's loss for every parameter; zeros where a parameter plays no part."""
        with torch.enable_grad():
            loss = self.loss(model, batch, generator)
            if extra_loss is not None:
                loss = loss + extra_loss(model)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(parameters, found, strict=True)
        ]


class ClassifyItems(Objective):
    """Mean cross-entropy over labelled items: nodes of a graph, or graphs of a collection.

    Every node takes part in message passing; only training items have a loss. A full batch computes just the rows
    that the loss depends on, which changes no number.
    """

    def __init__(self, data: GraphTensors, silo: Silo):
        labels = silo.labels[silo.train]
        items = silo.train[labels >= 0]
        self.data = data
        self._items = items
        self._labels = torch.from_numpy(np.ascontiguousarray(silo.labels[items])).to(data.device)
        self.num_samples = len(items)
        self._num_classes = silo.schema.num_classes
        self._full: tuple[View, Tensor, Tensor] | None = None

    def batches(self, size: int, generator: torch.Generator) -> Iterator[object]:
        if self.is_full(size):
            if self._full is None:
                self._full = (self.data.kept_view(self._items), self._labels, self._share(self._labels))
            yield self._full
            return
        order = torch.randperm(self.num_samples, generator=generator)
        for part in order.split(size):
            yield self._batch(self._items[part.numpy()], self._labels[part.to(self._labels.device)])

    def _batch(self, items: NDArray[np.int64], labels: Tensor) -> tuple[View, Tensor, Tensor]:
        """The rows to compute, their labels, and the one-hot labels over their number."""
        return self.data.view(items), labels, self._share(labels)

    def _share(self, labels: Tensor) -> Tensor:
        return F.one_hot(labels, self._num_classes).to(self.data.dtype).div_(max(len(labels), 1))

    def loss(self, model: Model, batch: object, generator: torch.Generator | None) -> Tensor:
        view, labels, _ = cast("Classified", batch)
        return F.cross_entropy(model(view, generator), labels)

    def gradients(
        self,
        model: Model,
        batch: object,
        generator: torch.Generator,
        parameters: Sequence[Tensor],
        extra_loss: ExtraLoss | None = None,
    ) -> list[Tensor]:
        batch = cast("Classified", batch)
        found = None if extra_loss is not None else self._traced(model, batch, generator)
        return super().gradients(model, batch, generator, parameters, extra_loss) if found is None else found

    def gradient_steps(
        self,
        model: Model,
        epochs: int,
        size: int,
        generator: torch.Generator,
        parameters: Sequence[Tensor],
        extra_loss: ExtraLoss | None = None,
    ) -> Iterator[list[Tensor]]:
        if extra_loss is None and self.is_full(size):
            (batch,) = self.batches(size, generator)
            # A full-batch step draws dropout and nothing else, so that the masks of all epochs can be drawn at once.
            masks = model.masks(cast("Classified", batch)[0], epochs, generator)
            if masks is not None:
                for source in masks:
                    yield self._traced(model, cast("Classified", batch), source)  # type: ignore[misc]
                return
        yield from super().gradient_steps(model, epochs, size, generator, parameters, extra_loss)

    def is_full(self, size: int) -> bool:
        """Whether batches of that size are the full batch."""
        return size <= 0 or size >= self.num_samples

    def _traced(self, model: Model, batch: Classified, source: Source) -> list[Tensor] | None:
        """The gradients without autograd; None where the model has no such path."""
        view, labels, share = batch
        traced = model.trace(view, source)
        if traced is None:
            return None
        logits, pull = traced
        # d/dz of the mean cross-entropy: (softmax(z) - onehot) / n.
        return pull(torch.softmax(logits, 1).mul_(1.0 / len(labels)).sub_(share))


class PredictLinks(Objective):
    """Binary cross-entropy of dot products of embeddings: linked pairs against as many random ones.

    Negatives are uniform pairs of nodes, drawn anew for each step (they may hit a link, which is rare on sparse
    graphs; Hamilton et al., NeurIPS 2017, do the same).
    """

    def __init__(self, data: GraphTensors, silo: Silo):
        if silo.links is None:
            raise ValueError("link prediction needs a silo with links")
        self.data = data
        self._pairs = torch.from_numpy(np.ascontiguousarray(silo.links.train)).to(data.device)
        self.num_samples = int(self._pairs.shape[1])

    def batches(self, size: int, generator: torch.Generator) -> Iterator[object]:
        if size <= 0 or size >= self.num_samples:
            yield self._with_negatives(self._pairs, generator)
            return
        order = torch.randperm(self.num_samples, generator=generator).to(self.data.device)
        for part in order.split(size):
            yield self._with_negatives(self._pairs[:, part], generator)

    def _with_negatives(self, positive: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        count = positive.shape[1]
        negative = torch.randint(self.data.num_nodes, (2, count), generator=generator).to(positive.device)
        target = torch.cat([positive.new_ones(count), positive.new_zeros(count)]).to(torch.float32)
        return torch.cat([positive, negative], dim=1), target

    def loss(self, model: Model, batch: object, generator: torch.Generator | None) -> Tensor:
        pairs, target = cast("tuple[Tensor, Tensor]", batch)
        scores = link_scores(model(self.data.full, generator), pairs)
        return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))


def link_scores(embeddings: Tensor, pairs: Tensor | NDArray[np.int64]) -> Tensor:
    """Dot product of the two ends' embeddings.

    Args:
        embeddings: [nodes, p].
        pairs: [2, m] node numbers.

    Returns:
        [m] scores; a link is likelier the larger.
    """
    ends = torch.as_tensor(pairs, device=embeddings.device)
    return (embeddings[ends[0]] * embeddings[ends[1]]).sum(dim=1)


def objective(data: GraphTensors, silo: Silo) -> Objective:
    """The loss that fits the silo's task."""
    return PredictLinks(data, silo) if silo.schema.task == "link" else ClassifyItems(data, silo)
