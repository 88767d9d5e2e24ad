"""Models beside dense matrices and PyG."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphsilo.models import GraphTensors, Model
from kit import backbones
from kit.backbones import shaken

pyg = pytest.importorskip("torch_geometric.nn")


def made(name: str, **options: object) -> Model:
    return shaken(backbones.made(name, options, features=6))


def put(target: nn.Parameter, value: Tensor) -> None:
    assert target.shape == value.shape
    with torch.no_grad():
        target.copy_(value)


def check(model: Model, data: GraphTensors, wanted: Tensor) -> None:
    torch.testing.assert_close(model(data.full), wanted, atol=1e-5, rtol=1e-4)
    rows = np.array([3, 20, 0])
    torch.testing.assert_close(model(data.view(rows)), wanted[rows], atol=1e-5, rtol=1e-4)
