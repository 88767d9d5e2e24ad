"""Models beside dense matrices and PyG."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphsilo.models import GraphTensors, Model, build
from graphsilo.random import generator

pyg = pytest.importorskip("torch_geometric.nn")


def made(name: str, **options: object) -> Model:
    model = build(name, num_features=6, num_classes=3, seed=0, **{"hidden": 8, **options})
    draws = generator(0, "shake")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
    return model


def put(target: nn.Parameter, value: Tensor) -> None:
    assert target.shape == value.shape
    with torch.no_grad():
        target.copy_(value)


def check(model: Model, data: GraphTensors, wanted: Tensor) -> None:
    torch.testing.assert_close(model(data.full), wanted, atol=1e-5, rtol=1e-4)
    rows = np.array([3, 20, 0])
    torch.testing.assert_close(model(data.view(rows)), wanted[rows], atol=1e-5, rtol=1e-4)
