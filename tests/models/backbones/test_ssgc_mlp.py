"""The mean of hops, then an MLP, on a small graph."""

from __future__ import annotations

from kit.backbones import Dense, close, double, mlp


def test_ssgc_mlp(dense: Dense) -> None:
    model = double("ssgc_mlp", hops=2)
    mean = (dense.x + dense.step @ dense.x + dense.step @ dense.step @ dense.x) / 3
    close(model(dense.data.full), mlp(list(model.layers), mean))
