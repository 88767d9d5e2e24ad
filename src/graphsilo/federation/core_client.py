"""Clients that share the inner layers of their model: those around them fit its features and classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic

from torch import Tensor

from graphsilo.federation.client import BESIDE_COMMON, ClientContext, ModelSpec
from graphsilo.federation.message import Tensors
from graphsilo.federation.training_client import ConfigT, TrainingClient
from graphsilo.models.base import Model
from graphsilo.random import Name


class CoreClient(TrainingClient[ConfigT], Generic[ConfigT]):
    """Shares the core of its model (``Model.core``); the layers around it are its own, drawn for it alone."""

    completes_common = True

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        self._around: dict[str, Tensor] = {}  # with which a common model that was kept predicts, not with today's

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        return super().build_model(spec, seed_names=(*seed_names, "client", self.id))

    @property
    def shared(self) -> Collection[str]:
        return core_of(self.model, self.weights)

    def install_aggregate(self, weights: Tensors) -> None:
        super().install_aggregate(weights)
        self._aggregate = {**(self._aggregate or {}), **self._around}

    def final_models(self) -> dict[str, Tensors]:
        around = {name: weight for name, weight in self.weights.items() if name not in self.shared}
        return {**super().final_models(), BESIDE_COMMON: around}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self._around = {name: weight.to(self.data.device) for name, weight in models.get(BESIDE_COMMON, {}).items()}


def core_of(model: Model, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of a model's weights that belong to its core."""
    return {name: value for name, value in weights.items() if name.startswith(model.core)}
