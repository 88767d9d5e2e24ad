"""FedNH — FedAvg whose classifier is a unit vector per class, moved by the server towards the clients' classes.

Dai, Chen, Li, Heinecke, Sun, Xu. "Tackling Data Heterogeneity in Federated Learning with Class Prototypes". AAAI 2023.

The vectors are far apart at the start, and move slowly towards the mean directions of the clients' embeddings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.client import ModelSpec, build_model
from graphsilo.federation.interface import handler
from graphsilo.federation.message import sends
from graphsilo.federation.portable import Deciding
from graphsilo.federation.prototypes import sum_classes
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.models.base import Model
from graphsilo.models.cosine import CosineHead, directions
from graphsilo.models.view import View
from graphsilo.random import Name, generator
from graphsilo.settings import WIDEST
from graphsilo.training.prototypes import spread_rows, unit_rows

_ROUNDING = 1e-3


class FedNHConfig(fedavg.FedAvgConfig):
    """Settings of FedNH."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "uniform", "a client's weight in the mean of encoders: its training items, all its nodes (graphs), or 1",
        source="paper",
    )  # fmt: skip
    smoothing: float = setting(0.9, "share of the old prototype in the new one (ρ)", source="paper", ge=0, le=1)
    width: int = setting(
        64, "entries of embeddings and prototypes (d)", source="ours: OpenFGL's hidden width", ge=2, le=WIDEST
    )
    scale: float = setting(1.0, "factor of the cosines at the start (s)", source="the authors' code", gt=0)
    scale_trained: bool = setting(True, "learn it; else it stays", source="the authors' code, or fixed at 30")
    clip: float = setting(10.0, "largest norm of a step's gradient; 0 for any", source="the authors' code", ge=0)
    min_count: int = setting(1, "fewest training items of a class that a client describes", ge=1)


class TrainReply(fedavg.TrainReply):
    """The model after local training, and the directions of its classes.

    Attributes:
        sums: n_c μ_c, the unit mean direction of each class times the items behind it; 0 where there are none.
        counts: n_c.
    """

    sums: Tensor = sends("prototype", shape=("classes", "width"), per_class="min_count")
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class="min_count")

    def check(self) -> None:
        super().check()
        if bool((self.sums.norm(dim=1) > self.counts * (1 + _ROUNDING)).any()):
            raise MessageError("a sum of n unit vectors is no longer than n; a longer one came.")


class Client(fedavg.Client[FedNHConfig]):
    """Trains an encoder towards prototypes that stay, then says where its classes lie."""

    model: CosineHead

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        context, draw = self.context, generator(self.context.seed, *seed_names)
        wide = replace(self.silo.schema, num_classes=self.config.width)
        encoder = build_model(spec or context.model, wide, draw, context.device)
        return with_head(encoder, self.silo.schema.num_classes, self.config)

    def network_of(self, view: str) -> Deciding | None:
        found = super().network_of(view)
        if found is None:
            return None
        head = {"kind": "cosines", "prototypes": found.weights["prototypes"], "scale": found.weights["scale"]}
        return found.inner("encoder", head)

    @handler
    def train(self, request: fedavg.TrainRequest) -> TrainReply:
        """Download, train, describe, upload."""
        self.download(request.weights)
        self.run_epochs(adjust=self.clip if self.config.clip else None)
        found = sum_classes(self, self.rows, self.config.min_count)
        sums = unit_rows(found.sums) * found.counts[:, None]
        return TrainReply(weights=self.upload(), num_samples=self.weight, sums=sums, counts=found.counts)

    def rows(self, view: View) -> Tensor:
        """Directions of the embeddings."""
        return directions(self.model.embed(view))[0]

    def clip(self, gradients: list[Tensor], _: object) -> None:
        """Shorten a gradient that is too long, all parameters together."""
        length = float(torch.stack(torch._foreach_norm(gradients)).norm())
        if length > self.config.clip:
            torch._foreach_mul_(gradients, self.config.clip / length)


class Server(fedavg.Server[FedNHConfig]):
    """Keeps encoder, scale and prototypes, the latter among the weights; needs only sums."""

    client = Client

    def __init__(self, context: ServerContext[FedNHConfig]):
        super().__init__(context)
        classes, width = self.weights["prototypes"].shape
        self.weights["prototypes"] = spread_rows(classes, width, self.generator("prototypes"))

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        context, draw = self.context, generator(self.context.seed, *seed_names)
        wide = replace(self.schema, num_classes=self.config.width)
        encoder = build_model(spec or context.common, wide, draw, context.device)
        return with_head(encoder, self.schema.num_classes, self.config)

    def combine(self, total: TrainReply) -> None:  # type: ignore[override]
        prototypes = self.weights["prototypes"]
        super().combine(total)
        # Clients send the prototypes back as they came; whatever came, the server moves its own.
        self.weights["prototypes"] = move(prototypes, total.sums, total.counts, self.config.smoothing)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        return up + self.rounds * self.asked * (self.weights["prototypes"].nbytes + 8 * self.schema.num_classes), down


def with_head(encoder: Model, classes: int, config: FedNHConfig) -> CosineHead:
    """The whole model on an encoder."""
    head = CosineHead(encoder, classes, scale=config.scale, trained=config.scale_trained)
    return head.to(next(encoder.parameters()).device)


def move(prototypes: Tensor, sums: Tensor, counts: Tensor, smoothing: float) -> Tensor:
    """W_c ← unit(ρ W_c + (1 − ρ) unit(Σ_k n_kc μ_kc)); a class that nobody has keeps its row.

    Args:
        prototypes: [C, d] W, of unit rows.
        sums: [C, d] Σ_k n_kc μ_kc.
        counts: [C] Σ_k n_kc.
        smoothing: ρ.
    """
    new = torch.lerp(unit_rows(sums.double()), prototypes.double(), smoothing)
    # Opposite directions may cancel, and with ρ = 1 nothing moves, not by rounding either.
    moves = (counts > 0) & (new.norm(dim=1) > _ROUNDING) & (smoothing < 1)
    return torch.where(moves[:, None], unit_rows(new).to(prototypes.dtype), prototypes)


METHOD = Method(
    about=__doc__,
    name="fednh",
    family="prototypes and distillation",
    config=FedNHConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    edge_weights=True,
    space={"smoothing": [0.5, 0.9, 0.99], "scale": [1.0, 10.0]},
    trials={
        "clip": Trial([0.1]),
    },
)
