"""Servers that average clients' models into one for all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from graphsilo.errors import FederationError
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Message, Tensors, diff_shapes, shapes_of
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.types import ClientId

ConfigT = TypeVar("ConfigT", bound=MethodConfig)
ReplyT = TypeVar("ReplyT", bound=Message)


class Weighted(Protocol):
    """A sum of clients' models, each counted as often as its weight says."""

    @property
    def weights(self) -> Tensors:
        """Σ p_k θ_k by name."""

    @property
    def num_samples(self) -> float:
        """Σ p_k."""


class AveragingServer(ServerBase[ConfigT], Generic[ConfigT]):
    """One shared model, moved each round to the mean of what clients made of it.

    A round is ``collect``, ``combine``, ``after``. A method writes the first, in its own messages, and replaces the
    others where it differs: ``collect`` may ask for single models and return their sum, ``after`` may train the mean
    further.

    Attributes:
        weights: The shared model.
    """

    kept: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.weights = self.first_weights()

    @abstractmethod
    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> Weighted:
        """Have these clients train, and return the weighted sum of their models: a message, or anything else, with
        ``weights`` and ``num_samples``."""

    def combine(self, total: Weighted) -> None:
        """Move the shared model towards the mean, ``total.weights`` over ``total.num_samples``, by ``rate``."""
        if total.num_samples > 0:  # otherwise nobody had anything to train on, and the model stays
            self.weights = step_to(self.weights, total.weights, total.num_samples, self.rate)

    def after(self, federation: Federation, number: int) -> None:
        """What follows in a round once the shared model is the new one; nothing, unless a method says what."""

    @property
    def rate(self) -> float:
        """Share of the mean change that is applied."""
        return 1.0

    def round(self, federation: Federation, number: int) -> None:
        self.combine(self.collect(federation, self.select(federation, number)))
        self.after(federation, number)

    def expected_bytes(self) -> tuple[int, int]:
        each = self.rounds * self.asked * sum(weight.nbytes for weight in self.weights.values())
        return each, each

    def aggregate(self) -> Tensors | None:
        return self.weights


def step_to(old: Mapping[str, Tensor], total: Mapping[str, Tensor], weight: float, rate: float) -> dict[str, Tensor]:
    """w + η_s (Σ p_k θ_k − w), with Σ p_k θ_k the total divided by its weight, in the old tensors' precision.

    Raises:
        FederationError: The total holds other tensors than the old ones.
    """
    if shapes_of(total) != shapes_of(old):
        raise FederationError(
            f"the clients' sum holds {diff_shapes(shapes_of(total), shapes_of(old))}, the server's model "
            f"{diff_shapes(shapes_of(old), shapes_of(total))}. Send the model in a field that the request has, too, "
            f"and a client that answers with another one is named."
        )
    new = {}
    for name, value in total.items():
        mean = torch.div(value.double(), weight)
        if rate != 1.0:
            mean = old[name].double().lerp_(mean, rate)
        new[name] = mean.to(old[name].dtype)
    return new
