"""Local epochs: the inner loop that almost every method shares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphsilo.errors import MessageError
from graphsilo.models.base import Model, Outputs, borrow
from graphsilo.models.dense import varying_rows
from graphsilo.models.view import View
from graphsilo.training.objective import Objective, Term
from graphsilo.training.optimizer import Optimizer

Adjust = Callable[[list[Tensor], Any], None]
"""Changes a step's gradients in place, e.g. adds those of a proximal term; is given the step's batch, too."""


class LocalTrainer:
    """Trains one model on one silo.

    Args:
        model: What is trained.
        objective: What is minimised.
        optimizer: Over ``model.parameters()``, in that order.
    """

    def __init__(self, model: Model, objective: Objective, optimizer: Optimizer):
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.parameters = list(model.parameters())

    def run(
        self,
        epochs: int,
        generator: torch.Generator,
        *,
        batch_size: int = 0,
        term: Term | None = None,
        adjust: Adjust | None = None,
        node_weights: Tensor | None = None,
    ) -> int:
        """Run whole epochs; options and result as in ``TrainingClient.run_epochs``.

        Args:
            epochs: How many passes over the training items.
            generator: Source of dropout masks, batch order and negatives.
            batch_size: Items per step; 0 for the full batch.
            term, adjust, node_weights: As there.
        """
        if self.objective.num_samples == 0:
            return 0
        steps = self.objective.gradient_steps(
            self.model, epochs, batch_size, generator, self.parameters, term, node_weights
        )
        with varying_rows(not self.objective.is_full(batch_size)):
            return self.follow(steps, adjust)

    def follow(self, steps: Iterable[tuple[list[Tensor], Any]], adjust: Adjust | None = None) -> int:
        """Take a step for each list of gradients; the parameters have changed before the next one is asked for.

        Args:
            steps: Gradients of the parameters, and the batch they are of.
            adjust: Called with both before each step.

        Returns:
            How many there were.
        """
        taken = 0
        with torch.no_grad():  # once: switching it on and off is a tenth of a step on a small graph
            for gradients, batch in steps:
                if adjust is not None:
                    adjust(gradients, batch)
                self.optimizer.step(gradients)
                taken += 1
        return taken

    def state(self) -> dict[str, Any]:
        """The optimiser's: the model has its own."""
        return self.optimizer.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state(state)


class Teacher:
    """A model with other weights, frozen: what a term compares a step with.

    It borrows the architecture and computes without dropout and gradient. Outputs on views that are asked for again and
    again, as a full batch is, are kept as long as the teacher: make a new one in each round.

    Args:
        model: Whose architecture; its own weights stay as they are.
        weights: Every parameter and float buffer by name, on the model's device.
    """

    def __init__(self, model: Model, weights: Mapping[str, Tensor]):
        self.model, self.weights = model, weights
        self._mine = tensors_of(model)
        check_weights(self._mine, weights)
        self._kept: dict[int, tuple[View, Outputs]] = {}

    def outputs(self, view: View) -> Outputs:
        """Logits [items, C] and embeddings [items, p] of the view's items."""
        known = self._kept.get(id(view))
        if known is not None:
            return known[1]
        with torch.no_grad(), borrow(self._mine, self.weights):
            found = self.model.outputs(view)
        if view.kept:
            self._kept[id(view)] = view, found
        return found


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and float buffers by name: the objects themselves."""
    named: dict[str, Tensor] = dict(model.named_parameters())
    named.update({name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()})
    return named


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The same detached from autograd; they still share the model's memory."""
    return {name: tensor.detach() for name, tensor in tensors_of(model).items()}


def load_weights(
    model: nn.Module | Mapping[str, Tensor], weights: Mapping[str, Tensor], *, names: Collection[str] | None = None
) -> None:
    """Copy weights into a model.

    Args:
        model: Whose parameters and float buffers are overwritten; or these by name, as ``tensors_of`` gives them.
        weights: By name.
        names: Which ones must be there; None means all of the model's.

    Raises:
        MessageError: A name is missing or unknown, or a shape differs.
    """
    mine = tensors_of(model) if isinstance(model, nn.Module) else model
    check_weights(mine, weights, names=names)
    with torch.no_grad():
        for name, value in weights.items():
            mine[name].copy_(value)


def check_weights(
    mine: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, names: Collection[str] | None = None
) -> None:
    """Make sure that weights belong to a model.

    Raises:
        MessageError: A name is missing or unknown, or a shape differs.
    """
    wanted = mine.keys() if names is None else set(names)
    if weights.keys() != wanted:
        odd = sorted(set(weights) ^ set(wanted))
        raise MessageError(
            f"the weights do not belong to this model: '{odd[0]}' is {'missing' if odd[0] in wanted else 'unknown'}. "
            f"Server and clients must use the same model and settings."
        )
    for name, value in weights.items():
        if mine[name].shape != value.shape:
            raise MessageError(
                f"weight '{name}' must have shape {tuple(mine[name].shape)}; {tuple(value.shape)} came. Server and "
                f"clients must use the same model and settings."
            )


def model_state(model: nn.Module) -> dict[str, Any]:
    """Every parameter and buffer, for a checkpoint."""
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def load_model_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    model.load_state_dict(dict(state))
