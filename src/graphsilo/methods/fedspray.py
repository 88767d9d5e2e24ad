"""FedSpray — clients keep their GNNs, and share an encoder and class-wise stand-ins for neighbours that teach them.

Fu, Chen, Zhang, Chen, Li. "Federated Graph Learning with Structure Proxy Alignment". KDD 2024.

Every client has a GNN of its own, which never leaves. What clients share is a small encoder of features and, for each
class, a vector that stands for unbiased neighbours of its nodes, the structure proxy. From both come soft targets
that keep the GNN right about nodes whose own neighbours mislead, those of minority classes above all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.averaging import AveragingServer
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient, client_weight
from graphsilo.models.backbones.mlp import MLP
from graphsilo.models.base import Dense, Model
from graphsilo.models.view import GraphTensors
from graphsilo.random import Name
from graphsilo.settings import WIDEST
from graphsilo.training.local import tensors_of
from graphsilo.training.objective import Classified, ClassifyItems, Slopes, Step
from graphsilo.training.optimizer import optimizer
from graphsilo.training.prototypes import class_means, pool_means
from graphsilo.training.upstream import trace
from graphsilo.types import ClientId

_ROUNDING = 1e-4


class FedSprayConfig(LocalTrainingConfig):
    """Settings of FedSpray."""

    strength: float = setting(
        1.0, "weight λ₁ of the distance between the GNN's predictions and the soft targets",
        source="the authors' script; the paper tunes it for each data set", ge=0,
    )  # fmt: skip
    encoder_strength: float = setting(
        1.0, "weight λ₂ of the distance between the encoder's predictions and the GNN's",
        source="the authors' code", ge=0, when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    supervised: Literal["both", "features"] = setting(
        "both", "which predictions of the encoder learn from labels, too: with proxies and without, or only without",
        source="paper; the authors' code features", when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    refresh: Literal["all", "unlabelled"] = setting(
        "all", "which nodes begin a round with everybody's proxies: all, or all but training nodes, which keep theirs",
        source="paper; the authors' code unlabelled", when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    threshold: float = setting(
        0.7, "probability above which an unlabelled node has a soft target", source="the authors' code", ge=0, le=1,
        when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    width: int = setting(
        64, "entries of proxies and of the encoder's embeddings (p)", source="the authors' code", ge=1, le=WIDEST,
        when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    proxy_lr: float = setting(
        0.02, "Adam's rate for proxies", source="the authors' code", gt=0, when={"strength": ABOVE_ZERO}
    )
    min_count: int = setting(1, "fewest training nodes of a class that a client describes", ge=1)

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if self.strength:
            return ""
        return "FedSpray is local training with method.strength=0, and what is sent is sent for nothing."


class TrainRequest(Message):
    """The encoder, and the proxies of all classes."""

    weights: Tensors = sends("model")
    proxies: Tensor = sends("prototype", shape=("classes", "width"))


class TrainReply(Message):
    """The encoder after local training, and the client's part in the proxies.

    Attributes:
        weights: In a sum they count ``num_samples`` times.
        num_samples: Training nodes.
        shares: r_c, the share of training nodes that are of each class; 0 where the class is not described.
        proxies: r_c times the mean proxy of these nodes.
    """

    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")
    shares: Tensor = sends("counts", shape=("classes",), per_class="min_count", whole=False)
    proxies: Tensor = sends("prototype", shape=("classes", "width"), per_class="min_count")

    def check(self) -> None:
        self._check(1)

    def check_total(self, request: Message, clients: int) -> None:
        self._check(clients)

    def _check(self, clients: int) -> None:
        shares = self.shares
        if bool((shares < 0).any()) or float(shares.sum()) > clients * (1 + _ROUNDING):
            raise MessageError("shares of classes are at least 0 and together at most 1; others came.")
        if bool(self.proxies[shares == 0].any()):
            raise MessageError("a class without training nodes has no proxy; one came.")


class Guide(MLP):
    """The encoder E, with a classifier F₂ of its embeddings and F₁ of these plus proxies, which is ``proxied``.

    Its logits are those of F₂.

    Args:
        inputs: d.
        classes: C.
        width: p.
    """

    def __init__(self, inputs: int, classes: int, width: int):
        super().__init__(inputs, classes, (width,), dropout=0.0)
        self.proxied = Dense(width, classes)


def build_guide(schema: Schema, width: int, spec: ModelSpec, draw: torch.Generator, device: str) -> Guide:
    """The encoder with drawn weights; of a backbone's spec it has the precision alone."""
    guide = Guide(schema.num_features, schema.num_classes, width)
    guide.reset(draw)
    guide.precision = spec.precision
    return guide.to(device)


class Client(PastClient[FedSprayConfig], TrainingClient[FedSprayConfig]):
    """Trains its GNN towards soft targets, then the encoder and proxies towards the GNN.

    Attributes:
        model: The GNN.
        common: The encoder.
        proxies: [training nodes, p] as they were after the last round.
    """

    kept = ("proxies",)
    stateful = (*TrainingClient.stateful, "optimizer", "proxy_optimizer")
    common: Guide

    def __init__(self, context: ClientContext[FedSprayConfig]):
        super().__init__(context)
        config, draw = self.config, self.generator("encoder")
        self.common = build_guide(self.silo.schema, config.width, context.model, draw, context.device)
        self.common_weights = tensors_of(self.common)
        self.labelled = ClassifyItems(self.data, self.silo, self.item_loss)
        self.proxies = torch.full((self.labelled.num_samples, config.width), 0.1, device=self.data.device)
        # What is kept is held by no optimiser: they learn on a copy of it.
        self.free = self.proxies.clone()
        self.optimizer = self.make_optimizer(list(self.common.parameters()))
        self.proxy_optimizer = optimizer("adam", [self.free], lr=config.proxy_lr)

    def objective_on(self, data: GraphTensors) -> ClassifyItems:
        # A soft target may be any node's.
        return ClassifyItems(data, self.silo, self.item_loss, all_items=self.config.strength > 0)

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """The GNN's epochs, the encoder's, and what became of the proxies."""
        self.download(request.weights)
        if self.config.reset_optimizer:
            self.optimizer.reset()
            self.proxy_optimizer.reset()
        if self.labelled.num_samples:
            self.learn(request.proxies.to(self.data.device))
        shares, proxies = self.describe_proxies()
        samples = client_weight("train", self.labelled.num_samples, self.silo.num_items)
        return TrainReply(weights=self.upload(), num_samples=samples, shares=shares, proxies=proxies)

    def learn(self, everybodys: Tensor) -> None:
        """Both phases, from the proxies of all classes, [C, p]."""
        if not self.config.strength:
            self.run_epochs()
            return
        with torch.no_grad():
            self.free.copy_(everybodys[self.labelled.labels] if self.config.refresh == "all" else self.proxies)
        targets, rows = self.soft_targets(everybodys)

        @torch.no_grad()
        def term(step: Step) -> Slopes:
            """λ₁ (q − p*) / |R|: the gradient of λ₁ times the mean ``kd`` over the rows R."""
            slope = torch.softmax(step.logits[rows], 1).sub_(targets).mul_(self.config.strength / len(rows))
            return Slopes(logits=torch.zeros_like(step.logits).index_copy_(0, rows, slope))

        self.run_epochs(term=term)
        with torch.no_grad():
            known = torch.softmax(self.model(self.data.kept_view(self.labelled.items)), 1)
            draw = self.generator("encoder")
            for _ in range(self.config.local_epochs):
                for batch in self.labelled.batches(self.batch_size, draw):
                    self.step(batch, known if batch.places is None else known[batch.places])
            self.proxies = self.free.clone()

    @torch.no_grad()
    def soft_targets(self, everybodys: Tensor) -> tuple[Tensor, Tensor]:
        """p* [m, C], and the nodes R [m] that have one: those with a label, and those whose class F₂ is sure of.

        An unlabelled node has the mean of everybody's proxies that F₂ expects of it.

        Args:
            everybodys: [C, p] proxies.
        """
        guide, train = self.common, torch.from_numpy(self.labelled.items).to(everybodys.device)
        logits, embeddings = guide.outputs(self.data.full)
        likely = torch.softmax(logits, 1)
        proxies = (likely @ everybodys).index_copy_(0, train, self.free)
        rows = (likely.amax(1) > self.config.threshold).index_fill_(0, train, True).nonzero().flatten()
        return torch.softmax(guide.proxied(embeddings[rows] + proxies[rows]), 1), rows

    def step(self, batch: Classified, known: Tensor) -> None:
        """One step of encoder and proxies on CE(F₂, y) [+ CE(F₁, y)] + λ₂ KL(GNN ‖ F₁).

        Args:
            batch: Some training nodes.
            known: [b, C] the GNN's probabilities.
        """
        guide, goal, places = self.common, self.labelled, batch.places
        (plain, rows), pull = trace(guide, batch.view, None, list(guide.layers.parameters()))
        mixed = rows + (self.free if places is None else self.free[places])
        logits = guide.proxied(mixed)
        slope = torch.softmax(logits, 1).sub_(known).mul_(self.config.encoder_strength / len(known))
        if self.config.supervised == "both":
            slope.add_(goal.slope(logits, batch))
        inner = slope @ guide.proxied.weight.t()
        moved = inner if places is None else torch.zeros_like(self.free).index_copy_(0, places, inner)
        gradients = pull(goal.slope(plain, batch), inner)
        self.optimizer.step([*gradients, mixed.t() @ slope, slope.sum(0)])
        self.proxy_optimizer.step([moved])

    def describe_proxies(self) -> tuple[Tensor, Tensor]:
        """r [C] and r_c times the mean proxy of each class's training nodes, [C, p]."""
        means, counts = class_means(self.free, self.labelled.labels, self.silo.schema.num_classes)
        counts = counts.masked_fill(counts < self.config.min_count, 0)
        shares = counts.to(means.dtype) / max(self.labelled.num_samples, 1)
        return shares, shares[:, None] * means


class Server(AveragingServer[FedSprayConfig]):
    """Keeps the encoder and the proxies; needs only sums. No GNN ever comes here.

    Attributes:
        proxies: [C, p].
    """

    client = Client
    kept = ("weights", "proxies")

    def __init__(self, context: ServerContext[FedSprayConfig]):
        super().__init__(context)
        classes = torch.arange(self.schema.num_classes, dtype=torch.float32)
        self.proxies = 0.01 * classes[:, None].repeat(1, self.config.width)

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        context = self.context
        draw = self.generator("encoder")
        return build_guide(self.schema, self.config.width, spec or context.common, draw, context.device)

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        request = TrainRequest(weights=self.weights, proxies=self.proxies)
        return federation.sum(Client.train, request, to=clients).require(self.config.min_clients)

    def combine(self, total: TrainReply) -> None:  # type: ignore[override]
        super().combine(total)
        self.proxies = pool_means(total.proxies, total.shares, self.proxies)

    def aggregate(self) -> None:
        return None

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        calls = self.rounds * self.asked
        return up + calls * (self.proxies.nbytes + 4 * len(self.proxies)), down + calls * self.proxies.nbytes


METHOD = Method(
    about=__doc__,
    name="fedspray",
    family="rare and missing classes",
    config=FedSprayConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    heterogeneous=True,
    evaluates=("own",),
    edge_weights=True,
    space={"strength": [0.3, 1.0, 3.0, 5.0]},
    trials={
        "threshold": Trial([0.4]),
    },
    reduces_to=("local", {"strength": 0.0}),
)
