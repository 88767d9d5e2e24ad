"""Local epochs: the inner loop that almost every method shares."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.models.base import Model
from graphsilo.training.objective import ExtraLoss, Objective
from graphsilo.training.optimizer import Optimizer

Adjust = Callable[[list[Tensor]], None]
"""Changes gradients in place before a step, e.g. adds a proximal term."""


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
        adjust: Adjust | None = None,
        extra_loss: ExtraLoss | None = None,
    ) -> None:
        """Run whole epochs; nothing where there is nothing to learn from.

        Args:
            epochs: How many passes over the training items.
            generator: Source of dropout masks, batch order and negatives.
            batch_size: Items per step; 0 for the full batch.
            adjust: Called with the gradients before each step.
            extra_loss: A term added to the loss of every step.
        """
        if self.objective.num_samples == 0:
            return
        steps = self.objective.gradient_steps(self.model, epochs, batch_size, generator, self.parameters, extra_loss)
        with torch.no_grad():  # once: switching it on and off is a tenth of a step on a small graph
            for gradients in steps:
                if adjust is not None:
                    adjust(gradients)
                self.optimizer.step(gradients)


def tensors_of(model: Model) -> dict[str, Tensor]:
    """The model's parameters and float buffers by name: the objects themselves."""
    named: dict[str, Tensor] = dict(model.named_parameters())
    named.update({name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()})
    return named


def weights_of(model: Model) -> dict[str, Tensor]:
    """The same detached from autograd; they still share the model's memory."""
    return {name: tensor.detach() for name, tensor in tensors_of(model).items()}


def load_weights(
    model: Model | Mapping[str, Tensor], weights: Mapping[str, Tensor], *, names: Collection[str] | None = None
) -> None:
    """Copy weights into a model.

    Args:
        model: Whose parameters and float buffers are overwritten; or these by name, as ``tensors_of`` gives them.
        weights: By name.
        names: Which ones must be there; None means all of the model's.

    Raises:
        MessageError: A name is missing or unknown, or a shape differs.
    """
    mine = tensors_of(model) if isinstance(model, Model) else model
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


@contextlib.contextmanager
def borrowed(mine: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Let a model compute with other weights for a while, without copying either.

    Args:
        mine: The model's parameters and float buffers by name, as ``tensors_of`` gives them.
        weights: The others, on the same device; they must not be written to meanwhile.
    """
    kept = {name: mine[name].data for name in weights}
    try:
        for name, value in weights.items():
            mine[name].data = value
        yield
    finally:
        for name, value in kept.items():
            mine[name].data = value


def model_state(model: Model) -> dict[str, Any]:
    """Every parameter and buffer, for a checkpoint."""
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def load_model_state(model: Model, state: Mapping[str, Tensor]) -> None:
    model.load_state_dict(dict(state))
