"""The server's side: it sees a Federation and a Schema, never a Silo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from graphsilo import models
from graphsilo.data.silos.silo import Schema
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.settings import MethodConfig
from graphsilo.models.base import Model
from graphsilo.random import Name, generator
from graphsilo.types import ClientId

ConfigT = TypeVar("ConfigT", bound=MethodConfig)


@dataclass(frozen=True)
class ServerContext(Generic[ConfigT]):
    """What a server is made from: settings and public facts."""

    config: ConfigT
    schema: Schema
    model: ModelSpec
    seed: int
    clients: tuple[ClientId, ...]
    device: str = "cpu"


class ServerBase(ABC, Generic[ConfigT]):
    """Coordinates one method.

    Attributes:
        config: Settings of the method.
        schema: What all clients agree on.
        log: Numbers worth a curve; the runner stores them with the round and clears them.
    """

    def __init__(self, context: ServerContext[ConfigT]):
        self.context = context
        self.config = context.config
        self.schema = context.schema
        self.log: dict[str, float] = {}

    @property
    def rounds(self) -> int:
        """Communication rounds after set-up."""
        return self.config.total_rounds

    def expected_bytes(self) -> tuple[int, int]:
        """Bytes of tensors that all clients together send, and receive, in the whole run at most; zeros where nobody
        can say.

        Names, shapes and padding (each tensor begins at a multiple of 64 bytes) come to it. A person is told of many
        bytes before set-up; where it is zeros, after the first round.
        """
        return 0, 0

    def set_up(self, federation: Federation) -> None:
        """Phases before round 1."""

    @abstractmethod
    def round(self, federation: Federation, number: int) -> None:
        """One communication round; numbers start at 1."""

    def aggregate(self) -> Tensors | None:
        """The model every client would download now; None where the method has none."""
        return None

    def state(self) -> dict[str, Any]:
        """Everything that must survive a restart: tensors and plain values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()``."""

    def generator(self, *names: Name) -> torch.Generator:
        """A generator for one purpose of the server."""
        return generator(self.context.seed, "server", *names)

    def build_model(self) -> Model:
        """The common initial model, drawn from (seed, "model"): the same numbers at every party that draws it."""
        return models.build(
            self.context.model.name,
            num_features=self.schema.num_features,
            num_classes=self.schema.num_classes,
            task=self.schema.task,
            generator=generator(self.context.seed, "model"),
            **self.context.model.settings,
        ).to(self.context.device)

    @property
    def asked(self) -> int:
        """How many clients a round has: int(K · participation), at least one."""
        return max(1, int(len(self.context.clients) * self.config.participation + 1e-9))

    def select(self, federation: Federation, number: int) -> tuple[ClientId, ...]:
        """The clients of a round: int(K · participation) distinct ones, at least one, drawn uniformly."""
        everyone = federation.clients
        count = self.asked
        if count >= len(everyone):
            return everyone
        order = torch.randperm(len(everyone), generator=self.generator("round", number, "select"))[:count]
        return tuple(sorted(everyone[index] for index in order.tolist()))
