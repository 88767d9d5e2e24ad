"""GCNII against PyG."""

from __future__ import annotations

import math

import pytest

from kit.models import check, made, put, pyg


@pytest.mark.parametrize(
    ("name", "alpha", "theta"), [("gcnii", 0.1, 0.5), ("gcnii", 0.2, 0.7), ("gcnii_openfgl", 0.1, None)]
)
def test_gcnii_against_pyg(weighted, name: str, alpha: float, theta: float | None) -> None:
    data, x, edges, weights = weighted
    model = made(name, layers=4, alpha=alpha, **({"theta": theta} if theta else {}))
    start = x = (x @ model.input.weight + model.input.bias).relu()
    for level, layer in enumerate(model.convolutions, 1):
        conv = pyg.GCN2Conv(8, alpha=alpha, theta=theta, layer=level if theta else None)
        assert model.betas[level - 1] == pytest.approx(math.log(theta / level + 1) if theta else 1.0)
        put(conv.weight1, layer.weight)
        x = conv(x, start, edges, weights)
        x = x.relu() if name == "gcnii" else x
    check(model, data, x @ model.output.weight + model.output.bias)
