"""Federations that share one row per class instead of weights, so that every client may run a model of its own.

A method derives from ``PrototypeClient`` and ``PrototypeServer``: it says what received prototypes add to the loss and,
where they are not means, how the server makes them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from graphsilo.errors import ConfigError
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors, View
from graphsilo.random import Name
from graphsilo.training.objective import ClassifyItems, Step
from graphsilo.training.prototypes import class_sums, nearest_prototype, pooled
from graphsilo.types import ClientId


class PrototypeConfig(LocalTrainingConfig):
    """Settings of methods that share prototypes."""

    weight_by: Literal["count", "uniform"] = setting(
        "count", "what a client's prototype counts in the mean of its class: its items of that class, or 1"
    )
    predict: Literal["head", "prototype"] = setting(
        "head", "how clients classify: with their model's head, or by the nearest received prototype"
    )
    initial: Literal["own", "common"] = setting(
        "own", "initial weights: each client's own, or the same for clients with equal models"
    )
    min_count: int = setting(1, "fewest training items of a class that a client describes", ge=1)


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


ConfigT = TypeVar("ConfigT", bound=PrototypeConfig)


class PrototypeClient(TrainingClient[ConfigT], Generic[ConfigT]):
    """Trains its own model, drawn to the prototypes it received.

    Attributes:
        prototypes: [C, p] as received; None before.
        present: [C] booleans.
    """

    prototypes: Tensor | None = None
    present: Tensor | None = None

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        if not self.model.encoder_names():
            raise ConfigError(
                f"client {self.id}: prototypes are means of a hidden layer's embeddings, and {context.model.name} as "
                f"it is set has no hidden layer: means of the features themselves would leave the client. Set "
                f"model.layers to 2."
            )

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        own: tuple[Name, ...] = ("client", self.id) if self.config.initial == "own" else ()
        return super().build_model(spec, seed_names=(*seed_names, *own))

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Local epochs, then this client's part in the prototypes."""
        if request.prototypes is not None and request.present is not None:
            self.prototypes = request.prototypes.to(self.data.device, copy=True)
            self.present = request.present.to(self.data.device, copy=True)
        if self.config.reset_optimizer:
            self.trainer.optimizer.reset()
        self.run_epochs(term=None if self.prototypes is None or not self.pulls else self.term)
        return self.upload_prototypes()

    @property
    def pulls(self) -> bool:
        """Whether ``term`` is anything at all with these settings."""
        return True

    @abstractmethod
    def term(self, step: Step) -> Tensor:
        """What the received prototypes add to a step's loss."""

    def rows(self, view: View) -> Tensor:
        """What prototypes are made of, [items, p]: the embeddings, in evaluation mode."""
        return self.model.embed(view)

    def upload_prototypes(self) -> TrainReply:
        """Sums over this client's labelled training items, after training."""
        goal = self.trainer.objective
        assert isinstance(goal, ClassifyItems)
        with torch.no_grad():
            rows = self.rows(self.data.kept_view(goal.items))
        sums, counts = class_sums(rows, goal.labels, self.silo.schema.num_classes)
        few = counts < self.config.min_count
        sums[few], counts[few] = 0.0, 0
        if self.config.weight_by == "uniform":
            sums, counts = sums / counts.clamp_min(1).unsqueeze(1), counts.clamp_max(1)
        return TrainReply(sums=sums, counts=counts)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if self.config.predict == "head" or self.prototypes is None or self.present is None:
            return super().predict(data, view)
        return nearest_prototype(self.rows(data.full), self.prototypes, self.present)

    def state(self) -> dict[str, Any]:
        return {**super().state(), **self._received()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._take(state)

    def final_models(self) -> dict[str, Tensors]:
        received = self._received() if self.config.predict == "prototype" else {}
        return {**super().final_models(), **({"prototypes": received} if received else {})}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self._take(models.get("prototypes", {}))

    def _received(self) -> dict[str, Tensor]:
        if self.prototypes is None or self.present is None:
            return {}
        return {"prototypes": self.prototypes, "present": self.present}

    def _take(self, received: Mapping[str, Tensor]) -> None:
        for name in ("prototypes", "present"):
            value = received.get(name)
            setattr(self, name, None if value is None else value.to(self.data.device, copy=True))


class PrototypeServer(ServerBase[ConfigT], Generic[ConfigT]):
    """Keeps a row for each class: the mean over clients, unless ``combine`` makes another of the sums.

    Attributes:
        prototypes: [C, p], 0 where there is none.
        present: [C] booleans.
    """

    client: type[PrototypeClient[Any]]

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.prototypes = torch.zeros(self.schema.num_classes, self.width(), device=context.device)
        self.present = torch.zeros(self.schema.num_classes, dtype=torch.bool, device=context.device)

    def width(self) -> int:
        """p: the width of all clients' embeddings.

        Raises:
            ConfigError: They differ.
        """
        specs = {client: (repr(spec), spec) for client, spec in self.context.models.items()}
        known = {name: self.build_model(spec).embedding_dim for name, spec in dict(specs.values()).items()}
        check_widths({client: known[name] for client, (name, _) in specs.items()})
        return next(iter(known.values()))

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
        self.prototypes = pooled(total.sums, total.counts, self.prototypes)
        self.present = self.present | (total.counts > 0).to(self.present.device)

    def expected_bytes(self) -> tuple[int, int]:
        calls, rows = self.rounds * self.asked, self.prototypes.nbytes
        return calls * (rows + 8 * len(self.present)), calls * (rows + len(self.present))

    def state(self) -> dict[str, Any]:
        return {"prototypes": self.prototypes, "present": self.present}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.prototypes = state["prototypes"].to(self.prototypes)
        self.present = state["present"].to(self.present)


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
