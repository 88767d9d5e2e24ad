"""Gradients that flow on from given ones, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.models import build as build_model
from graphsilo.models import names as model_names
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.upstream import gradients_through, trace
from kit.backbones import SCHEMA, typed
from kit.fairfgl import patch


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


@pytest.mark.parametrize("name", model_names())
def test_logits_and_embeddings_of_one_pass(name):
    """Values and gradients against the model's own forward and embed with the same dropout."""
    data = GraphTensors(typed(patch(nodes=20, features=6).graph), dtype=torch.float64)
    model = build_model(name, num_features=6, num_classes=2, seed=0, schema=SCHEMA, hidden=4).double()
    parameters = list(model.parameters())
    (logits, embeddings), pull = trace(model, data.full, generator(1), parameters)
    expected, own = model(data.full, generator(1)), model.embed(data.full, generator(1))
    torch.testing.assert_close(logits, expected.detach())
    torch.testing.assert_close(embeddings, own.detach())
    outer, inner = (
        torch.randn(output.shape, generator=generator(2), dtype=torch.float64) for output in (logits, embeddings)
    )
    total = (expected * outer).sum()
    if own.requires_grad:
        total = total + (own * inner).sum()
    for got, wanted in zip(pull(outer, inner), torch.autograd.grad(total, parameters, allow_unused=True), strict=True):
        torch.testing.assert_close(got, torch.zeros_like(got) if wanted is None else wanted)


@pytest.mark.parametrize("generated", [True, False])
def test_running_statistics_move_once_a_pass(generated):
    """Logits and embeddings are of one pass, so BatchNorm's statistics move once, and gradients are right."""
    data = GraphTensors(patch(nodes=20, features=6).graph, dtype=torch.float64)
    build = {"num_features": 6, "num_classes": 2, "seed": 0, "hidden": 4, "norm": "batch"}
    once, twice = (build_model("gin", **build).double() for _ in range(2))
    draws = [generator(1) if generated else None for _ in range(3)]
    expected = once(data.full, draws[0])
    (logits, embeddings), pull = trace(twice, data.full, draws[1], list(twice.parameters()))
    torch.testing.assert_close(logits, expected.detach())
    for name, buffer in once.named_buffers():
        torch.testing.assert_close(twice.get_buffer(name), buffer)
    total = expected.sum() + once.embed(data.full, draws[2]).sum()
    wanted = torch.autograd.grad(total, list(once.parameters()))
    for got, one in zip(pull(torch.ones_like(logits), torch.ones_like(embeddings)), wanted, strict=True):
        torch.testing.assert_close(got, one)
