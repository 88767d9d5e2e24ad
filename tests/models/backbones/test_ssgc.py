"""S²GC against PyG."""

from __future__ import annotations

from kit.backbones import Dense, close, double
from kit.models import check, made, put, pyg


def test_ssgc_against_pyg(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("ssgc", hops=5, alpha=0.1)
    conv = pyg.SSGConv(6, 3, alpha=0.1, K=5)
    put(conv.lin.weight, model.layers[0].weight.t())
    put(conv.lin.bias, model.layers[0].bias)
    check(model, data, conv(x, edges, weights))


def test_ssgc_of_raw_features_alone(dense: Dense) -> None:
    linear = double("ssgc", alpha=1.0)
    close(linear(dense.data.full), dense.x @ linear.layers[0].weight + linear.layers[0].bias)
