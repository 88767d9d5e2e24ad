"""GIN against PyG."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from graphsilo.models import GraphTensors, build
from graphsilo.random import generator
from kit.backbones import Dense, close, double
from kit.models import check, made, put, pyg


@pytest.mark.parametrize("train_eps", [False, True])
def test_gin(setting, train_eps: bool) -> None:
    data, x, edges = setting
    model = made("gin", eps=0.4, train_eps=train_eps)
    for index, layer in enumerate(model.layers):
        first, second = (nn.Linear(*linear.weight.shape) for linear in layer.mlp)
        eps = layer.eps.value.item() if train_eps else 0.4
        conv = pyg.GINConv(nn.Sequential(first, nn.ReLU(), second), eps=eps)  # draws the weights anew
        for target, source in zip((first, second), layer.mlp, strict=True):
            put(target.weight, source.weight.t())
            put(target.bias, source.bias)
        x = conv(x, edges)
        x = x.relu() if index < 1 else x
    check(model, data, x)


def test_gin_batch_norm(dense: Dense) -> None:
    model = double("gin", norm="batch")
    assert len(list(model.buffers())) == 6  # mean, variance and a counter for each of two layers
    before = model(dense.data.full)
    close(model(dense.data.view(np.array([4, 2]))), before[[4, 2]])
    model(dense.data.full, generator(0))
    assert not torch.equal(model(dense.data.full), before)  # the running statistics moved
    model.reset(generator(0))
    assert all(value.item() in (0.0, 1.0) for buffer in model.buffers() for value in buffer.view(-1))


def test_gin_jumping_reads_every_layer(make_collection) -> None:
    data = GraphTensors(make_collection())
    options = {"layers": 3, "hidden": 4, "seed": 0, "num_features": 5, "num_classes": 2}
    model = build("gin", task="graph", jumping=True, **options)
    assert model.embedding_dim == 12
    assert model.embed(data.full).shape == (6, 12)
    last = build("gin", task="graph", **options)
    torch.testing.assert_close(model.embed(data.full)[:, 8:], last.embed(data.full))
    torch.testing.assert_close(model(data.view(np.array([3]))), model(data.full)[[3]])
