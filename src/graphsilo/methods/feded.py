"""FedED — FedAvg whose clients keep the shared model's view of classes that they do not have.

Guo, Ding, Liang, He, Wang, Tan. "Not all Minorities are Equal: Empty-Class-Aware Distillation for Heterogeneous
Federated Learning". arXiv 2401.02329, 2024. Later "Exploring Vacant Classes in Label-Skewed Federated Learning", AAAI
2025.

FedAvg whose clients weigh classes in the cross-entropy by how often they have them, keep the downloaded model's view of
classes that they do not have, and hold down the scores of classes that an item is not in.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.federation.client import ClientContext
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import ABOVE_ZERO, OwnLoss, setting
from graphsilo.methods import fedavg
from graphsilo.training.local import Teacher
from graphsilo.training.losses import calibrated_cross_entropy
from graphsilo.training.objective import ClassifyItems, Slopes, Step

SMALLEST = 1e-9
"""Added to a class's share before its logarithm, as in the authors' code."""


class FedEDConfig(OwnLoss, fedavg.FedAvgConfig):
    """Settings of FedED."""

    distillation: float = setting(
        0.1, "weight of the distillation over classes that a client does not have (λ)", source="authors' commands", ge=0
    )
    distill_nodes: Literal["train", "all"] = setting(
        "train", "nodes on which that is: those it trains on, or all of the client's", source="paper; all: ours",
        when={"distillation": ABOVE_ZERO, "task": ("node",)},
    )  # fmt: skip
    suppression: float = setting(
        0.005, "weight of the suppression (s)", source="authors' code; the paper's formula has 1", ge=0
    )
    suppressed: Literal["adjusted", "plain"] = setting(
        "adjusted", "logits that are suppressed: less the logarithm of their class's share, an item's own counting as "
        "0, or as they are and without the item's own", source="authors' code; plain: paper",
        when={"suppression": ABOVE_ZERO},
    )  # fmt: skip


class Client(fedavg.Client[FedEDConfig]):
    """Trains on calibrated cross-entropy, distillation and suppression.

    Attributes:
        shares: [C] π: each class's share of the training items.
    """

    def __init__(self, context: ClientContext[FedEDConfig]):
        super().__init__(context)
        goal, classes = self.trainer.objective, self.silo.schema.num_classes
        assert isinstance(goal, ClassifyItems)
        self.shares = torch.bincount(goal.labels, minlength=classes) / max(goal.num_samples, 1)
        config, empty = self.config, self.shares == 0
        # One class has everything in both models.
        self.empty = empty if config.distillation > 0 and int(empty.sum()) > 1 else torch.zeros_like(empty)
        self.trainer.objective = ClassifyItems(
            self.data, self.silo, partial(calibrated_cross_entropy, prior=self.shares),
            all_items=config.distill_nodes == "all" and self.silo.schema.task == "node" and bool(self.empty.any()),
            fan_out=self.fan_out, unless="method.distill_nodes=train",
        )  # fmt: skip

    def fit(self, request: fedavg.TrainRequest) -> None:
        term = partial(self.term, self.teacher(request.weights))
        self.run_epochs(term=term if self.config.suppression > 0 or bool(self.empty.any()) else None)

    @torch.no_grad()
    def term(self, teacher: Teacher, step: Step) -> Slopes:
        """The gradients of distillation and suppression."""
        slopes, empty = torch.zeros_like(step.logits), self.empty
        if self.config.suppression > 0:
            known = step.labels >= 0
            slopes[known] = self.suppression(step.logits[known], step.labels[known])
        if bool(empty.any()):
            before = teacher.outputs(step.view).logits
            q, p = (torch.softmax(logits[:, empty], 1) for logits in (step.logits, before))
            slopes[:, empty] += q.sub_(p).mul_(self.config.distillation / len(q))
        return Slopes(logits=slopes)

    def suppression(self, logits: Tensor, labels: Tensor) -> Tensor:
        """s π_c e^u_ic / Σ_j e^u_jc where c is not the class of item i, else 0: the gradient of
        s Σ_c π_c log mean_i e^u_ic."""
        own = F.one_hot(labels, logits.shape[1]) == 1
        if self.config.suppressed == "adjusted":
            held = (logits - (self.shares + SMALLEST).log() - math.log(logits.shape[1])).masked_fill_(own, 0.0)
        else:
            held = logits.masked_fill(own, -torch.inf)
        # Without own items a class that all of them are of has nothing left, and is left out.
        down = torch.softmax(held, 0).nan_to_num_(0.0).masked_fill_(own, 0.0)
        return down.mul_(self.config.suppression * self.shares)


METHOD = Method(
    about=__doc__,
    name="feded",
    family="averages of models",
    config=FedEDConfig,
    client=Client,
    server=fedavg.Server,
    tasks=("node", "graph"),
    edge_weights=True,
    space={"distillation": [0.01, 0.1, 1.0]},
)
