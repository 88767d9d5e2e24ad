"""A backbone whose classes are directions: logits are cosines between its output and a unit vector of each class."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from graphsilo.models.base import Model, Outputs, Trace
from graphsilo.models.dropout import Source
from graphsilo.models.view import View

_TINY = 1e-12


class CosineHead(Model):
    """s · cos(f(x), W_c) for each class c, f being a whole backbone of which the output is the embedding.

    W is a buffer: no step of an optimiser changes it. Where f(x) is 0, logits are 0 and have no gradient.

    Args:
        encoder: f, with p outputs.
        classes: C.
        scale: s at the start.
        trained: Whether s is a parameter.

    Attributes:
        prototypes: W [C, p], of unit rows; 0 before anybody sets it.
    """

    prototypes: Tensor
    scale: Tensor

    def __init__(self, encoder: Model, classes: int, *, scale: float, trained: bool):
        super().__init__()
        if trained:
            self.scale = nn.Parameter(torch.tensor(scale))
        else:
            self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("prototypes", torch.zeros(classes, encoder.num_classes))
        self.encoder = encoder
        self.embedding_dim, self.num_classes = encoder.num_classes, classes
        self.head, self.readout = "scale", encoder.readout
        self.message_layers = encoder.message_layers

    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        return self.classify(self.embed(view, generator))

    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        embeddings: Tensor = self.encoder(view, generator)
        return embeddings

    def outputs(self, view: View, generator: torch.Generator | None = None) -> Outputs:
        embeddings = self.embed(view, generator)
        return Outputs(self.classify(embeddings), embeddings)

    def classify(self, embeddings: Tensor) -> Tensor:
        return self.scale * (directions(embeddings)[0] @ self.prototypes.t())

    def trace(self, view: View, source: Source | None) -> Trace | None:
        found = self.encoder.trace(view, source)
        return None if found is None else _CosineTrace(self, found)

    def sources(self, view: View, times: int, generator: torch.Generator) -> Iterable[Source]:
        return self.encoder.sources(view, times, generator)


class _CosineTrace(Trace):
    """The cosines behind an encoder's pass."""

    def __init__(self, model: CosineHead, encoded: Trace):
        self.model, self.encoded = model, encoded
        self._unit, self._length = directions(encoded.logits)
        self._cosines = self._unit @ model.prototypes.t()
        self.logits = model.scale * self._cosines

    @property
    def embeddings(self) -> Tensor:
        return self.encoded.logits

    def pull(self, gradient: Tensor, inner: Tensor | None = None) -> list[Tensor]:
        slope = (gradient @ self.model.prototypes).mul_(self.model.scale)
        # Only what is at right angles to f(x) turns its direction.
        slope.sub_(self._unit * (self._unit * slope).sum(1, keepdim=True)).div_(self._length).mul_(self._length > _TINY)
        is_parameter = isinstance(self.model.scale, nn.Parameter)
        first = [(gradient * self._cosines).sum()] if is_parameter else []
        return [*first, *self.encoded.pull(slope if inner is None else slope.add_(inner))]


def directions(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, p] over their lengths, and these [n, 1], at least 1e-12; a row of 0 stays, without a gradient."""
    length = rows.norm(dim=1, keepdim=True).clamp_min(_TINY)
    return torch.where(length > _TINY, rows / length, 0.0), length
