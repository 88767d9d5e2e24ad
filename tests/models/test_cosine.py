"""Logits that are cosines, and their gradient written out."""

from __future__ import annotations

import pytest
import torch

from graphsilo import models
from graphsilo.models.cosine import CosineHead, directions
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training.prototypes import orthogonal_rows
from kit.fairfgl import patch
from kit.silos import graphs_of


def made(name, trained, task="node", **more):
    options = {"num_features": 5, "num_classes": 6, "task": task, "seed": 0, "hidden": 5, **more}
    head = CosineHead(models.build(name, **options), 2, scale=3.0, trained=trained)
    head.prototypes.copy_(orthogonal_rows(2, 6, generator(1)))
    return head


def test_logits_by_hand():
    """f = (3, 4) has the direction (0.6, 0.8): 2 · 0.6 and 2 · 0.8 to the axes, whatever its length."""
    head = CosineHead(models.build("mlp", num_features=3, num_classes=2, seed=0), 2, scale=2.0, trained=True)
    head.prototypes.copy_(torch.eye(2))
    rows = torch.tensor([[3.0, 4.0], [30.0, 40.0], [0.0, 0.0], [-1.0, 0.0]])
    expected = torch.tensor([[1.2, 1.6], [1.2, 1.6], [0.0, 0.0], [-2.0, 0.0]])
    torch.testing.assert_close(head.classify(rows), expected)


def test_a_row_of_0_has_no_direction_and_no_gradient():
    rows = torch.tensor([[0.0, 0.0], [0.0, 2.0]], requires_grad=True)
    found, length = directions(rows)
    assert found.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert length[1].item() == 2.0
    found.sum().backward()
    assert rows.grad.tolist() == [[0.0, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(("name", "task"), [("gcn", "node"), ("mlp", "node"), ("gat", "node"), ("gin", "graph")])
def test_its_gradient_is_autograds(name, task, trained):
    """Where the backbone has one of its own; gat and gin leave it to autograd."""
    silo = graphs_of(0) if task == "graph" else patch()
    head = made(name, trained, task, num_features=silo.schema.num_features)
    view = GraphTensors(silo.graph).full
    names = [key for key, _ in head.named_parameters()]
    assert ("scale" in names) is trained
    assert "prototypes" not in names
    found = head.trace(view, generator(2) if name != "gin" else None)
    assert (found is not None) is (name in ("gcn", "mlp"))
    if found is None:
        return
    logits = head(view, generator(2))
    torch.testing.assert_close(found.logits, logits.detach())
    assert logits.detach().abs().max().item() <= 3.0
    torch.testing.assert_close(found.embeddings, head.embed(view, generator(2)).detach())
    slope, inner = (torch.randn(part.shape, generator=generator(3)) for part in (logits, found.embeddings))
    for more in (None, inner):
        whole = (logits * slope).sum() + (0.0 if more is None else (head.embed(view, generator(2)) * more).sum())
        expected = torch.autograd.grad(whole, list(head.parameters()), retain_graph=True)
        for mine, theirs in zip(found.pull(slope, more), expected, strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


def test_embeddings_are_the_encoders_output():
    head = made("gcn", True)
    view = GraphTensors(patch().graph).full
    logits, embeddings = head.outputs(view)
    torch.testing.assert_close(embeddings, head.encoder(view))
    torch.testing.assert_close(logits, head(view))
    assert (head.embedding_dim, head.num_classes) == (6, 2)
