"""O-pFGL's APPNP on a small graph."""

from __future__ import annotations

from kit.backbones import Dense, close, double, mlp


def test_appnp_features(dense: Dense) -> None:
    model = double("appnp_features")
    level = dense.x
    for _ in range(2):
        level = 0.9 * dense.step @ level + 0.1 * dense.x
    close(model(dense.data.full), mlp(list(model.layers), level))
