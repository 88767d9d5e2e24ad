"""FedGen — FedAvg with a generator of embeddings, made of the clients' heads, that teaches every head all classes.

Zhu, Hong, Zhou. "Data-Free Knowledge Distillation for Heterogeneous Federated Learning". ICML 2021.

FedAvg whose server also learns a generator: from noise and a class it makes an embedding that the clients' heads take
for that class. It sees every client's model and how many items of each class it has, no embedding of anybody. Clients
teach their own heads with what it makes, so that these know classes that a client lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.accumulator import add_up
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Tensors, sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.models.backbones.gin import BatchNorm
from graphsilo.models.base import Dense
from graphsilo.settings import WIDEST
from graphsilo.training.local import load_weights, tensors_of, weights_of
from graphsilo.training.losses import kd, likeness
from graphsilo.training.objective import Step
from graphsilo.training.optimizer import Adam
from graphsilo.types import ClientId


class FedGenConfig(fedavg.FedAvgConfig):
    """Settings of FedGen."""

    alpha: float = setting(
        1.0,
        "weight α of the loss of the own head on generated embeddings",
        source="paper; the authors' script 10",
        ge=0,
    )
    beta: float = setting(
        0.0, "weight β of the distance between predictions of items and of embeddings generated for their classes",
        source="paper, which has no such term; the authors' script 10, or 1", ge=0,
    )  # fmt: skip
    decay: float = setting(
        1.0, "what both weights are multiplied by in each round", source="paper; the authors' code 0.98", gt=0, le=1
    )
    classes: Literal["counts", "uniform"] = setting(
        "counts", "how classes are drawn: as often as clients have them, or all alike that a client has",
        source="paper; the authors' code uniform",
    )  # fmt: skip
    noise: Literal["normal", "uniform"] = setting(
        "normal", "law of the generator's noise", source="paper; the authors' code uniform"
    )
    noise_dim: int = setting(32, "width of the noise", source="the authors' code", ge=1, le=WIDEST)
    generator_hidden: int = setting(
        256, "width of the generator's hidden layer", source="the authors' code", ge=1, le=WIDEST
    )
    generator_steps: int = setting(50, "steps of the generator per round", source="the authors' code", ge=1)
    generator_lr: float = setting(
        3e-4, "Adam's rate for the generator", source="the authors' script on MNIST; EMNIST 1e-4", gt=0
    )
    generator_weight_decay: float = setting(1e-2, "its L2 weight decay", source="the authors' code", ge=0)
    generator_decay: float = setting(
        0.98, "what its rate is multiplied by in each round", source="the authors' code", gt=0, le=1
    )
    diversity: float = setting(
        1.0, "weight η of what keeps generated embeddings apart", source="the authors' code", ge=0
    )
    generated: int = setting(
        32, "embeddings that are generated per step, of server and clients", source="paper", ge=2, le=WIDEST
    )

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if self.alpha or self.beta:
            return ""
        return (
            "FedGen is FedAvg with method.alpha=0 and method.beta=0, and its generator is trained and sent for nothing."
        )

    @property
    def single_answers(self) -> str:
        return "every client's model, on whose last layer its server trains a generator"


class TrainRequest(fedavg.TrainRequest):
    """The shared model and, once there is one, the generator, and how many items of each class clients have."""

    generator: Tensors | None = sends("generator", default=None)
    label_counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",))


class TrainReply(fedavg.TrainReply):
    """The model after local training, and how many training items of each class there are."""

    label_counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class=True)

    def check(self) -> None:
        super().check()
        if self.num_samples < 0 or bool((self.label_counts < 0).any()):
            raise MessageError("TrainReply holds a number of items below 0.")


class Generator(nn.Module):
    """From noise and a class to an embedding: linear without bias, BatchNorm, ReLU, linear.

    Args:
        config: Has its widths.
        num_classes: C.
        width: p of the embeddings.
    """

    def __init__(self, config: FedGenConfig, num_classes: int, width: int):
        super().__init__()
        self.config, self.num_classes = config, num_classes
        # BatchNorm takes the mean away: a bias would have no gradient but rounding, of which Adam makes whole steps.
        self.inner = Dense(config.noise_dim + num_classes, config.generator_hidden, bias=False)
        self.norm = BatchNorm(config.generator_hidden)
        self.outer = Dense(config.generator_hidden, width)

    def reset(self, draw: torch.Generator) -> None:
        """Draw every weight."""
        for part in (self.inner, self.norm, self.outer):
            part.initialise(draw)

    def noise(self, count: int, draw: torch.Generator) -> Tensor:
        """[count, noise_dim] ε."""
        make = torch.randn if self.config.noise == "normal" else torch.rand
        return make(count, self.config.noise_dim, generator=draw).to(self.outer.weight.device)

    def forward(self, noise: Tensor, labels: Tensor, training: bool = False) -> Tensor:
        """Embeddings [b, p] of noise [b, noise_dim] and classes [b]; in training with the batch's own statistics."""
        known = torch.cat([noise, F.one_hot(labels, self.num_classes).to(noise.dtype)], 1)
        result: Tensor = self.outer(torch.relu(self.norm.apply_to(self.inner(known), training)))
        return result

    def labels(self, counts: Tensor, draw: torch.Generator) -> Tensor:
        """[generated] classes, drawn by how many items [C] there are."""
        shares = counts.double() if self.config.classes == "counts" else (counts > 0).double()
        return torch.multinomial(shares.cpu(), self.config.generated, True, generator=draw).to(counts.device)


class Client(fedavg.Client[FedGenConfig]):
    """Trains the shared model, its head also on generated embeddings."""

    @handler
    def train(self, request: TrainRequest) -> TrainReply:  # type: ignore[override]
        """Download, train, upload."""
        sent = super().train(request)
        counts = torch.from_numpy(self.silo.class_counts())
        return TrainReply(weights=sent.weights, num_samples=sent.num_samples, label_counts=counts)

    def fit(self, request: TrainRequest) -> None:  # type: ignore[override]
        config = self.config
        alpha, beta = (weight * config.decay**self.round for weight in (config.alpha, config.beta))
        if request.generator is None or not (alpha or beta):
            self.run_epochs()
            return
        load_weights(self.made_by, request.generator)
        counts = request.label_counts.to(self.data.device)

        def term(step: Step) -> Tensor:
            draw, total = step.generator, step.logits.new_zeros(())
            assert draw is not None
            if alpha:
                labels = self.made_by.labels(counts, draw)
                total = total + alpha * F.cross_entropy(self.model.classify(self.make(labels, draw)), labels)
            if beta:
                with torch.no_grad():
                    target = self.model.classify(self.make(step.labels, draw))
                total = total + beta * kd(step.logits, target).mean()
            return total

        self.run_epochs(term=term)

    def make(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        """Embeddings of these classes, as constants."""
        with torch.no_grad():
            found: Tensor = self.made_by(self.made_by.noise(len(labels), draw), labels)
            return found

    @cached_property
    def made_by(self) -> Generator:
        """The generator, with the weights that came last."""
        made = Generator(self.config, self.silo.schema.num_classes, self.model.embedding_dim)
        return made.to(self.data.device)


class Server(fedavg.Server[FedGenConfig]):
    """Averages models, and trains the generator with the heads that were uploaded.

    Attributes:
        counts: [C] items of each class at the clients of the last round.
        trained: Whether the generator has learned anything.
    """

    client = Client
    kept = (*fedavg.Server.kept, "counts", "trained")
    stateful = ("generator_model", "optimizer")

    def __init__(self, context: ServerContext[FedGenConfig]):
        super().__init__(context)
        config = self.config
        self.model = self.build_model().requires_grad_(False)
        width = self.model.embedding_dim
        self.model.classify(torch.zeros(1, width, device=context.device))  # is refused here if it cannot be
        self.generator_model = Generator(config, self.schema.num_classes, width)
        self.generator_model.reset(self.generator("embeddings"))
        self.generator_model.to(context.device)
        self.parameters = list(self.generator_model.parameters())
        self.optimizer = Adam(self.parameters, lr=config.generator_lr, weight_decay=config.generator_weight_decay)
        self.counts = torch.zeros(self.schema.num_classes, dtype=torch.int64)
        self.trained = False
        self.number = 0

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        calls, counts = self.rounds * self.asked, self.counts.nbytes
        generator = sum(tensor.nbytes for tensor in tensors_of(self.generator_model).values())
        return up + calls * counts, down + calls * counts + (calls - self.asked) * generator

    def round(self, federation: Federation, number: int) -> None:
        self.number = number
        super().round(federation, number)

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> TrainReply:
        generator = weights_of(self.generator_model) if self.trained else None
        request = TrainRequest(weights=self.weights, generator=generator, label_counts=self.counts)
        replies = federation.ask(Client.train, request, to=clients).require(self.config.min_clients)
        used = [reply for _, reply in replies if reply.num_samples > 0]
        if used:
            heads = {name: torch.stack([reply.weights[name] for reply in used]) for name in self.model.head_names()}
            self.learn(heads, torch.stack([reply.label_counts for reply in used]))
        summed = add_up(TrainReply, replies)
        return TrainReply(weights={}, num_samples=0.0, label_counts=self.counts) if summed is None else summed

    def learn(self, heads: Mapping[str, Tensor], counts: Tensor) -> None:
        """The generator's steps of a round.

        Args:
            heads: Tensors of the participants' heads, each [m, ...].
            counts: [m, C] their items of each class.
        """
        config, made = self.config, self.generator_model
        here = self.parameters[0].device
        self.counts = counts.sum(0)
        if not bool(self.counts.any()):
            return
        counts, heads = counts.to(here), {name: tensor.to(here) for name, tensor in heads.items()}
        shares = counts / counts.sum(0).clamp_min(1)  # ω_{k,y}
        draw = self.generator("round", self.number, "embeddings")
        self.optimizer.lr = config.generator_lr * config.generator_decay ** (self.number - 1)
        for _ in range(config.generator_steps):
            labels = made.labels(self.counts.to(here), draw)
            noise = made.noise(len(labels), draw)
            with torch.enable_grad():
                embeddings = made(noise, labels, training=True)
                loss = ensemble_loss(self.model.classify_by(heads, embeddings), labels, shares)
                if config.diversity:
                    loss = loss + config.diversity * likeness(noise, embeddings)
            self.optimizer.step(torch.autograd.grad(loss, self.parameters))
        self.log["generator_loss"] = float(loss.detach())
        self.trained = True


def ensemble_loss(logits: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """Σ_k mean_i ω_{k,y_i} CE(g_k(z_i), y_i), with logits [m, b, C], labels [b] and shares [m, C] ω."""
    clients, count, classes = logits.shape
    each = F.cross_entropy(logits.reshape(-1, classes), labels.repeat(clients), reduction="none")
    return (shares[:, labels] * each.view(clients, count)).sum(0).mean()


METHOD = Method(
    about=__doc__,
    name="fedgen",
    family="rare and missing classes",
    near=("FedFTG", "FedZKT"),
    config=FedGenConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    evaluates=("aggregate", "own"),
    edge_weights=True,
    model={"node": {"name": "gamlp"}, "graph": {"name": "gin"}},
    space={"alpha": [0.1, 0.3, 1.0]},
    trials={
        "generator_steps": Trial(start=3),
        "fan_out": Trial(reason="no neighbours to sample"),
    },
    reduces_to=("fedavg", {"alpha": 0.0}),
)
