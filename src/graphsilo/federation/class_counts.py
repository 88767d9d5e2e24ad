"""Silos add up how many training items of each class they have, before the clients of a method are made.

Silos that answer one class to everything are evaluated: what leaves them, what their policies let out and what a secure
sum masks is as in any round, and only the sum is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ClientBase, EvaluateRequest
from graphsilo.federation.interface import Federation
from graphsilo.federation.settings import MethodConfig

if TYPE_CHECKING:
    from graphsilo.data.silos.silo import EvaluationSet
    from graphsilo.models.view import GraphTensors


class CountingClient(ClientBase[MethodConfig]):
    """A silo before it is the client of a method."""

    def _predict_set(self, evaluation: EvaluationSet, view: str) -> Tensor:
        return torch.zeros(evaluation.graph.num_items, self.silo.schema.num_classes)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        raise UnsupportedError("nothing has been trained yet: the silos are counting their classes.")


def count_classes(federation: Federation, minimum: int | None) -> tuple[int, ...]:
    """Training items of each class, at all silos together.

    Args:
        federation: Of :class:`CountingClient`.
        minimum: Fewest silos that must answer; None for all.

    Raises:
        FederationError: Too few did.
    """
    total = federation.sum(CountingClient.evaluate_sums, EvaluateRequest(views=["own"])).require(minimum)
    return tuple(total.counts["own/seen/train"].sum((0, 2)).tolist())
