"""Logits and embeddings of one pass: those of ``forward`` and ``embed``, with the same dropout, and their gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.models import GraphTensors, Model, build
from graphsilo.random import generator
from graphsilo.training.upstream import trace
from kit.backbones import IDS, VARIANTS, made, shaken

ROWS = np.array([7, 2, 19, 0, 11])


def tied(outputs):
    """A scalar that depends on both."""
    weights = torch.arange(1.0, len(outputs.logits) + 1)[:, None]
    return (weights * outputs.logits.square()).sum() + (weights * outputs.embeddings.square()).sum() / 5


def slopes(model: Model, outputs) -> list[torch.Tensor]:
    found = torch.autograd.grad(tied(outputs), list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(mine) if one is None else one for mine, one in zip(model.parameters(), found, strict=True)]


@pytest.mark.parametrize("rows", [None, ROWS], ids=["full", "some"])
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_one_pass_is_both(name, options, rows, make_graph) -> None:
    model, view = shaken(made(name, options)), GraphTensors(make_graph(seed=1)).view(rows)
    draws = [generator(5) for _ in range(3)]
    found = model.outputs(view, draws[0])
    torch.testing.assert_close(found.logits, model(view, draws[1]))
    assert torch.equal(draws[0].get_state(), draws[1].get_state())
    plain = model.outputs(view)
    torch.testing.assert_close(plain.logits, model(view))
    torch.testing.assert_close(plain.embeddings, model.embed(view))
    if rows is None:  # on fewer rows ``embed`` needs fewer neighbours, and draws fewer masks
        twice = Model.outputs(model, view, draws[2])
        torch.testing.assert_close(found.embeddings, twice.embeddings)
        for mine, theirs in zip(slopes(model, found), slopes(model, twice), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_the_way_back_without_autograd(name, options, make_graph) -> None:
    """On some rows, with gradients of both flowing in."""
    model, view = shaken(made(name, options)), GraphTensors(make_graph(seed=1)).view(ROWS)
    parameters = list(model.parameters())
    outputs = model.outputs(view, generator(5))
    outer, inner = (torch.randn(part.shape, generator=generator(6)) for part in outputs)
    whole = (outer * outputs.logits).sum() + (inner * outputs.embeddings).sum()
    expected = torch.autograd.grad(whole, parameters, allow_unused=True)
    found, pull = trace(model, view, generator(5), parameters)
    torch.testing.assert_close(found.logits, outputs.logits.detach())
    torch.testing.assert_close(found.embeddings, outputs.embeddings.detach())
    for mine, theirs in zip(pull(outer, inner), expected, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if theirs is None else theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["gin", "gcn", "gat", "sage", "gcnii"])
def test_graphs_of_a_collection(name, make_collection) -> None:
    model = build(name, num_features=5, num_classes=2, task="graph", seed=0, hidden=4)
    view = GraphTensors(make_collection()).view(np.array([4, 1, 2]))
    found = model.outputs(view, generator(5))
    torch.testing.assert_close(found.logits, model(view, generator(5)))
    torch.testing.assert_close(found.embeddings, model.embed(view, generator(5)))
    assert found.embeddings.shape == (3, model.embedding_dim)


def test_running_statistics_move_once(make_graph) -> None:
    one, two = (build("gin", num_features=12, num_classes=3, seed=0, hidden=8, norm="batch") for _ in range(2))
    view = GraphTensors(make_graph()).full
    one.outputs(view, generator(5))
    Model.outputs(two, view, generator(5))
    for (name, left), right in zip(one.named_buffers(), two.buffers(), strict=True):
        torch.testing.assert_close(left, right, msg=name)


@pytest.mark.parametrize("others", [None, np.array([0, 2, 19, 11, 7, 5])], ids=["all", "some"])
@pytest.mark.parametrize(
    ("name", "options"), [*VARIANTS, ("gamlp", {"legacy_layout": True})], ids=[*IDS, "gamlp-legacy"]
)
def test_two_passes_at_once(name, options, others, make_graph) -> None:
    """Some items with dropout, others without: what two passes give, and the sum of their gradients."""
    model, data = shaken(made(name, options)), GraphTensors(make_graph(seed=1, sparse=True))
    items, beside = data.kept_view(ROWS), data.full if others is None else data.kept_view(others)
    parameters, draws = list(model.parameters()), [generator(5) for _ in range(2)]
    found, pull = trace(model, items, draws[0], parameters, beside)
    logits, embeddings = model(items, draws[1]), model.embed(beside)
    assert torch.equal(draws[0].get_state(), draws[1].get_state())
    torch.testing.assert_close(found.logits, logits.detach())
    torch.testing.assert_close(found.embeddings, embeddings.detach())
    outer, inner = (torch.randn(part.shape, generator=generator(6)) for part in found)
    whole = (outer * logits).sum() + (inner * embeddings).sum()
    expected = torch.autograd.grad(whole, parameters, allow_unused=True)
    for mine, theirs in zip(pull(outer, inner), expected, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if theirs is None else theirs, atol=1e-5, rtol=1e-4)
