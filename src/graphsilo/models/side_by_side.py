"""Several models as one: equal ones side by side, in products as wide as all of them, which cost less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphsilo.models.base import Model
from graphsilo.models.registry import resolve
from graphsilo.models.stack import StackedModel


def join_models(models: Sequence[Model], name: str, settings: Mapping[str, Any]) -> Model | None:
    """One model whose logits are those of all of them, [items, m · C], model by model.

    Its first layer holds their weights column by column, every other one block by block. In evaluation mode each
    column is what the model itself would give, to rounding.

    Args:
        models: Equal ones, for nodes; they are not changed.
        name, settings: Of all of them.

    Returns:
        The model, frozen; None for backbones that are more than linear maps with ReLU between, whose columns are not
        independent.
    """
    count, first = len(models), models[0]
    if not isinstance(first, StackedModel) or first.activation is not None:
        return None
    arguments = resolve(name, settings).arguments("node")
    arguments["hidden"] = [count * width for width in arguments["hidden"]]
    parts = [dict(model.named_parameters()) for model in models]
    inputs = next(value.shape[0] for value in parts[0].values() if value.dim() == 2)
    joined = type(first)(inputs, count * first.num_classes, **arguments).requires_grad_(False)
    joined.precision = first.precision
    for key, parameter in joined.named_parameters():
        parameter.data = _join([part[key].detach() for part in parts], parameter.shape).contiguous()
    return joined


def _join(tensors: list[Tensor], shape: torch.Size) -> Tensor:
    if tensors[0].dim() == 1:
        return torch.cat(tensors)
    return torch.cat(tensors, 1) if tensors[0].shape[0] == shape[0] else torch.block_diag(*tensors)
