"""A backbone with a projection behind it."""

from __future__ import annotations

import torch

from graphsilo.models.projected import Projected
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from kit.backbones import made, shaken
from kit.training import graph


def test_it_is_two_layers_and_a_linear_classifier_on_the_backbones_rows():
    view, model = GraphTensors(graph()).full, Projected(made("gcn", {"dropout": 0.5}, classes=5), 3)
    model.reset(generator(0))
    shaken(model)
    first, second = model.projection
    with torch.no_grad():
        rows = model.encoder(view, generator(1)).relu() @ first.weight + first.bias
        rows = rows.relu() @ second.weight + second.bias
        logits, embeddings = model.outputs(view, generator(1))
        torch.testing.assert_close(embeddings, rows)
        torch.testing.assert_close(logits, rows @ model.output.weight + model.output.bias)
        assert torch.equal(model(view, generator(1)), logits)
        assert torch.equal(model.embed(view, generator(1)), embeddings)
        assert torch.equal(model.classify(embeddings), logits)
    assert (model.embedding_dim, model.num_classes, logits.shape[1]) == (5, 3, 3)
    assert model.head_names() == ("output.weight", "output.bias")
