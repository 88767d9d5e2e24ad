"""Networks that are dense layers on finished columns: all that nodes tell each other comes before the first weight."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphsilo.models.base import Model
from graphsilo.models.stack import DENSE, StackedModel
from graphsilo.models.view import View


def first_columns(model: Model, view: View) -> Tensor | None:
    """[rows, p] what dense layers with ReLU between are put on, where a model is nothing else; None where it is."""
    if not isinstance(model, StackedModel) or not model._is_written_out(view) or model.precision != "float32":
        return None
    first, *rest = model.plan(view, model.depth)
    if any(terms != DENSE for terms in rest):
        return None
    return torch.cat([term.operator.dense() for term in first], 1)  # type: ignore[union-attr]


def dense_layers(model: Model, view: View, weights: Mapping[str, Tensor]) -> list[list[Tensor]]:
    """[inputs, outputs] weight and [outputs] bias of each of these layers; none without ``first_columns``.

    Args:
        model: Any.
        view: Of any graph.
        weights: Its parameters by name, or others in their place.
    """
    if not isinstance(model, StackedModel) or first_columns(model, view) is None:
        return []
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = []
    for layer in model.layers:
        *parts, bias = (weights[names[id(module._parameters[name])]] for module, name in layer.slots)  # type: ignore[union-attr]
        found.append([torch.cat(parts), bias])
    return found
