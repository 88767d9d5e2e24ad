"""Training under multiplicative masks, which are trained with the weights that they multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.training.optimizer import Optimizer
from graphsilo.training.prototypes import unit_rows


class MaskedOptimizer(Optimizer):
    """Trains weights θ and masks μ by the gradients of θ ⊙ μ, which is what the model computes with.

    What is no matrix, as biases and norms are not, has no mask.

    Args:
        parameters: The model's; they are given the values θ ⊙ μ.
        make: The optimiser of θ and μ.
        sparsity: λ1 of λ1 Σ |μ|.
        proximal: λ2 of λ2 ‖θ − θ̄‖², or of λ2 Σ_p ‖θ_p − θ̄_p‖ over the tensors.
        squared: Which of both.

    Attributes:
        weights: θ, in the order of the parameters.
        masks: μ of those with a mask, whose places are ``masked``.
        received: θ̄, in the order of the weights.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        make: Callable[[Sequence[Tensor]], Optimizer],
        *,
        sparsity: float,
        proximal: float,
        squared: bool,
    ):
        self.masked = [place for place, parameter in enumerate(parameters) if parameter.dim() > 1]
        # Without a mask, the weight is the parameter itself.
        self.weights = [one.detach().clone() if one.dim() > 1 else one.detach() for one in parameters]
        self.masks = [torch.ones_like(self.weights[place]) for place in self.masked]
        self.received = self.weights
        self.sparsity, self.proximal, self.squared = sparsity, proximal, squared
        self.inner = make([*self.weights, *self.masks])
        super().__init__(parameters, lr=self.inner.lr, weight_decay=self.inner.weight_decay)

    @property
    def under_masks(self) -> list[Tensor]:
        """The weights that have a mask."""
        return [self.weights[place] for place in self.masked]

    def begin(self) -> None:
        """Take the weights for the received ones."""
        self.received = [weight.clone() for weight in self.weights] if self.proximal else self.weights
        self.write()

    @torch.no_grad()
    def write(self, cut: float = 0.0) -> None:
        """Give the model θ ⊙ μ, with 0 for masks of at most ``cut`` in size."""
        for place, mask in zip(self.masked, self.masks, strict=True):
            torch.mul(self.weights[place], F.hardshrink(mask, cut) if cut else mask, out=self.parameters[place].data)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        found = list(gradients)
        upstream = [found[place] for place in self.masked]
        of_masks = torch._foreach_mul(upstream, self.under_masks)
        torch._foreach_mul_(upstream, self.masks)
        if self.sparsity:
            torch._foreach_add_(of_masks, torch._foreach_sign(self.masks), alpha=self.sparsity)
        if self.proximal:
            away = torch._foreach_sub(self.weights, self.received)
            if self.squared:
                torch._foreach_add_(found, away, alpha=2 * self.proximal)
            else:
                torch._foreach_add_(found, [unit_rows(one.flatten()).view_as(one) for one in away], alpha=self.proximal)
        self.inner.step([*found, *of_masks])
        self.write()

    def reset(self) -> None:
        self.inner.reset()

    def state(self) -> dict[str, Any]:
        return self.inner.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.inner.load_state(state)
