"""SIGN: its formula written out."""

from __future__ import annotations

import math

import torch

from kit.backbones import Dense, close, double, made


def test_sign(dense: Dense) -> None:
    model = double("sign", hops=2)
    first, last = model.layers
    weight = torch.cat([first.weight0, first.weight1, first.weight2])
    side_by_side = torch.cat([dense.x, dense.step @ dense.x, dense.step @ dense.step @ dense.x], 1)
    close(model(dense.data.full), (side_by_side @ weight + first.bias).relu() @ last.weight + last.bias)
    bound = math.sqrt(6 / (3 * 6 + 8))
    fresh = made("sign", {"hops": 2}, features=6).layers[0].weight0
    assert bound / 2 < fresh.abs().max().item() <= bound
