"""Clients and servers whose model is a backbone beside an MLP on rows that a client knows of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.client import ClientBase, ModelSpec, build_model
from graphsilo.federation.message import Tensors
from graphsilo.federation.portable import Deciding
from graphsilo.federation.server import ServerBase
from graphsilo.federation.settings import MethodConfig
from graphsilo.federation.starts import start_backbone
from graphsilo.models.base import Model
from graphsilo.models.structured import Structured
from graphsilo.random import Name, generator

ConfigT = TypeVar("ConfigT", bound=MethodConfig)


class StructuredClient(ClientBase[ConfigT]):
    """Stands first among a class's bases."""

    model: Model
    _structure: Tensor | None = None

    @property
    def beside(self) -> tuple[int, int, float] | None:
        """Width of rows, of the MLP's hidden layer, and its dropout; None: the backbone alone."""
        raise NotImplementedError

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        context, draw = self.context, generator(self.context.seed, *seed_names)
        return build_structured(spec or context.model, self.silo.schema, self.beside, draw, context.device)

    @property
    def structure(self) -> Tensor | None:
        """[n, width] what the MLP sees of the training graph's nodes; None before it is known."""
        return self._structure

    @structure.setter
    def structure(self, rows: Tensor | None) -> None:
        self._structure = rows
        if isinstance(self.model, Structured):
            self.model.known = None if rows is None else (self.silo.graph.union, rows.to(self.data.device))

    def network_of(self, view: str) -> Deciding | None:
        found = super().network_of(view)  # rows are known of the own nodes alone
        return found.inner("encoder") if found is not None and isinstance(self.model, Structured) else found

    def final_models(self) -> dict[str, Tensors]:
        rows = self.structure
        return {**super().final_models(), **({} if rows is None else {"structure": {"rows": rows}})}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self.structure = models["structure"]["rows"] if "structure" in models else None


class StructuredServer(ServerBase[ConfigT]):
    """Stands first among a class's bases."""

    @property
    def beside(self) -> tuple[int, int, float] | None:
        """As the clients'."""
        raise NotImplementedError

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        context, draw = self.context, generator(self.context.seed, *seed_names)
        return build_structured(spec or context.common, self.schema, self.beside, draw, context.device)


def build_structured(
    spec: ModelSpec, schema: Schema, beside: tuple[int, int, float] | None, draw: torch.Generator, device: str
) -> Model:
    """The backbone, beside an MLP where there is anything for it."""
    backbone = build_model(spec, schema, draw, device)
    if beside is None:
        return backbone
    model = Structured(backbone, *beside)
    model.reset(draw)
    start_backbone(backbone, spec.start)
    return model.to(device)
