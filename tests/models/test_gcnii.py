"""GCNII against PyG, and its formula written out."""

from __future__ import annotations

import math

import pytest
import torch

from kit.backbones import DOUBLE, Dense, close, double
from kit.models import check, made, put, pyg


@pytest.mark.parametrize("name", ["gcnii", "gcnii_openfgl"])
def test_gcnii_against_pyg(weighted, name: str) -> None:
    data, x, edges, weights = weighted
    model = made(name, layers=4)
    start = x = (x @ model.input.weight + model.input.bias).relu()
    for level, layer in enumerate(model.convolutions, 1):
        theta = 0.5 if name == "gcnii" else None
        conv = pyg.GCN2Conv(8, alpha=0.1, theta=theta, layer=level if theta else None)
        assert model.betas[level - 1] == pytest.approx(math.log(0.5 / level + 1) if theta else 1.0)
        put(conv.weight1, layer.weight)
        x = conv(x, start, edges, weights)
        x = x.relu() if name == "gcnii" else x
    check(model, data, x @ model.output.weight + model.output.bias)


def test_gcnii(dense: Dense) -> None:
    model = double("gcnii", layers=3, alpha=0.2, theta=0.7)
    start = hidden = (dense.x @ model.input.weight + model.input.bias).relu()
    for level, layer in enumerate(model.convolutions, 1):
        beta = math.log(0.7 / level + 1)
        mixed = 0.8 * dense.step @ hidden + 0.2 * start
        hidden = (mixed @ ((1 - beta) * torch.eye(8, dtype=DOUBLE) + beta * layer.weight)).relu()
    close(model(dense.data.full), hidden @ model.output.weight + model.output.bias)


def test_gcnii_openfgl(dense: Dense) -> None:
    model = double("gcnii_openfgl", alpha=0.1)
    start = hidden = (dense.x @ model.input.weight + model.input.bias).relu()
    for layer in model.convolutions:
        hidden = (0.9 * dense.step @ hidden + 0.1 * start) @ layer.weight
    assert len(model.convolutions) == 2
    close(model(dense.data.full), hidden @ model.output.weight + model.output.bias)
