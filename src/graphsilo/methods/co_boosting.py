"""Co-Boosting — DENSE on nodes that the ensemble finds hard, with shares of the models that are learned on them.

Dai, Zhang, Li, Liu, Yang, Han. "Enhancing One-Shot Federated Learning Through Data and Ensemble Co-Boosting". ICLR
2024.

DENSE with three changes: graphs are made of nodes that the ensemble finds hard, their features are disturbed where that
changes its answers most before the student learns from them, and the models' shares are learned on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.federation.one_shot import OneShotClient, OneShotConfig, OneShotServer
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.models.view import View
from graphsilo.training.losses import divergence

FLATTENED = 4.0
"""Temperature of the predictions that features are disturbed for; the authors' code."""
SILENT = 1e-9
"""A slope that is smaller than this is rounding, and has no sign."""
NONE_LEFT = 1e-8
"""Shares whose sum is smaller than this are none."""


class CoBoostingConfig(OneShotConfig):
    """Settings of Co-Boosting."""

    hardness: float = setting(1.0, "power h of (1 − p) by which hard nodes count more", source="paper", ge=0)
    adversarial: float = setting(
        1.0, "weight β of the distance between ensemble and student on what is made", source="paper", ge=0
    )
    adversarial_temperature: float = setting(
        3.0, "its temperature", source="the authors' code", gt=0, when={"adversarial": ABOVE_ZERO}
    )
    step_size: float | None = setting(
        None, "step μ of the models' shares; none: 0.1 over the number of models", source="paper; the code 0.01", ge=0
    )
    step_decay: float = setting(
        0.99, "what it is multiplied by after each graph", source="the authors' code", gt=0, le=1
    )
    disturbance: float = setting(
        0.03, "how far a feature is moved (ε), in standard deviations of it over the graph's nodes",
        source="ours; the paper's images 8/255", ge=0,
    )  # fmt: skip
    temperature: float = setting(4.0, "temperature at which the student learns", source="the authors' code", gt=0)


class Client(OneShotClient[CoBoostingConfig]):
    """Trains alone, and receives the student."""


class Server(OneShotServer[CoBoostingConfig]):
    """Distils an ensemble whose shares it learns.

    Attributes:
        shares: [m] v, each from 0 to 1.
    """

    client = Client
    max_norm: ClassVar[float | None] = 10.0

    def begin(self) -> None:
        count = len(self.uploads)
        self.shares = torch.full((count,), 1.0 / count, device=self.context.device)
        self.known: list[Tensor] = []

    def answer(self, logits: Tensor) -> Tensor:
        """A_v = Σ_k v_k f_k / Σ_k v_k."""
        mean: Tensor = torch.tensordot(self.shares / self.shares.sum(), logits, dims=1)
        return mean

    def generator_loss(self, answer: Tensor, student: Tensor, labels: Tensor) -> Tensor:
        """mean_i (1 − p_i)^h CE(A_v, y) − β mean_i T_a² KL(A_v ‖ f_S); the factor is a constant."""
        config = self.config
        each = F.cross_entropy(answer, labels, reduction="none")
        hard = (1.0 - torch.exp(-each.detach())).clamp_min(0.0).pow(config.hardness)
        apart = divergence(student, answer, temperature=config.adversarial_temperature)
        return (hard * each).mean() - config.adversarial * apart.mean()

    def before_distilling(self, epoch: int) -> None:
        """v ← clip(v − μ · decay^t · sign(∂CE / ∂v), 0, 1) for every graph so far.

        Where one falls another rises, as Σ_k v_k ∂CE/∂v_k = 0; if rounding leaves none, all begin again at 1/m.
        """
        first = 0.1 / len(self.shares) if self.config.step_size is None else self.config.step_size
        for place, graph in enumerate(self.pool):
            while len(self.known) <= place:
                self.known.append(self.ensemble(self.view(len(self.known))))
            slope = slope_of(self.known[place], self.shares, graph.labels)
            sign = torch.where(slope.abs() < SILENT, 0.0, slope.sign()).to(self.shares)
            self.shares = (self.shares - first * self.config.step_decay**epoch * sign).clamp(0.0, 1.0)
            if float(self.shares.sum()) < NONE_LEFT:
                self.shares = torch.full_like(self.shares, 1.0 / len(self.shares))
        self.log["smallest_share"], self.log["largest_share"] = float(self.shares.min()), float(self.shares.max())

    def lesson(self, place: int, draw: torch.Generator) -> tuple[View, Tensor]:
        """The graph with disturbed features, its links kept."""
        if not self.config.disturbance:
            view = self.view(place)
        else:
            view = self.pool[place].tensors(self.disturb(place, draw)).full
        return view, self.answer(self.ensemble(view))

    def disturb(self, place: int, draw: torch.Generator) -> Tensor:
        """X + ε σ sign(∂/∂X Σ u ⊙ softmax(A_v / 4)), u drawn uniformly from −1 to 1, σ each feature's deviation."""
        graph = self.pool[place]
        with torch.enable_grad():
            features = graph.features.clone().requires_grad_()
            logits = self.answer(self.ensemble(graph.live(features)))
            way = torch.rand(logits.shape, generator=draw).mul_(2).sub_(1).to(logits.device)
            value = (way * torch.softmax(logits / FLATTENED, 1)).sum()
        (slope,) = torch.autograd.grad(value, [features])
        return graph.features + self.config.disturbance * graph.features.std(0, correction=0) * slope.sign()

    def extra_state(self) -> dict[str, Any]:
        return {"shares": self.shares}

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        self.shares = state["shares"].to(self.shares)


def slope_of(logits: Tensor, shares: Tensor, labels: Tensor) -> Tensor:
    """∂/∂v of the mean cross-entropy of A_v = Σ_k v_k f_k / Σ_k v_k: mean_i (softmax(A_v) − y) · (f_k − A_v) / Σ v.

    Args:
        logits: [m, n, C] f.
        shares: [m] v.
        labels: [n].

    Returns:
        [m] float64: the rounding of float32 is larger than ``SILENT``, and equal models would drift by its sign.
    """
    logits, shares = logits.double(), shares.double()
    total = shares.sum()
    answer = torch.tensordot(shares / total, logits, dims=1)
    error = torch.softmax(answer, 1) - F.one_hot(labels, logits.shape[2])
    slope: Tensor = ((logits - answer) * error).sum((1, 2)) / (len(labels) * total)
    return slope


METHOD = Method(
    about=__doc__,
    name="co_boosting",
    family="one round",
    quick={"local_epochs": 5, "epochs": 3, "generator_steps": 3, "nodes": 12, "noise_dim": 8},
    aliases=("co_boost",),
    config=CoBoostingConfig,
    client=Client,
    server=Server,
    makes_graphs=True,
    tasks=("node",),
    heterogeneous=True,
    evaluates=("aggregate", "own"),
    edge_weights=True,
    space=(
        {"optimizer": ["adam"], "lr": [0.001, 0.003, 0.01, 0.03], "adversarial": [0.1, 1.0]},
        {"optimizer": ["sgd"], "lr": [0.05, 0.2, 0.5], "adversarial": [0.1, 1.0]},
    ),
    trials={
        "reset_optimizer": Trial(reason="whoever trains alone downloads nothing"),
        "step_size": Trial([0.0, 0.2]),
    },
)
