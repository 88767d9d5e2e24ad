"""A backbone beside an MLP on vectors that say where in a larger graph each node stands."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.models.base import Dense, Model, Outputs
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.view import View


class Structured(Model):
    """Logits f(v) + MLP(z_v), f being a whole backbone, whose embedding is the model's.

    Weights are undrawn until ``reset``.

    Args:
        encoder: f, with C outputs.
        width: Of z.
        hidden: Of the MLP's one hidden layer.
        dropout: Rate behind it.

    Attributes:
        known: A graph, and z [n, width] of its nodes; on any other graph the logits are f's alone.
    """

    def __init__(self, encoder: Model, width: int, hidden: int, dropout: float):
        super().__init__()
        self.encoder, self.dropout = encoder, dropout
        self.first, self.second = Dense(width, hidden), Dense(hidden, encoder.num_classes)
        self.embedding_dim, self.num_classes = encoder.embedding_dim, encoder.num_classes
        self.head, self.readout, self.precision = f"encoder.{encoder.head}", encoder.readout, encoder.precision
        self.message_layers, self.reach = encoder.message_layers, encoder.reach
        self.known: tuple[Graph, Tensor] | None = None

    def _with_structure(self, logits: Tensor, view: View, generator: torch.Generator | None) -> Tensor:
        if self.known is None or view.data.graph is not self.known[0]:
            return logits
        rows = self.known[1]
        if view.items is not None:
            places = view.cached(("items",), lambda: torch.from_numpy(view.items).to(view.device))
            rows = rows.index_select(0, places)
        found: Tensor = self.second(relu_dropout(self.first(rows), self.dropout, generator))
        return logits + found

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        return self._with_structure(self.encoder(view, generator), view, generator)

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        embeddings: Tensor = self.encoder.embed(view, generator)
        return embeddings

    def outputs(self, view: View, generator: torch.Generator | None = None) -> Outputs:
        logits, embeddings = self.encoder.outputs(view, generator)
        return Outputs(self._with_structure(logits, view, generator), embeddings)
