"""What every backbone promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from graphsilo.models.view import View
from graphsilo.types import Task


class Model(nn.Module, ABC):
    """A network that turns a View into one row per item.

    A model is an encoder and a head. The encoder's output on the items is the *embedding* (the input of the last
    layer, after its activation); methods that exchange prototypes or share only one half use this split.

    Attributes:
        embedding_dim: Width p of the embedding.
        num_classes: Width C of the output.
        head: Name prefix of the parameters behind the embedding.
        readout: ``node`` (a row per node) or ``graph`` (a row per graph of a collection).
    """

    embedding_dim: int
    num_classes: int
    head: str
    readout: Task = "node"

    @abstractmethod
    def forward(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        """Logits [items, classes]. With a generator: training mode, dropout drawn from it; without: evaluation."""

    @abstractmethod
    def embed(self, view: View, generator: torch.Generator | None = None) -> Tensor:
        """Embeddings [items, embedding_dim], the input of the last layer."""

    def head_names(self) -> tuple[str, ...]:
        """Names of the parameters behind the embedding."""
        return tuple(name for name, _ in self.named_parameters() if name.startswith(self.head))

    def encoder_names(self) -> tuple[str, ...]:
        """Names of all other parameters."""
        head = set(self.head_names())
        return tuple(name for name, _ in self.named_parameters() if name not in head)

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter anew from ``generator``, in the order of their names' registration."""
        for module in self.modules():
            initialise = getattr(module, "initialise", None)
            if callable(initialise):
                initialise(generator)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


class Dense(nn.Module):
    """Weight [inputs, outputs] and bias [outputs] of one layer: Xavier-uniform and zero, as PyG's layers.

    The weight is stored inputs first, so that sparse products need no transpose.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, gain: float = 1.0):
        super().__init__()
        self.gain = gain
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def initialise(self, generator: torch.Generator) -> None:
        inputs, outputs = self.weight.shape
        bound = self.gain * math.sqrt(6.0 / (inputs + outputs))
        with torch.no_grad():
            self.weight.copy_(torch.rand(self.weight.shape, generator=generator) * (2 * bound) - bound)
            if self.bias is not None:
                self.bias.zero_()

    def forward(self, values: Tensor) -> Tensor:
        """values @ weight + bias; [rows, inputs] to [rows, outputs]."""
        return values @ self.weight if self.bias is None else torch.addmm(self.bias, values, self.weight)


def widths(inputs: int, hidden: Iterable[int], outputs: int) -> list[tuple[int, int]]:
    """Pairs of layer widths, e.g. ``widths(5, [64], 3)`` is ``[(5, 64), (64, 3)]``."""
    sizes = [inputs, *hidden, outputs]
    return list(zip(sizes[:-1], sizes[1:], strict=True))
