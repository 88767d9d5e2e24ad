"""Training in stages for O-pFGL: losses as gradients for the logits, check points, and the choice among them.

Stage 1 starts from common weights and sees only what every client received, so with equal models it takes the same path
everywhere. Clients of one process that ask for the same path share it: it is looked up by the content of all that
decides it, holds nothing private, and its numbers are those each client would compute alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.models.base import Model
from graphsilo.models.view import View
from graphsilo.training.local import tensors_of, weights_of
from graphsilo.training.optimizer import Adam
from graphsilo.training.upstream import gradients_through

LogitGradient = Callable[[Tensor], Tensor]
"""From logits [rows, C] to the gradient of a loss for them; may overwrite the logits."""
Weights = Mapping[str, Tensor]

SHARED_BYTES = 128 * 2**20
"""Paths whose check points take more than this are not kept for others."""

# -- losses --------------------------------------------------------------------------------------------------------


def cross_entropy(labels: Tensor, num_classes: int) -> LogitGradient:
    """Mean cross-entropy over all rows: (softmax(z) − onehot) / n."""
    target = F.one_hot(labels, num_classes).float().div_(len(labels))
    scale = 1.0 / len(labels)
    return lambda logits: F.softmax(logits, dim=1).mul_(scale).sub_(target)


def focal(labels: Tensor, num_classes: int, gamma: float) -> LogitGradient:
    """Mean focal loss −(1 − p_y)^γ log p_y over all rows, softmax form.

    Source: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; gradient
    [(1 − p_y)^γ − γ p_y (1 − p_y)^(γ−1) log p_y] (p − onehot) / n.
    """
    one_hot = F.one_hot(labels, num_classes).float()
    column, count = labels[:, None], len(labels)

    def gradient(logits: Tensor) -> Tensor:
        log = F.log_softmax(logits, dim=1)
        log_true = log.gather(1, column)
        miss = torch.expm1(log_true).neg_().clamp_min_(1e-6)
        factor = miss.pow(gamma) - gamma * log_true.exp() * miss.pow(gamma - 1.0) * log_true if gamma else 1.0
        return log.exp_().sub_(one_hot).mul_(factor).div_(count)

    return gradient


def distil(labels: Tensor, rows: Tensor, teacher: Tensor, node_weights: Tensor, *, mean: bool = True) -> LogitGradient:
    """Mean cross-entropy over labelled rows plus Σ_i γ_i KL(q_i ‖ p_i) over all rows, or its mean.

    Args:
        labels: [t] classes of the labelled rows.
        rows: [t] their numbers.
        teacher: [n, C] probabilities q.
        node_weights: [n] γ.
        mean: Divide the second sum by n.
    """
    count, classes = teacher.shape
    share = node_weights / count if mean else node_weights
    scale = share.clone()
    scale[rows] += 1.0 / len(rows)
    target = teacher * share[:, None]
    target.index_add_(0, rows, F.one_hot(labels, classes).float(), alpha=1.0 / len(rows))
    column = scale[:, None]
    return lambda logits: F.softmax(logits, dim=1).mul_(column).sub_(target)


def parameter_gradients(
    model: Model, view: View, generator: torch.Generator, gradient: LogitGradient, parameters: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of a loss for a model's parameters, from its gradient for the logits."""
    trace = model.trace(view, generator)
    if trace is not None:
        with torch.no_grad():
            return trace.pull(gradient(trace.logits))
    logits = model(view, generator)
    with torch.no_grad():
        upstream = gradient(logits.detach().clone())
    return gradients_through([logits], [upstream], parameters)


# -- paths ---------------------------------------------------------------------------------------------------------


class Path:
    """Full-batch training with Adam, as far as somebody asks, with weights kept at every check.

    Args:
        model: What is trained, in place.
        view: Rows the loss is about.
        gradient: The loss.
        lr: Adam's rate; no weight decay.
        epochs: Most steps.
        check_every: Steps between checks; the last check is after ``epochs``.
        generator: Source of dropout, where the model has any.
        keep: Whether earlier checks may be asked for again.
    """

    def __init__(
        self,
        model: Model,
        view: View,
        gradient: LogitGradient,
        *,
        lr: float,
        epochs: int,
        check_every: int,
        generator: torch.Generator,
        keep: bool = False,
    ):
        self.model, self.view, self.gradient, self.generator = model, view, gradient, generator
        self.epochs, self.check_every, self.keep = epochs, check_every, keep
        self.checks = math.ceil(epochs / check_every)
        self._parameters = list(model.parameters())
        self._optimizer = Adam(self._parameters, lr=lr)
        self._kept: list[Weights] = []
        self._done = 0

    def epoch(self, check: int) -> int:
        """Steps taken by a check; checks count from 1."""
        return min(check * self.check_every, self.epochs)

    def at(self, check: int) -> Weights:
        """The weights at a check, to be read at once or copied; without ``keep`` checks are asked for in order."""
        if check <= len(self._kept):
            return self._kept[check - 1]
        while self._done < check:
            for _ in range(self.epoch(self._done + 1) - self.epoch(self._done)):
                self._optimizer.step(
                    parameter_gradients(self.model, self.view, self.generator, self.gradient, self._parameters)
                )
            self._done += 1
            if self.keep:
                self._kept.append(copy_of(weights_of(self.model)))
        return self._kept[check - 1] if self.keep else weights_of(self.model)


def choose(path: Path, score: Callable[[Weights], float] | None, patience: int) -> tuple[Weights, int]:
    """A copy of the best weights of a path, and their epoch.

    Args:
        path: Where they come from.
        score: Larger is better; the first of equals is taken. None: nothing to choose by, the last check is taken.
        patience: Stop after so many checks without a better one.
    """
    if score is None:
        return copy_of(path.at(path.checks)), path.epochs
    best, best_score, best_check = copy_of(path.at(1)), score(path.at(1)), 1
    for check in range(2, path.checks + 1):
        if check - best_check > patience:
            break
        weights = path.at(check)
        found = score(weights)
        if found > best_score:
            best, best_score, best_check = copy_of(weights), found, check
    return best, path.epoch(best_check)


def copy_of(weights: Weights) -> Weights:
    """The same numbers in memory of their own."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def shareable(model: Model, checks: int) -> bool:
    """Whether keeping a path's check points stays within ``SHARED_BYTES``."""
    each = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(model).values())
    return each * checks <= SHARED_BYTES
