"""Gradients that flow on from given ones, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.training.upstream import gradients_through


@pytest.mark.parametrize("grad", [True, False])
def test_two_outputs(grad):
    """y = 2a and z = ab at a = 3, b = 5, with 7 and 11 flowing in: 2·7 + 5·11 = 69 for a, 3·11 = 33 for b."""
    a, b, unused = (torch.tensor([value], requires_grad=True) for value in (3.0, 5.0, 1.0))
    outputs = [2.0 * a, a * b]
    with torch.set_grad_enabled(grad):  # the caller's mode does not matter
        found = gradients_through(outputs, [torch.tensor([7.0]), torch.tensor([11.0])], [a, b, unused])
    assert [slope.tolist() for slope in found] == [[69.0], [33.0], [0.0]]


@pytest.mark.parametrize("grad", [True, False])
def test_one_output(grad):
    matrix, rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), torch.tensor([[1.0, 1.0]])
    output = rows @ matrix
    with torch.set_grad_enabled(grad):
        (found,) = gradients_through([output], [torch.tensor([[10.0, 20.0]])], [matrix])
    assert found.tolist() == [[10.0, 20.0], [10.0, 20.0]]
