"""Federations that share one row per class instead of weights, so that every client may run a model of its own.

A method derives from ``PrototypeClient`` and ``PrototypeServer``, whose rows are mean embeddings, or from
``ClassRowsClient`` and ``ClassRowsServer``: it says what received rows add to the loss and, where they are not means,
how the server makes them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from graphsilo.errors import ConfigError, MessageError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.interface import Check, Federation, Replies, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.portable import Deciding
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors, View
from graphsilo.random import Name
from graphsilo.training.losses import prototype_mse
from graphsilo.training.objective import ClassifyItems, Step
from graphsilo.training.prototypes import class_sums, nearest_prototype, pool_means
from graphsilo.types import ClientId


class ClassRowsConfig(LocalTrainingConfig):
    """Settings of methods that share a row per class."""

    weight_by: Literal["count", "uniform"] = setting(
        "count", "what a client's prototype counts in the mean of its class: its items of that class, or 1"
    )
    initial: Literal["own", "common"] = setting(
        "own", "initial weights: each client's own, or the same for clients with equal models"
    )
    min_count: int = setting(1, "fewest training items of a class that a client describes", ge=1)


class PrototypeConfig(ClassRowsConfig):
    """Settings of methods whose rows are embeddings, so that clients can classify by them."""

    strength: float = setting(1.0, "weight λ of the pull towards the prototypes", ge=0)
    predict: Literal["head", "prototype"] = setting(
        "head", "how clients classify: with their model's head, or by the nearest received prototype"
    )


class TrainRequest(Message):
    """Everybody's prototypes, once there are any.

    Attributes:
        prototypes: One row per class.
        present: Which of them there are.
    """

    prototypes: Tensor | None = sends("prototype", shape=("classes", "width"), default=None)
    present: Tensor | None = sends("control", dtype=torch.bool, shape=("classes",), default=None)


class TrainReply(Message):
    """The client's part in every class's prototype; rows of 0 where it has none.

    Attributes:
        sums: The sum of the rows of each class; with ``weight_by=uniform`` their mean.
        counts: How many rows that are; with ``weight_by=uniform`` 1.
    """

    sums: Tensor = sends("prototype", shape=("classes", "width"), per_class="min_count")
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class="min_count")

    def check(self) -> None:
        super().check()
        if bool((self.counts < 0).any()) or bool(self.sums[self.counts == 0].any()):
            raise MessageError("a class has at least 0 rows, and without rows no sum; others came.")


ConfigT = TypeVar("ConfigT", bound=ClassRowsConfig)
PrototypeConfigT = TypeVar("PrototypeConfigT", bound=PrototypeConfig)


class ClassRowsClient(TrainingClient[ConfigT], Generic[ConfigT]):
    """Trains its own model, drawn to the rows it received.

    Attributes:
        prototypes: [C, p] as last received; None where none were.
        present: [C] booleans.
    """

    kept: ClassVar[tuple[str, ...]] = ("prototypes", "present")
    prototypes: Tensor | None = None
    present: Tensor | None = None

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        own: tuple[Name, ...] = ("client", self.id) if self.config.initial == "own" else ()
        return super().build_model(spec, seed_names=(*seed_names, *own))

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Local epochs, then this client's part in the prototypes."""
        self.receive(request)
        if self.config.reset_optimizer:
            self.trainer.optimizer.reset()
        self.run_epochs(term=None if self.prototypes is None or not self.pulls else self.term)
        return self.upload_prototypes()

    def receive(self, request: TrainRequest) -> None:
        """Keep the rows that came; where none did the server has none, and older ones are forgotten."""
        self._take(request.prototypes, request.present)

    @property
    def pulls(self) -> bool:
        """Whether ``term`` is anything at all with these settings."""
        return True

    @abstractmethod
    def term(self, step: Step) -> Tensor:
        """What the received rows add to a step's loss."""

    @abstractmethod
    def rows(self, view: View) -> Tensor:
        """What is averaged, [items, p], in evaluation mode."""

    def upload_prototypes(self) -> TrainReply:
        """Sums over this client's labelled training items, after training."""
        return sum_classes(self, self.rows, self.config.min_count, uniform=self.config.weight_by == "uniform")

    def _take(self, prototypes: Tensor | None, present: Tensor | None) -> None:
        self.prototypes, self.present = (
            None if value is None else value.to(self.data.device, copy=True) for value in (prototypes, present)
        )


class PrototypeClient(ClassRowsClient[PrototypeConfigT], Generic[PrototypeConfigT]):
    """Whose rows are mean embeddings: its own stay near those of their classes, and it can classify by the nearest."""

    def __init__(self, context: ClientContext[PrototypeConfigT]):
        super().__init__(context)
        check_encoder(self)

    @property
    def pulls(self) -> bool:
        return self.config.strength > 0

    def term(self, step: Step) -> Tensor:
        """λ times the mean squared distance between embeddings and the prototypes of their classes."""
        return self.config.strength * self.distances(step).mean()

    def distances(self, step: Step) -> Tensor:
        """[b] squared distance of each item's embedding and its class's prototype, the mean over entries."""
        assert self.prototypes is not None
        assert self.present is not None
        return prototype_mse(step.embeddings, step.labels, self.prototypes, self.present)

    def rows(self, view: View) -> Tensor:
        return self.model.embed(view)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if self.config.predict == "head" or self.prototypes is None or self.present is None:
            return super().predict(data, view)
        return nearest_prototype(self.rows(data.full), self.prototypes, self.present)

    def network_of(self, view: str) -> Deciding | None:
        if self.config.predict == "head" or self.prototypes is None or self.present is None:
            return super().network_of(view)
        head = {"kind": "nearest", "prototypes": self.prototypes, "present": self.present}
        return Deciding(self.model, self.weights, head)

    def final_models(self) -> dict[str, Tensors]:
        found = super().final_models()
        if self.config.predict == "prototype" and self.prototypes is not None and self.present is not None:
            found["prototypes"] = {"prototypes": self.prototypes, "present": self.present}
        return found

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        received = models.get("prototypes", {})
        self._take(received.get("prototypes"), received.get("present"))


class ClassRowsServer(ServerBase[ConfigT], Generic[ConfigT]):
    """Keeps a row for each class: the mean over clients, unless ``combine`` makes another of the sums.

    Attributes:
        prototypes: [C, p], 0 where there is none.
        present: [C] booleans.
    """

    client: type[ClassRowsClient[Any]]
    kept: ClassVar[tuple[str, ...]] = ("prototypes", "present")

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.prototypes = torch.zeros(self.schema.num_classes, self.width(), device=context.device)
        self.present = torch.zeros(self.schema.num_classes, dtype=torch.bool, device=context.device)

    @abstractmethod
    def width(self) -> int:
        """p."""

    def request(self) -> TrainRequest:
        """What clients receive: nothing before there is a prototype."""
        if not bool(self.present.any()):
            return TrainRequest()
        return TrainRequest(prototypes=self.prototypes, present=self.present)

    def round(self, federation: Federation, number: int) -> None:
        total = federation.sum(self.client.train, self.request(), to=self.select(federation, number))
        self.combine(total.require(self.config.min_clients))

    def combine(self, total: TrainReply) -> None:
        """Take the means of the sums; a class that nobody described in this round keeps its prototype."""
        self.prototypes = pool_means(total.sums, total.counts, self.prototypes)
        self.present = self.present | (total.counts > 0).to(self.present.device)

    def expected_bytes(self) -> tuple[int, int]:
        calls, rows = self.rounds * self.asked, self.prototypes.nbytes
        return calls * (rows + 8 * len(self.present)), calls * (rows + len(self.present))


class PrototypeServer(ClassRowsServer[ConfigT], Generic[ConfigT]):
    """Whose rows are mean embeddings: all clients' must have one width."""

    def width(self) -> int:
        return common_width(self)


def common_width(server: ServerBase[Any]) -> int:
    """p: the width of all clients' embeddings.

    Raises:
        ConfigError: They differ.
    """
    specs = {client: (repr(spec), spec) for client, spec in server.context.models.items()}
    known = {name: server.build_model(spec).embedding_dim for name, spec in dict(specs.values()).items()}
    check_widths({client: known[name] for client, (name, _) in specs.items()})
    return next(iter(known.values()))


def sum_classes(
    client: TrainingClient[Any], rows: Callable[[View], Tensor], min_count: int, *, uniform: bool = False
) -> TrainReply:
    """What a client says of its classes, from its labelled training items.

    Args:
        client: Whose items.
        rows: Gives [items, p] of a view.
        min_count: Classes with fewer items are left 0.
        uniform: The mean of each class's rows, and 1, for their sum and number.
    """
    goal = client.trainer.objective
    assert isinstance(goal, ClassifyItems)
    with torch.no_grad():
        found = rows(client.data.kept_view(goal.items))
    sums, counts = class_sums(found, goal.labels, client.silo.schema.num_classes)
    few = counts < min_count
    sums[few], counts[few] = 0.0, 0
    if uniform:
        sums, counts = sums / counts.clamp_min(1).unsqueeze(1), counts.clamp_max(1)
    return TrainReply(sums=sums, counts=counts)


def of_shape(shape: tuple[int, int]) -> Check[TrainReply]:
    """For ``federation.ask``: refuses rows of another shape than (C, p); a sum refuses them by itself."""

    def check(client: ClientId, reply: TrainReply) -> None:
        if reply.sums.shape != shape:
            raise MessageError(
                f"client {client} must send prototypes of shape {shape}; {tuple(reply.sums.shape)} came. All clients' "
                f"embeddings must have one width."
            )

    return check


def gather_rows(replies: Replies[TrainReply]) -> tuple[Tensor, Tensor, Tensor]:
    """The clients' prototypes [m, p], their classes [m] and what each counts [m]; only classes that a client has."""
    if not len(replies):
        return torch.zeros(0, 0), *torch.zeros(2, 0, dtype=torch.int64)
    sums = torch.stack([reply.sums for _, reply in replies])
    counts = torch.stack([reply.counts for _, reply in replies])
    there = counts > 0
    weights = counts[there]
    return sums[there] / weights[:, None], there.nonzero()[:, 1], weights


def check_encoder(client: TrainingClient[Any]) -> None:
    """Make sure that embeddings are not the features themselves.

    Raises:
        ConfigError: The model has no hidden layer.
    """
    if not client.model.encoder_names():
        raise ConfigError(
            f"client {client.id}: prototypes are means of a hidden layer's embeddings, and {client.context.model.name} "
            f"as it is set has no hidden layer: means of the features themselves would leave the client. "
            f"{client.model.deeper}."
        )


def check_widths(widths: Mapping[ClientId, int]) -> None:
    """Make sure that all clients' embeddings have one width.

    Raises:
        ConfigError: Two differ; the text names them.
    """
    first, width = next(iter(widths.items()))
    for client, other in widths.items():
        if other != width:
            raise ConfigError(
                f"clients may run different models, but prototypes need one width of embeddings: client {first} has "
                f"{width}, client {client} has {other}. Give their last hidden layers one width (hidden: {width}), or "
                f"use the pool 'fedpg'."
            )
