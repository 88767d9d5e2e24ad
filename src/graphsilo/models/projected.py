"""A backbone with a projection between it and a linear classifier."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.models.base import Dense, HeadedModel, Model
from graphsilo.models.view import View


class Projected(HeadedModel):
    """Logits of a linear layer on two layers, with ReLU before each, on the rows that a backbone gives.

    The embedding is the projection's output. Weights are undrawn until ``reset``.

    Args:
        encoder: The backbone; its C is the width of the projection and of the embedding.
        classes: C.
    """

    def __init__(self, encoder: Model, classes: int):
        super().__init__()
        width = encoder.num_classes
        self.encoder, self.output = encoder, Dense(width, classes)
        self.projection = torch.nn.ModuleList([Dense(width, width), Dense(width, width)])
        self.embedding_dim, self.num_classes, self.head = width, classes, "output."
        self.readout, self.precision = encoder.readout, encoder.precision
        self.message_layers = encoder.message_layers

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        rows: Tensor = self.encoder(view, generator)
        for layer in self.projection:
            rows = layer(rows.relu())
        return rows
