"""Weights that a model begins with in place of drawn ones: those that a run of before has in a file."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from graphsilo.federation.message import Tensors
from graphsilo.federation.model_files import tensors_in_file
from graphsilo.training.local import load_weights, weights_of


def read_start(start: tuple[str, str]) -> Tensors:
    """The weights in a file, by the names that they have in a model.

    Args:
        start: A file of tensors on this machine, and what their names there have in front of the model's own.

    Raises:
        MessageError: The file is not one of tensors.
    """
    path, prefix = start
    found = tensors_in_file(Path(path).read_bytes())
    return {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}


def start_backbone(model: nn.Module, start: tuple[str, str] | None) -> None:
    """Give a backbone the weights that its spec begins with, if it names any, once its own were drawn."""
    if start is not None:
        begin_with(model, read_start(start))


def begin_with(model: nn.Module, weights: Tensors) -> None:
    """Copy those weights into a model that have a name and shape of its own; the others stay as they were drawn."""
    mine = weights_of(model)
    fitting = [name for name, tensor in mine.items() if name in weights and weights[name].shape == tensor.shape]
    load_weights(mine, {name: weights[name] for name in fitting}, names=fitting)
