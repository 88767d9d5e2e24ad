"""Servers that mix clients' models: into one for each of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from graphsilo.federation.interface import Federation, Replies
from graphsilo.federation.message import Message, Tensors
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import MethodConfig
from graphsilo.types import ClientId

ConfigT = TypeVar("ConfigT", bound=MethodConfig)
ReplyT = TypeVar("ReplyT", bound=Message)


class MixingServer(ServerBase[ConfigT], Generic[ConfigT, ReplyT]):
    """A model for each client, each round a mixture of the models that clients sent.

    A round is ``collect`` and ``shares``, which a method writes, and ``mix``. Who is not asked keeps its model. Who was
    never asked has the mean of the others' models, each counted with its own share of its last mixture.

    Attributes:
        models: The model of every client; at first the common initial one.
        own_shares: The share that each client's own model had in its last mixture, for those that were asked.
    """

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.models: dict[ClientId, Tensors] = dict.fromkeys(context.clients, self.first_weights())
        self.own_shares: dict[ClientId, float] = {}

    @abstractmethod
    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> Replies[ReplyT]:
        """Send each of these clients its model and return what they answer; their models are in ``weights``."""

    @abstractmethod
    def shares(self, replies: Replies[ReplyT]) -> Tensor:
        """[K, K]: what each answer counts in each client's mixture, at least 0, both in the order of ``replies``."""

    def round(self, federation: Federation, number: int) -> None:
        replies = self.collect(federation, self.select(federation, number))
        if not replies:
            return
        answers: Sequence[Any] = list(replies.answers.values())
        shares = self.shares(replies)
        # Whom nobody counts for, itself included, keeps the model that it sent.
        shares = torch.where(shares.sum(1, keepdim=True) > 0, shares, torch.eye(len(answers), dtype=shares.dtype))
        mixed = mix([answer.weights for answer in answers], shares)
        self.models.update(zip(replies.clients, mixed, strict=True))
        self.own_shares.update(zip(replies.clients, shares.diagonal().tolist(), strict=True))
        if len(self.own_shares) < len(self.models):
            row = torch.tensor([list(self.own_shares.values())], dtype=torch.float64)
            (mean,) = mix([self.models[client] for client in self.own_shares], row)
            self.models.update(dict.fromkeys(self.models.keys() - self.own_shares.keys(), mean))

    def expected_bytes(self) -> tuple[int, int]:
        model = next(iter(self.models.values()))
        each = self.rounds * self.asked * sum(weight.nbytes for weight in model.values())
        return each, each

    def aggregates(self) -> Mapping[ClientId, Tensors]:
        return self.models

    def state(self) -> dict[str, Any]:
        return {"models": pack_models(self.models), "own_shares": dict(self.own_shares)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.models = unpack_models(state["models"])
        self.own_shares = dict(state["own_shares"])


def mix(models: Sequence[Tensors], shares: Tensor) -> list[dict[str, Tensor]]:
    """Σ_j s_ij θ_j / Σ_j s_ij for every row i, summed in float64.

    Args:
        models: θ_j, of the same names and shapes.
        shares: [I, K] s, at least 0 and in each row somewhere above.
    """
    weights = shares.double() / shares.double().sum(1, keepdim=True)
    mixed: list[dict[str, Tensor]] = [{} for _ in range(len(shares))]
    for name, first in models[0].items():
        rows = torch.stack([model[name].reshape(-1) for model in models]).double()
        for row, mean in zip(mixed, (weights.to(rows.device) @ rows).to(first.dtype), strict=True):
            row[name] = mean.view(first.shape)
    return mixed


def pack_models(models: Mapping[ClientId, Tensors]) -> dict[str, Any]:
    """Models by client for a state: every one once, however many clients have it, and which of them each has."""
    places: dict[int, int] = {}
    distinct = {places.setdefault(id(weights), len(places)): dict(weights) for weights in models.values()}
    return {"models": list(distinct.values()), "of": {client: places[id(models[client])] for client in models}}


def unpack_models(state: Mapping[str, Any]) -> dict[ClientId, Tensors]:
    """The models of ``pack_models``; those that clients had in common they have in common again."""
    return {client: state["models"][place] for client, place in state["of"].items()}
