"""MOON — FedAvg whose embeddings are drawn to the shared model's, and away from the client's own of last time.

Li, He, Song. "Model-Contrastive Federated Learning". CVPR 2021.

FedAvg whose clients draw their embeddings towards those of the downloaded model, and away from those of the models that
they ended with when they last took part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import ConfigError
from graphsilo.federation.client import ClientContext, ModelSpec, build_model
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.federation.starts import start_backbone
from graphsilo.methods import fedavg
from graphsilo.models.base import Model
from graphsilo.models.projected import Projected
from graphsilo.random import Name, generator
from graphsilo.settings import WIDEST
from graphsilo.training.local import Teacher
from graphsilo.training.objective import ClassifyItems, Slopes, Step
from graphsilo.training.prototypes import unit_rows

TINY = 1e-8
"""Embeddings shorter than this count as zero."""


class MOONConfig(fedavg.FedAvgConfig):
    """Settings of MOON."""

    mu: float = setting(
        1.0, "weight of the contrast (μ)", source="paper on CIFAR-100 and Tiny-ImageNet, 5 on CIFAR-10; OpenFGL", ge=0
    )
    temperature: float = setting(
        0.5, "temperature of the similarities (τ)", source="paper", gt=0, when={"mu": ABOVE_ZERO}
    )
    contrast: Literal["all", "train"] = setting(
        "all", "nodes whose embeddings are contrasted: all of the client's, or those it trains on",
        source="OpenFGL; the paper's items are all trained on", when={"mu": ABOVE_ZERO, "task": ("node",)},
    )  # fmt: skip
    previous: int = setting(
        1, "how many of its last models a client draws away from", source="paper", ge=1, le=100, when={"mu": ABOVE_ZERO}
    )
    projection: int = setting(
        0,
        "width of a projection between encoder and classifier; 0 for none",
        source="OpenFGL; paper 256",
        ge=0,
        le=WIDEST,
    )


class Client(fedavg.Client[MOONConfig]):
    """Adds μ times the contrast.

    Attributes:
        goal: What is minimised beside the contrast, once there is one.
        before: Its own models after the last times it took part, oldest first.
    """

    kept = ("before",)

    def __init__(self, context: ClientContext[MOONConfig]):
        super().__init__(context)
        self.before: list[dict[str, Tensor]] = []
        if self.config.mu > 0 and not self.model.encoder_names():
            raise ConfigError(
                f"client {self.id}: MOON contrasts the embeddings of a hidden layer, and {context.model.name} as it is "
                f"set has no hidden layer. {self.model.deeper}, or set method.projection to a width."
            )
        everywhere = self.config.mu > 0 and self.config.contrast == "all" and self.silo.schema.task == "node"
        self.goal = ClassifyItems(
            self.data, self.silo, self.item_loss, all_items=everywhere, fan_out=self.fan_out,
            unless="method.contrast=train",
        )  # fmt: skip

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        if not self.config.projection:
            return super().build_model(spec, seed_names=seed_names)
        draw, context = generator(self.context.seed, *seed_names), self.context
        return build_projected(spec or context.model, self.silo.schema, self.config.projection, draw, context.device)

    def fit(self, request: fedavg.TrainRequest) -> None:
        if self.config.mu > 0 and self.before:
            teachers = [self.teacher(weights) for weights in (request.weights, *self.before)]
            self.trainer.objective = self.goal
            self.run_epochs(term=partial(self.term, teachers))
        else:
            super().fit(request)
        if self.config.mu > 0:
            own = {name: weight.detach().clone() for name, weight in self.weights.items()}
            self.before = [*self.before, own][-self.config.previous :]

    @torch.no_grad()
    def term(self, teachers: Sequence[Teacher], step: Step) -> Slopes:
        """The gradient of μ times the mean ``info_nce`` of cosines over τ, the first teacher's being the positive."""
        heat, others = self.config.temperature, [teacher.outputs(step.view).embeddings for teacher in teachers]
        length = step.embeddings.norm(dim=1, keepdim=True)
        inverse = length.reciprocal().masked_fill_(length < TINY, 0.0)  # a row of zeros has no direction
        mine, theirs = step.embeddings * inverse, torch.stack([unit_rows(rows) for rows in others], dim=1)
        cosines = (theirs @ mine.unsqueeze(2)).squeeze(2)
        pull = torch.softmax(cosines / heat, dim=1)
        pull[:, 0] -= 1.0
        slope = (pull.unsqueeze(1) @ theirs).squeeze(1).sub_((pull * cosines).sum(1, keepdim=True) * mine)
        return Slopes(embeddings=slope.mul_(inverse * (self.config.mu / (heat * len(slope)))))


class Server(fedavg.Server[MOONConfig]):
    """As FedAvg."""

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        if not self.config.projection:
            return super().build_model(spec, seed_names=seed_names)
        draw, context = generator(self.context.seed, *seed_names), self.context
        return build_projected(spec or context.common, self.schema, self.config.projection, draw, context.device)


def build_projected(spec: ModelSpec, schema: Schema, width: int, draw: torch.Generator, device: str) -> Model:
    """The backbone with so many outputs, a projection of them, and a linear classifier."""
    model = Projected(build_model(spec, replace(schema, num_classes=width), draw, device), schema.num_classes)
    model.reset(draw)
    start_backbone(model.encoder, spec.start)
    return model.to(device)


METHOD = Method(
    about=__doc__,
    name="moon",
    family="averages of models",
    config=MOONConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    edge_weights=True,
    space={"mu": [0.1, 1.0, 5.0]},
    trials={
        "fan_out": Trial([1], {"contrast": "train"}),
    },
    reduces_to=("fedavg", {"mu": 0.0}),
)
