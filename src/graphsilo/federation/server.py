"""The server's side: it sees a Federation and a Schema, never a Silo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.client import ModelSpec, build_model, common_model, load_states, states_of
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.settings import MethodConfig
from graphsilo.models.base import Model
from graphsilo.random import Name, generator
from graphsilo.training.local import weights_of
from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.training.work import Work

ConfigT = TypeVar("ConfigT", bound=MethodConfig)


@dataclass(frozen=True)
class ServerContext(Generic[ConfigT]):
    """What a server is made from: settings and public facts.

    Attributes:
        config: Settings of the method.
        schema: What all clients agree on.
        models: The backbone of every client.
        seed: Seed of the run.
        clients: Who takes part, ascending.
        device: Where the server computes.
        select_by: Name of the metric of all choices by validation items, the run's ``evaluation.select_by``.
    """

    config: ConfigT
    schema: Schema
    models: Mapping[ClientId, ModelSpec]
    seed: int
    clients: tuple[ClientId, ...]
    device: str = "cpu"
    select_by: str = "accuracy"

    @property
    def common(self) -> ModelSpec:
        """The backbone of the server's model: that of the first client."""
        return common_model(self.models)


class ServerBase(ABC, Generic[ConfigT]):
    """Coordinates one method.

    Attributes:
        config: Settings of the method.
        schema: What all clients agree on.
        log: Numbers worth a curve; the runner stores them with the round and clears them.
        kept: Names of the attributes that are the server's state; a method names its own.
        stateful: Likewise of those that have a state of their own, as at clients.
        aggregates_at_clients: Whether each client has an aggregate of its own, which the server never sees.
        ends_early: Whether further rounds would change nothing: then there are none.
        turns_after: The last round of its first kind, where later ones cost otherwise.
        works: Long pieces of its work since the last round, as ``work`` made them; the runner takes them as well.
    """

    kept: ClassVar[tuple[str, ...]] = ()
    stateful: ClassVar[tuple[str, ...]] = ()
    aggregates_at_clients: ClassVar[bool] = False
    turns_after: int | None = None

    def __init__(self, context: ServerContext[ConfigT]):
        self.context = context
        self.config = context.config
        self.schema = context.schema
        self.log: dict[str, float] = {}
        self.ends_early = False
        self.works: list[Work] = []
        # The runner's: called after every step, and what a checkpoint within a piece of work has kept of it.
        self.after_step: Callable[[Work], None] = lambda work: None
        self.unfinished: Mapping[str, Any] | None = None

    @property
    def rounds(self) -> int:
        """Communication rounds after set-up."""
        return self.config.total_rounds

    def expected_bytes(self) -> tuple[int, int]:
        """Bytes of tensors that all clients together send, and receive, in the whole run at most; zeros where nobody
        can say.

        Names, shapes and padding (each tensor begins at a multiple of 64 bytes) come to it. A person is warned of many
        bytes before set-up; where it is zeros, after the first round.
        """
        return 0, 0

    def set_up(self, federation: Federation) -> None:
        """Phases before round 1."""

    @abstractmethod
    def round(self, federation: Federation, number: int) -> None:
        """One communication round; numbers start at 1."""

    def work(
        self,
        name: str,
        steps: int,
        state: Callable[[], Mapping[str, Any]] | None = None,
        load_state: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Work:
        """The steps of a long piece of work: ``for step in self.work(...)`` says to people how far it is.

        In set-up a run that was stopped goes on after the last step of which a checkpoint knows. ``set_up`` is then
        called again, on a server that ``load_state`` was called on: what came before the work must be in the state.

        Args:
            name: What a person reads, such as "surrogate".
            steps: How many.
            state: All that the next step depends on; None where clients change from step to step as well: then no
                checkpoint is kept within.
            load_state: Takes it back.
        """
        from graphsilo.training.work import Work

        work = Work(name, steps, state, self.after_step)
        if self.unfinished is not None and load_state is not None and self.unfinished["name"] == name:
            load_state(self.unfinished["state"])
            work.load_state(self.unfinished)
            self.unfinished = None
        self.works.append(work)
        return work

    def aggregate(self) -> Tensors | None:
        """The model every client would download now; None where the method has none, or one for each client."""
        return None

    def aggregates(self) -> Mapping[ClientId, Tensors]:
        """The model each client would download now: the same one for all, unless a method has one for each.

        Clients with the same model are given the same object, which is then sent and kept once. Empty where the method
        has none.
        """
        common = self.aggregate()
        return dict.fromkeys(self.context.clients, common) if common else {}

    def state(self) -> dict[str, Any]:
        """Everything that must survive a restart: tensors and plain values, here those of ``kept`` and ``stateful``."""
        return {name: _copy(getattr(self, name)) for name in self.kept} | states_of(self, self.stateful)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()``."""
        for name in self.kept:
            value, before = _copy(state[name]), getattr(self, name, None)
            if isinstance(value, Tensor) and isinstance(before, Tensor):
                value = value.to(before.device)  # saved tensors come back on the CPU
            setattr(self, name, value)
        load_states(self, self.stateful, state)

    def generator(self, *names: Name) -> torch.Generator:
        """A generator for one purpose of the server."""
        return generator(self.context.seed, "server", *names)

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        """A fresh model of the common architecture, or of a client's, drawn from (seed, *seed_names).

        The same numbers at every party that draws it.
        """
        draw = generator(self.context.seed, *seed_names)
        return build_model(spec or self.context.common, self.schema, draw, self.context.device)

    def first_weights(self) -> dict[str, Tensor]:
        """The weights that the common model begins with, in main memory, where sums of what clients answer are."""
        return {name: tensor.cpu() for name, tensor in weights_of(self.build_model()).items()}

    @property
    def asked(self) -> int:
        """How many clients a round has: int(K · participation), at least one."""
        return self.config.count_asked(len(self.context.clients))

    def select(self, federation: Federation, number: int) -> tuple[ClientId, ...]:
        """The clients of a round: int(K · participation) distinct ones, at least one, drawn uniformly."""
        everyone = federation.clients
        count = self.asked
        if count >= len(everyone):
            return everyone
        order = torch.randperm(len(everyone), generator=self.generator("round", number, "select"))[:count]
        return tuple(sorted(everyone[index] for index in order.tolist()))


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
