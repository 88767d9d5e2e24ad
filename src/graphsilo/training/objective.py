"""What local training minimises, by task. Batches and negatives are drawn from the caller's generator.

A method may add a term of its own to the loss of every step: a function of its items, labels, logits and embeddings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.models.base import Model
from graphsilo.models.dropout import Source
from graphsilo.models.view import GraphTensors, View
from graphsilo.types import CLASS_TASKS


class Step(NamedTuple):
    """What a term sees of one step.

    Attributes:
        items: [b] numbers of the items (nodes, or graphs) in the silo: labelled ones, or all of them.
        labels: [b] their classes; -1 for an item that is not trained on, where there are such.
        logits: [b, C]; what a term does with them reaches the model, as with the embeddings.
        embeddings: [b, p], of the same pass and dropout.
        view: The rows that were computed, for further passes over them, e.g. a ``Teacher``'s.
        generator: The step's source of randomness.
    """

    items: NDArray[np.int64]
    labels: Tensor
    logits: Tensor
    embeddings: Tensor
    view: View
    generator: torch.Generator | None


class Slopes(NamedTuple):
    """The gradient of a term that knows it, without autograd's bookkeeping, which on a small graph costs half a step.

    Attributes:
        logits: [b, C]; None for zeros.
        embeddings: [b, p]; None for zeros.
    """

    logits: Tensor | None = None
    embeddings: Tensor | None = None


Term: TypeAlias = Callable[[Step], Tensor | Slopes]
"""What a method adds to the loss of every step: a scalar, whose gradient is autograd's and which may use parameters,
too; or its gradient."""
ItemLoss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From logits [b, C] and classes [b] to the loss of each item, [b]; its gradient is autograd's."""


class Classified(NamedTuple):
    """A batch of labelled items.

    Attributes:
        view: The rows to compute.
        labels: [b] their classes.
        share: [b, C] one-hot labels over b.
        places: [b] which of the objective's items these are; None for all of them.
        rows: [b] which rows of the view they are; None where it has no others.
    """

    view: View
    labels: Tensor
    share: Tensor
    places: Tensor | None = None
    rows: Tensor | None = None


class Objective(ABC):
    """The loss of one silo.

    Attributes:
        num_samples: Labelled items it learns from; 0 means that there is nothing to train on.
    """

    num_samples: int

    @abstractmethod
    def batches(self, size: int, generator: torch.Generator) -> Iterator[Any]:
        """What one epoch steps through: one full batch for size 0, else shuffled batches of ``size`` items."""

    @abstractmethod
    def loss(self, model: Model, batch: Any, generator: torch.Generator | None) -> Tensor:
        """The scalar to minimise on a batch."""

    def is_full(self, size: int) -> bool:
        """Whether with batches of that size all steps compute the same rows."""
        return True

    def gradient_steps(
        self,
        model: Model,
        epochs: int,
        size: int,
        generator: torch.Generator,
        parameters: Sequence[Tensor],
        term: Term | None = None,
        node_weights: Tensor | None = None,
    ) -> Iterator[tuple[list[Tensor], Any]]:
        """The gradients of each step of so many epochs, and its batch; the caller changes parameters in between."""
        alone = term is None and node_weights is None
        sources = self.sources(model, epochs, size, generator) if alone else repeat(generator, epochs)
        for source in sources:
            for batch in self.batches(size, generator):
                yield self.gradients(model, batch, source, parameters, term, node_weights), batch

    def sources(self, model: Model, epochs: int, size: int, generator: torch.Generator) -> Iterable[Source]:
        """Where the steps of each epoch draw dropout from."""
        return repeat(generator, epochs)

    def gradients(
        self,
        model: Model,
        batch: Any,
        source: Source | None,
        parameters: Sequence[Tensor],
        term: Term | None = None,
        node_weights: Tensor | None = None,
    ) -> list[Tensor]:
        """The gradient of a batch's loss for every parameter; zeros where a parameter plays no part.

        Args:
            model: What is trained.
            batch: One of ``batches``.
            source: Of dropout; None for evaluation mode.
            parameters: The model's, in its order.
            term: Added to the loss, on labelled items alone.
            node_weights: [num_samples] the loss of an item counts so many times in the mean, 1 where None.

        Raises:
            UnsupportedError: A term or weights are given, and the task has no labelled items.
        """
        if term is not None or node_weights is not None:
            raise UnsupportedError("terms and weights of labelled items need the task 'node' or 'graph'.")
        assert source is None or isinstance(source, torch.Generator), "masks are drawn ahead for traces alone"
        with torch.enable_grad():
            loss = self.loss(model, batch, source)
        from graphsilo.training.upstream import gradients_of

        return gradients_of(loss, parameters)


class ClassifyItems(Objective):
    """Mean cross-entropy, or another loss, over labelled items: nodes of a graph, or graphs of a collection.

    Every node takes part in message passing; only training items have a loss. A full batch computes just the rows
    that the loss depends on, which changes no number.

    Args:
        data: The training graph.
        silo: Its items.
        each: The loss of an item; None for cross-entropy.
        all_items: Every step computes all items and shows them to the term; the loss itself is of as many as ever.
        fan_out: Every step draws so many new neighbours per node, see ``SampledView``; () takes all.
        unless: The setting with which steps do not compute all items, for the message.

    Raises:
        ConfigError: Neighbours are to be sampled where every step computes all items.

    Attributes:
        items: [num_samples] their numbers in the silo.
        labels: [num_samples] their classes.
    """

    def __init__(
        self, data: GraphTensors, silo: Silo, each: ItemLoss | None = None, *, all_items: bool = False,
        fan_out: Sequence[int] = (), unless: str = "other settings",
    ):  # fmt: skip
        if all_items and fan_out:
            raise ConfigError(
                f"method.fan_out samples neighbours of a step's training nodes, and with these settings every step "
                f"computes all nodes. Use fan_out=0, or {unless}."
            )
        labels = silo.labels[silo.train]
        items = silo.train[labels >= 0]
        self.data = data
        self.items = items
        self.labels = torch.from_numpy(np.ascontiguousarray(self._learned(silo)[items])).to(data.device)
        self.num_samples = len(items)
        self.each, self.all_items, self.fan_out = each, all_items, tuple(fan_out)
        self._num_classes = silo.schema.num_classes
        self._full: Classified | None = None

    def _learned(self, silo: Silo) -> NDArray[Any]:
        """[items] what is learned of them."""
        return silo.labels

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Classified]:
        if self.is_full(size):
            if self._full is None:
                view = self.data.full if self.all_items else self.data.kept_view(self.items)
                self._full = Classified(view, self.labels, self._share(self.labels), rows=self._rows(self.items))
            yield self._full
            return
        order = torch.randperm(self.num_samples, generator=generator)
        for part in order.split(size if size > 0 else max(self.num_samples, 1)):
            places, items = part.to(self.labels.device), self.items[part.numpy()]
            labels, view = self.labels[places], self._view(items, generator)
            yield Classified(view, labels, self._share(labels), places, self._rows(items))

    def _view(self, items: NDArray[np.int64], generator: torch.Generator) -> View:
        if self.fan_out:
            from graphsilo.training.neighbour_sampling import SampledView

            return SampledView(self.data, items, self.fan_out, generator)
        return self.data.full if self.all_items else self.data.view(items)

    def _rows(self, items: NDArray[np.int64]) -> Tensor | None:
        return torch.from_numpy(items).to(self.labels.device) if self.all_items else None

    def _share(self, labels: Tensor) -> Tensor:
        return F.one_hot(labels, self._num_classes).to(self.data.dtype).div_(max(len(labels), 1))

    def loss(self, model: Model, batch: Classified, generator: torch.Generator | None) -> Tensor:
        logits: Tensor = model(batch.view, generator)
        logits = logits if batch.rows is None else logits[batch.rows]
        return F.cross_entropy(logits, batch.labels) if self.each is None else self.each(logits, batch.labels).mean()

    def slope(self, logits: Tensor, batch: Classified) -> Tensor:
        """d/dz of the mean loss, [b, C]; of cross-entropy (softmax(z) - onehot) / b."""
        if self.each is None:
            return torch.softmax(logits, 1).mul_(1.0 / logits.shape[0]).sub_(batch.share)
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            return torch.autograd.grad(self.each(leaf, batch.labels).mean(), leaf)[0]

    def gradients(
        self,
        model: Model,
        batch: Classified,
        source: Source | None,
        parameters: Sequence[Tensor],
        term: Term | None = None,
        node_weights: Tensor | None = None,
    ) -> list[Tensor]:
        if term is not None or node_weights is not None or self.all_items:
            assert source is None or isinstance(source, torch.Generator)
            return self._with_term(model, batch, source, parameters, term, node_weights)
        trace = model.trace(batch.view, source)
        if trace is not None:
            return trace.pull(self.slope(trace.logits, batch))
        return super().gradients(model, batch, source, parameters)

    def _with_term(
        self,
        model: Model,
        batch: Classified,
        generator: torch.Generator | None,
        parameters: Sequence[Tensor],
        term: Term | None,
        node_weights: Tensor | None,
    ) -> list[Tensor]:
        """The gradients of the weighted loss and a term, from one pass for both."""
        from graphsilo.training.upstream import trace

        (logits, embeddings), pull = trace(model, batch.view, generator, parameters)
        labels, rows = batch.labels, batch.rows
        with torch.no_grad():
            outer = self.slope(logits if rows is None else logits[rows], batch)
            if node_weights is not None:
                places = batch.places
                outer.mul_((node_weights if places is None else node_weights[places])[:, None])
            if rows is not None:
                outer = torch.zeros_like(logits).index_copy_(0, rows, outer)
                labels = labels.new_full((len(logits),), -1).index_copy_(0, rows, labels)
        if term is None:
            return pull(outer, None)
        with torch.enable_grad():
            logits, embeddings = logits.detach().requires_grad_(), embeddings.detach().requires_grad_()
            items = batch.view.items
            if items is None:
                items = np.arange(len(logits)) if self.all_items else self.items
            value = term(Step(items, labels, logits, embeddings, batch.view, generator))
        if isinstance(value, Slopes):
            return pull(outer if value.logits is None else outer.add_(value.logits), value.embeddings)
        if not value.requires_grad:
            return pull(outer, None)
        to_logits, inner, *beside = torch.autograd.grad(value, [logits, embeddings, *parameters], allow_unused=True)
        with torch.no_grad():
            gradients = pull(outer if to_logits is None else outer.add_(to_logits), inner)
            return [one if more is None else one + more for one, more in zip(gradients, beside, strict=True)]

    def sources(self, model: Model, epochs: int, size: int, generator: torch.Generator) -> Iterable[Source]:
        if self.all_items or not self.is_full(size):
            return super().sources(model, epochs, size, generator)
        # A full-batch step draws dropout and nothing else, so that the masks of all epochs can be drawn at once.
        (batch,) = self.batches(size, generator)
        return model.sources(batch.view, epochs, generator)

    def is_full(self, size: int) -> bool:
        """Whether batches of that size are the full batch, the same in every step."""
        return not self.fan_out and (size <= 0 or size >= self.num_samples)


def objective(data: GraphTensors, silo: Silo, fan_out: Sequence[int] = (), each: ItemLoss | None = None) -> Objective:
    """The loss that fits the silo's task; ``fan_out`` and ``each`` as for ``ClassifyItems``, without meaning for
    links."""
    if silo.schema.task in CLASS_TASKS:
        return ClassifyItems(data, silo, each, fan_out=fan_out)
    if silo.schema.task == "link":
        from graphsilo.training.links import PredictLinks

        return PredictLinks(data, silo)
    from graphsilo.training.item_losses import FitTargets

    return FitTargets(data, silo, each, fan_out=fan_out)
