"""FedED — empty-class-aware distillation with logit suppression.

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
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.training.local import Teacher
from graphsilo.training.objective import ClassifyItems, Slopes, Step

SMALLEST = 1e-9
"""Added to every class's share before its logarithm, as in the authors' code."""


class FedEDConfig(fedavg.FedAvgConfig):
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
        goal: What is minimised beside the term.
        shares: [C] π: each class's share of the training items.
    """

    def __init__(self, context: ClientContext[FedEDConfig]):
        super().__init__(context)
        everywhere = self.config.distill_nodes == "all" and self.silo.schema.task == "node"
        self.goal = ClassifyItems(self.data, self.silo, all_items=everywhere and self.distils)
        counts = torch.bincount(self.goal.labels, minlength=self.silo.schema.num_classes)
        self.shares = counts / counts.sum().clamp_min(1)

    @property
    def distils(self) -> bool:
        return self.config.distillation > 0

    def fit(self, request: fedavg.TrainRequest) -> None:
        empty = self.shares == 0
        # One class has everything in both models.
        teacher = self.teacher(request.weights) if self.distils and int(empty.sum()) > 1 else None
        self.run_epochs(term=partial(self.term, empty, teacher), objective=self.goal)

    @torch.no_grad()
    def term(self, empty: Tensor, teacher: Teacher | None, step: Step) -> Slopes:
        """What the three losses' gradients have more than plain cross-entropy's.

        Args:
            empty: [C] classes that this client does not have.
            teacher: The downloaded model; None where nothing is distilled.
            step: On labelled items, or on all.
        """
        slopes, known = torch.zeros_like(step.logits), step.labels >= 0
        logits, labels = step.logits[known], step.labels[known]
        log_shares = (self.shares + SMALLEST).log()
        more = torch.softmax(logits + log_shares, 1).sub_(torch.softmax(logits, 1)).div_(len(logits))
        if self.config.suppression > 0:
            own = F.one_hot(labels, logits.shape[1]) == 1
            if self.config.suppressed == "adjusted":
                held = (logits - log_shares - math.log(logits.shape[1])).masked_fill_(own, 0.0)
            else:
                held = logits.masked_fill(own, -torch.inf)
            # In plain form a class that every item has is left out: its column has nothing but minus infinity.
            down = torch.softmax(held, 0).nan_to_num_(0.0).masked_fill_(own, 0.0)
            more.add_(down.mul_(self.shares), alpha=self.config.suppression)
        slopes[known] = more
        if teacher is not None:
            q, p = (
                torch.softmax(rows[:, empty], 1) for rows in (step.logits, teacher.outputs(step.view).logits)
            )  # fmt: skip
            slopes[:, empty] += q.sub_(p).mul_(self.config.distillation / len(q))
        return Slopes(logits=slopes)


class Server(fedavg.Server[FedEDConfig]):
    """As FedAvg."""

    client = Client


METHOD = Method(
    name="feded",
    family="averaging",
    title="FedED",
    citation='Guo et al. "Not all Minorities are Equal: Empty-Class-Aware Distillation for Heterogeneous Federated '
    'Learning". arXiv 2401.02329, 2024.',
    summary="FedAvg whose clients keep the shared model's view of classes that they do not have.",
    config=FedEDConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    edge_weights=True,
)
