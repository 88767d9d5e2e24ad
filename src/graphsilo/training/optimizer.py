"""Optimisers of local training, with their state as plain tensors.

Adam calls torch's fused kernel directly: on graphs of a few hundred nodes the bookkeeping of ``torch.optim`` costs as
much as the update. Numbers are those of ``torch.optim.Adam(fused=True)`` and ``torch.optim.SGD`` (tested).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from graphsilo.models.stack import without_gradients


class Optimizer(ABC):
    """Changes parameters in place from their gradients."""

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, weight_decay: float = 0.0):
        self.parameters = list(parameters)
        self.lr, self.weight_decay = lr, weight_decay

    @abstractmethod
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One update; ``gradients`` in the order of the parameters. May overwrite the gradients."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything learned about the gradients."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Moments and counters."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015) with L2 weight decay added to the gradient."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        *,
        lr: float,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self.betas, self.eps = betas, eps
        # Both moments by parameter; empty before the first step. Their tensors may be replaced by equal ones.
        self.first: list[Tensor] = []
        self.second: list[Tensor] = []
        # One counter serves all parameters: they are always updated together.
        self._step: Tensor | None = None

    def start(self) -> None:
        """Make the moments, if there are none yet."""
        if self._step is None:
            self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
            self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
            self._step = torch.zeros((), device=self.parameters[0].device if self.parameters else None)

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return 0 if self._step is None else int(self._step)

    def step(self, gradients: Sequence[Tensor]) -> None:
        self.start()
        assert self._step is not None
        self._step += 1.0
        with without_gradients():
            # The kernel walks through memory: autograd may give a gradient whose rows lie otherwise.
            plain = [gradient.contiguous() for gradient in gradients]
            torch._fused_adam_(
                self.parameters, plain, self.first, self.second, [], [self._step] * len(plain),
                lr=self.lr, beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay, eps=self.eps,
                amsgrad=False, maximize=False,
            )  # fmt: skip

    def reset(self) -> None:
        self.first, self.second, self._step = [], [], None

    def state(self) -> dict[str, Any]:
        return {"first": list(self.first), "second": list(self.second), "step": self._step}

    def load_state(self, state: dict[str, Any]) -> None:
        self.reset()
        if state["step"] is None:
            return
        self.start()
        assert self._step is not None
        self._step.copy_(state["step"])  # in place: saved tensors come back on the CPU
        for mine, saved in ((self.first, "first"), (self.second, "second")):
            for tensor, value in zip(mine, state[saved], strict=True):
                tensor.copy_(value)


class SGD(Optimizer):
    """Gradient descent with momentum and L2 weight decay."""

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, weight_decay: float = 0.0, momentum: float = 0.0):
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self.momentum = momentum
        self._velocity: list[Tensor] = []

    def step(self, gradients: Sequence[Tensor]) -> None:
        with without_gradients():
            self._move(list(gradients))

    def _move(self, gradients: list[Tensor]) -> None:
        if self.weight_decay:
            gradients = list(torch._foreach_add(gradients, self.parameters, alpha=self.weight_decay))
        if self.momentum:
            if not self._velocity:
                self._velocity = [gradient.clone() for gradient in gradients]
            else:
                torch._foreach_mul_(self._velocity, self.momentum)
                torch._foreach_add_(self._velocity, gradients)
            gradients = self._velocity
        torch._foreach_add_(self.parameters, gradients, alpha=-self.lr)

    def reset(self) -> None:
        self._velocity = []

    def state(self) -> dict[str, Any]:
        return {"velocity": list(self._velocity)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._velocity = [
            value.to(parameter.device, copy=True)
            for value, parameter in zip(state["velocity"], self.parameters, strict=bool(state["velocity"]))
        ]


def shorten(gradients: Sequence[Tensor], longest: float | None) -> None:
    """Scale gradients down, in place, where they are together longer than that."""
    if longest is not None:
        length = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
        if length > longest:
            torch._foreach_mul_(list(gradients), longest / length)


def optimizer(
    name: Literal["adam", "sgd"],
    parameters: Sequence[Tensor],
    *,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
) -> Optimizer:
    """The optimiser of that name."""
    if name == "adam":
        return Adam(parameters, lr=lr, weight_decay=weight_decay)
    return SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum)
