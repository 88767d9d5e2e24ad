"""The loss of an item as the settings of local training say it: of classes, of numbers, of several labels."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.targets import scaled_targets
from graphsilo.errors import ConfigError
from graphsilo.training import losses
from graphsilo.training.objective import ClassifyItems, ItemLoss
from graphsilo.types import CLASS_TASKS, Task

LOSSES: dict[str, tuple[Task, ...]] = {
    "auto": (*CLASS_TASKS, "link", "regression", "multilabel"),
    "focal": (*CLASS_TASKS, "multilabel"),
    "sigmoid_focal": CLASS_TASKS,
    "huber": ("regression",),
    "absolute": ("regression",),
}
"""The tasks of each loss that settings name."""


class LossSettings(Protocol):
    """What settings of local training say of the loss."""

    loss: Any
    gamma: float
    huber_delta: float
    class_weights: Any
    class_beta: float


class FitTargets(ClassifyItems):
    """Mean loss over nodes of which a target is known; of several targets the mean over those that are.

    ``labels`` are targets, [num_samples, m] float32 with NaN where one is not known.
    """

    def _learned(self, silo: Silo) -> NDArray[Any]:
        return scaled_targets(silo)

    def _share(self, labels: Tensor) -> Tensor:
        return labels


def check_loss(settings: LossSettings, task: Task) -> None:
    """Refuse a loss that is none of the task.

    Raises:
        ConfigError: It is not.
    """
    if task not in LOSSES[settings.loss]:
        able = [name for name, tasks in LOSSES.items() if task in tasks]
        raise ConfigError(
            f"method.loss={settings.loss} is for the task {' or '.join(LOSSES[settings.loss])}, and the task is "
            f"{task}. For that there are: {', '.join(able)}."
        )


def item_loss(settings: LossSettings, silo: Silo) -> ItemLoss | None:
    """The loss of an item at a silo; None for plain cross-entropy, and for links.

    Factors of classes come from the silo's own training items: nothing more leaves it.

    Raises:
        ConfigError: It is no loss of the silo's task.
    """
    task, name = silo.schema.task, settings.loss
    check_loss(settings, task)
    if task == "regression":
        numeric: dict[str, ItemLoss] = {
            "auto": losses.squared, "absolute": losses.absolute,
            "huber": partial(losses.huber, delta=settings.huber_delta),
        }  # fmt: skip
        return numeric[name]
    gamma = 0.0 if name == "auto" else settings.gamma
    if task == "multilabel":
        return partial(losses.binary_focal, gamma=gamma)
    factors = None
    if settings.class_weights != "none":
        counts = torch.from_numpy(silo.class_counts())
        factors = losses.class_factors(counts, settings.class_weights, beta=settings.class_beta)
    if factors is None and (name == "auto" or (gamma == 0 and name == "focal")):
        return None  # cross-entropy, by its own path
    return partial(
        losses.sigmoid_focal if name == "sigmoid_focal" else losses.focal, gamma=gamma, class_weights=factors
    )
