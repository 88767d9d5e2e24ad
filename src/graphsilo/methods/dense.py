"""DENSE — models up once; the server distils them into one on graphs that a generator makes, without data.

Zhang, Chen, Li, Lyu, Wu, Ding, Shen, Wu. "DENSE: Data-Free One-Shot Federated Learning". NeurIPS 2022.

Clients train alone and upload their models once. The server takes these for an ensemble, makes graphs that it is sure
of and on which a student disagrees with it, and has the student learn its answers.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.federation.one_shot import OneShotClient, OneShotConfig, OneShotServer
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import setting
from graphsilo.models.view import View
from graphsilo.training.losses import divergence


class DenseConfig(OneShotConfig):
    """Settings of DENSE."""

    disagreement: float = setting(
        1.0, "weight λ₂ of the distance between ensemble and student, where their answers differ",
        source="the authors' script; paper 0.5", ge=0,
    )  # fmt: skip
    weight_by: Literal["uniform", "train"] = setting(
        "uniform", "a model's share in the ensemble's logits: 1, or its training items", source="paper"
    )


class Client(OneShotClient[DenseConfig]):
    """Trains alone, and receives the student."""


class Server(OneShotServer[DenseConfig]):
    """Distils the mean of the clients' logits."""

    client = Client

    def begin(self) -> None:
        totals = self.counts.sum(1).to(self.context.device, torch.float32)
        self.shares = (
            totals / totals.sum() if self.config.weight_by == "train" else torch.full_like(totals, 1 / len(totals))
        )
        self.answers: list[Tensor] = []

    def answer(self, logits: Tensor) -> Tensor:
        mean: Tensor = torch.tensordot(self.shares, logits, dims=1)
        return mean

    def generator_loss(self, answer: Tensor, student: Tensor, labels: Tensor) -> Tensor:
        """CE(D, y) − λ₂ mean_i ω_i KL(D ‖ f_S), with ω_i = 1 where the likeliest classes differ."""
        differ = answer.argmax(1) != student.argmax(1)
        apart = (divergence(student, answer) * differ).mean()
        return F.cross_entropy(answer, labels) - self.config.disagreement * apart

    def lesson(self, place: int, draw: torch.Generator) -> tuple[View, Tensor]:
        view = self.view(place)
        while len(self.answers) <= place:
            self.answers.append(self.answer(self.ensemble(self.view(len(self.answers)))))
        return view, self.answers[place]


METHOD = Method(
    about=__doc__,
    name="dense",
    family="one round",
    quick={"local_epochs": 5, "epochs": 3, "generator_steps": 3, "nodes": 12, "noise_dim": 8},
    near=("FedOV", "FENS", "FedDF", "FedCVAE"),
    config=DenseConfig,
    client=Client,
    server=Server,
    makes_graphs=True,
    tasks=("node",),
    heterogeneous=True,
    evaluates=("aggregate", "own"),
    edge_weights=True,
    space=(
        {"optimizer": ["adam"], "lr": [0.001, 0.003, 0.01, 0.03], "disagreement": [0.1, 0.5, 1.0]},
        {"optimizer": ["sgd"], "lr": [0.05, 0.2, 0.5], "disagreement": [0.1, 0.5, 1.0]},
    ),
    trials={
        "reset_optimizer": Trial(reason="whoever trains alone downloads nothing"),
    },
)
