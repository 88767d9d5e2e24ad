"""FedKD — clients keep a model of their own and share a small one, each learning from the other; changes of the small
one travel as low-rank factors.

Wu, Wu, Lyu, Huang, Xie. "Communication-efficient federated learning via knowledge distillation". Nature Communications
13, 2022.

The own model, the mentor, never leaves; the small one is the mentee. Both learn from labels and from each other, the
less the worse they predict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.interface import Federation, Replies, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import OwnLoss, setting
from graphsilo.federation.training_client import neighbours_per_layer
from graphsilo.methods import fedavg
from graphsilo.models.base import Model, Outputs, draw_uniform
from graphsilo.models.registry import resolve
from graphsilo.random import Name
from graphsilo.settings import WIDEST
from graphsilo.training.local import load_weights, tensors_of, weights_of
from graphsilo.training.losses import divergence
from graphsilo.training.low_rank import compress, expand
from graphsilo.training.objective import Classified
from graphsilo.training.optimizer import shorten
from graphsilo.training.upstream import trace
from graphsilo.types import ClientId


class FedKDConfig(OwnLoss, fedavg.FedAvgConfig):
    """Settings of FedKD."""

    weight_by: Literal["train", "nodes", "uniform"] = setting(
        "uniform", "a client's weight in the mean change: its training items, all its nodes (graphs), or 1",
        source="the authors' code",
    )  # fmt: skip
    mentee_hidden: int | None = setting(
        16, "width of the mentee's hidden layers; none leaves it the architecture of the common model", source="ours",
        ge=1, le=WIDEST,
    )  # fmt: skip
    kl_weight: float = setting(1.0, "weight of the distance between predictions", source="paper", ge=0)
    hidden_weight: float = setting(1.0, "weight of the distance between embeddings", source="paper", ge=0)
    detach: bool = setting(
        True, "whether models learn from each other's predictions as constants; else gradients flow into both",
        source="ours; the authors' code lets them flow",
    )  # fmt: skip
    max_norm: float | None = setting(
        None, "length to which the gradients of either model are shortened; none: not at all",
        source="paper; PFLlib 10", gt=0,
    )  # fmt: skip
    energy_start: float = setting(
        0.95, "share of a change's squared singular values that its factors keep, before the first round",
        source="paper", gt=0, le=1,
    )  # fmt: skip
    energy_end: float = setting(0.98, "the same in the last round; linear in between", source="paper", gt=0, le=1)

    def energy(self, number: int) -> float:
        """T_t = T_start + (t / R) (T_end − T_start)."""
        return self.energy_start + number / self.rounds * (self.energy_end - self.energy_start)

    def mentee(self, common: ModelSpec) -> ModelSpec:
        """The mentee's architecture: the common one with other widths."""
        hidden = getattr(resolve(common.name, common.settings), "hidden", None)
        if self.mentee_hidden is None or hidden is None:
            return common
        width = [self.mentee_hidden] * len(hidden) if isinstance(hidden, list | tuple) else self.mentee_hidden
        return replace(common, settings={**common.settings, "hidden": width})

    @property
    def single_answers(self) -> str:
        return "every client's factors, whose shapes differ"


class TrainRequest(Message):
    """What the client lacks of the mentee.

    Attributes:
        change: The change of the last round, in factors; empty where there is nothing new.
        weights: The whole mentee instead, for a client that missed more than that.
    """

    change: Tensors = sends("model")
    weights: Tensors | None = sends("model", default=None)


class TrainReply(Message):
    """What local training changed of the mentee, in factors."""

    update: Tensors = sends("model")
    num_samples: float = sends("counts")

    def check(self) -> None:
        super().check()
        if self.num_samples < 0:
            raise MessageError(f"a client's weight is at least 0; {self.num_samples:g} came.")


class Client(fedavg.Client[FedKDConfig]):
    """Trains its mentor and a copy of the mentee together.

    Attributes:
        model: The mentor.
        common: The mentee.
        adapter: [mentee's width, mentor's] A; None where one of them has no hidden layer.
        base: The mentee as the server has it, before training.
    """

    kept = ("base",)
    stateful = (*fedavg.Client.stateful, "optimizer")

    def __init__(self, context: ClientContext[FedKDConfig]):
        super().__init__(context)
        config = self.config
        self.common = super().build_model(config.mentee(context.common), seed_names=("model",))
        self.common_weights = tensors_of(self.common)
        self.base = {name: weight.clone() for name, weight in weights_of(self.common).items()}
        self.adapter: Tensor | None = None
        if self.model.encoder_names() and self.common.encoder_names() and config.hidden_weight:
            width = self.common.embedding_dim
            self.adapter = torch.empty(width, self.model.embedding_dim)
            draw_uniform(self.adapter, 6 * width, self.generator("adapter"))  # ± 1 / √width, as torch's linear layers
            self.adapter = self.adapter.to(self.data.device)
        self.parameters = list(self.common.parameters())
        trained = [*self.parameters, *([] if self.adapter is None else [self.adapter])]
        self.optimizer = self.make_optimizer(trained)

    @cached_property
    def fan_out(self) -> tuple[int, ...]:
        """For the deeper of both models; the other one takes the last of these layers."""
        spec = self.config.mentee(self.context.common)
        mentee = super().build_model(spec, seed_names=("model",))
        of_each = [(self.model.message_layers, self.context.model.name), (mentee.message_layers, spec.name)]
        task, counts = self.silo.schema.task, self.config.fan_out
        return max((neighbours_per_layer(counts, name, depth, task) for depth, name in of_each), key=len)

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        return super().build_model(spec, seed_names=(*seed_names, "client", self.id))

    @handler
    def train(self, request: TrainRequest) -> TrainReply:  # type: ignore[override]
        """Bring the mentee up to date, train both, say what changed."""
        if request.weights is not None:
            load_weights(self.base, request.weights)
        elif request.change:
            self.base = add(self.base, {name: part.to(self.data.device) for name, part in request.change.items()})
        load_weights(self.common_weights, self.base)
        if self.config.reset_optimizer:
            self.optimizer.reset()
        goal = self.trainer.objective
        if goal.num_samples:
            self.learn(goal)
        changed = {name: weight.detach() - self.base[name] for name, weight in self.common_weights.items()}
        return TrainReply(update=compress(changed, self.config.energy(self.round)), num_samples=self.weight)

    def learn(self, goal: Any) -> None:
        """The local epochs, both models on the same batches."""
        draws = self.generator("train"), self.generator("mentee")
        with torch.no_grad():
            for _ in range(self.config.local_epochs):
                for batch in goal.batches(self.batch_size, draws[0]):
                    self.step(batch, *draws)

    def step(self, batch: Classified, *draws: torch.Generator) -> None:
        """One step of either model, and of the adapter."""
        sides = [(self.model, self.trainer.parameters), (self.common, self.parameters)]
        passes = [trace(one, batch.view, draw, mine) for (one, mine), draw in zip(sides, draws, strict=True)]
        outer = [torch.softmax(found.logits, 1).mul_(1.0 / len(batch.labels)).sub_(batch.share) for found, _ in passes]
        inner: list[Tensor | None] = [None, None]
        adapter = [] if self.adapter is None else [self.adapter]
        if adapter or self.config.kl_weight:
            leaves = [Outputs(*(part.detach().requires_grad_() for part in found)) for found, _ in passes]
            (mentor, mentee), width = leaves, len(adapter)
            with torch.enable_grad():
                adapter = [part.detach().requires_grad_() for part in adapter]
                value = mutual(mentor, mentee, batch.labels, adapter[0] if adapter else None, self.config)
            flat = [mentor.logits, mentee.logits, mentor.embeddings, mentee.embeddings, *adapter]
            found = torch.autograd.grad(value, flat, allow_unused=True)
            outer = [one if more is None else one + more for one, more in zip(outer, found[:2], strict=True)]
            inner, adapter = list(found[2:4]), list(found[4 : 4 + width])
        first, second = (pull(*parts) for (_, pull), parts in zip(passes, zip(outer, inner, strict=True), strict=True))
        for gradients in (first, second):
            shorten(gradients, self.config.max_norm)
        self.trainer.optimizer.step(first)
        self.optimizer.step([*second, *adapter])

    def state(self) -> dict[str, Any]:
        adapter = {} if self.adapter is None else {"adapter": self.adapter}
        return {**super().state(), **adapter}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        if self.adapter is not None:
            self.adapter.copy_(state["adapter"])


class Server(fedavg.Server[FedKDConfig]):
    """Keeps the mentee, and moves it by the mean change as clients will see it: in factors.

    Attributes:
        change: The last one.
        version: How many there were.
        held: The version that each client has; -1 where nobody knows.
    """

    client = Client
    kept = ("weights", "change", "version", "held")

    def __init__(self, context: ServerContext[FedKDConfig]):
        super().__init__(context)
        self.change: dict[str, Tensor] = {}
        self.version = 0
        self.held = dict.fromkeys(context.clients, 0)

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        return super().build_model(spec or self.config.mentee(self.context.common), seed_names=seed_names)

    def round(self, federation: Federation, number: int) -> None:
        replies = self.gather(federation, self.select(federation, number))
        total = sum(reply.num_samples for _, reply in replies)
        if not total:
            return
        mean = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in self.weights.items()}
        for _, reply in replies:
            for name, part in expand(reply.update, self.weights).items():
                mean[name].add_(part.to(mean[name].device), alpha=reply.num_samples * self.rate / total)
        self.change = compress({name: part.float() for name, part in mean.items()}, self.config.energy(number))
        self.weights = add(self.weights, self.change)
        self.version += 1

    def gather(self, federation: Federation, clients: Sequence[ClientId]) -> Replies[TrainReply]:
        """Send every client what it lacks, and return what they answer."""
        known = {
            self.version: TrainRequest(change={}),
            self.version - 1: TrainRequest(change=self.change),
        }
        whole = TrainRequest(change={}, weights=self.weights)
        requests = {client: known.get(self.held[client], whole) for client in clients}
        replies = federation.ask(Client.train, requests, check=self.check)
        self.held.update(dict.fromkeys(replies.clients, self.version))
        self.held.update(dict.fromkeys(replies.failures, -1))
        return replies.require(self.config.min_clients)

    def check(self, client: ClientId, reply: TrainReply) -> None:
        """Refuse what is no change of the mentee.

        Raises:
            MessageError: It is none.
        """
        expand(reply.update, self.weights)


def mutual(mentor: Outputs, mentee: Outputs, labels: Tensor, adapter: Tensor | None, config: FedKDConfig) -> Tensor:
    """What both losses have beside the cross-entropies: (KL(p_s ‖ p_t) + KL(p_t ‖ p_s) + MSE(h_t, A h_s)) / D.

    Of the sum of both losses each model has the gradient of its own, where it takes the other for a constant: then the
    squared distance, which is in both of them, counts once.
    """
    pair = (mentor, mentee), (mentee, mentor)
    doubt = sum(F.cross_entropy(one.logits, labels) for one, _ in pair)
    total = mentor.logits.new_zeros(())
    for student, teacher in pair if config.kl_weight else ():
        known = teacher.logits.detach() if config.detach else teacher.logits
        total = total + config.kl_weight * divergence(student.logits, known).mean()
    if adapter is not None:
        times = 1 if config.detach else 2
        total = total + times * config.hidden_weight * F.mse_loss(mentee.embeddings @ adapter, mentor.embeddings)
    doubt = torch.as_tensor(doubt).clamp_min(SMALLEST_DOUBT)
    return total / (doubt.detach() if config.detach else doubt)


SMALLEST_DOUBT = 1e-3
"""Smallest D, the sum of both cross-entropies: models that are sure of everything would otherwise learn from nothing
but each other."""


def add(weights: Mapping[str, Tensor], change: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights after a change in factors: the same bits wherever it is made on processors of one kind."""
    return {name: weights[name] + part for name, part in expand(change, weights).items()}


METHOD = Method(
    about=__doc__,
    name="fedkd",
    family="prototypes and distillation",
    near=("FML",),
    config=FedKDConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own", "aggregate"),
    edge_weights=True,
    space={"kl_weight": [0.3, 1.0, 3.0]},
    trials={
        "max_norm": Trial([0.01]),
        "mentee_hidden": Trial([4, None]),
        "energy_start": Trial([0.3]),
        "energy_end": Trial([0.3]),
    },
)
