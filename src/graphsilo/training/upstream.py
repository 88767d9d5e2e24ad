"""Gradients from where a loss was differentiated by hand: what flows on from given gradients of some outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphsilo.models.base import Model, Outputs
from graphsilo.models.view import View


def gradients_of(value: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a scalar for the inputs; zeros for one that plays no part."""
    found = torch.autograd.grad(value, inputs, allow_unused=True)
    return [torch.zeros_like(one) if slope is None else slope for one, slope in zip(inputs, found, strict=True)]


def gradients_through(outputs: Sequence[Tensor], upstream: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of Σ_k ⟨upstream_k, output_k⟩ for the inputs; zeros for one that plays no part.

    The same as ``torch.autograd.grad`` with ``grad_outputs``, which loads torch's symbolic shapes at its first call:
    over a second and 60 MB in every process.
    """
    with torch.enable_grad():
        ends = [torch.dot(output.flatten(), slope.flatten()) for output, slope in zip(outputs, upstream, strict=True)]
        whole = sum(ends[1:], ends[0])
    return gradients_of(whole, inputs)


def trace(
    model: Model,
    view: View,
    generator: torch.Generator | None,
    parameters: Sequence[Tensor],
    others: View | None = None,
) -> tuple[Outputs, Callable[[Tensor, Tensor | None], list[Tensor]]]:
    """Logits and embeddings of one pass, and the way back from gradients of both to those of the parameters.

    By hand where the model can (``Model.trace``), else by autograd: the same numbers to rounding.

    Args:
        model: What is run.
        view: On these rows.
        generator: Source of dropout; None for evaluation.
        parameters: The model's, in its order.
        others: Embeddings are of these rows instead, in evaluation (``Model.outputs_beside``).
    """
    first = model.trace(view, generator)
    if first is not None and others is None:
        return Outputs(first.logits, first.embeddings), first.pull
    second = None if others is None else model.trace(others, None)
    if first is not None and second is not None:

        def both(gradient: Tensor, inner: Tensor | None) -> list[Tensor]:
            pulled = second.pull(torch.zeros_like(second.logits), inner)
            return [one.add_(other) for one, other in zip(first.pull(gradient), pulled, strict=True)]

        return Outputs(first.logits, second.embeddings), both
    with torch.enable_grad():
        outputs = model.outputs(view, generator) if others is None else model.outputs_beside(view, others, generator)

    def back(gradient: Tensor, inner: Tensor | None) -> list[Tensor]:
        if inner is None or not outputs.embeddings.requires_grad:
            return gradients_through([outputs.logits], [gradient], parameters)
        return gradients_through(outputs, [gradient, inner], parameters)

    return Outputs(*(output.detach() for output in outputs)), back
