"""SGC against PyG."""

from __future__ import annotations

from kit.backbones import Dense, close, copied, double
from kit.models import check, made, put, pyg


def test_sgc_against_pyg(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("sgc", hops=3)
    conv = pyg.SGConv(6, 3, K=3)
    put(conv.lin.weight, model.layers[0].weight.t())
    put(conv.lin.bias, model.layers[0].bias)
    check(model, data, conv(x, edges, weights))


def test_sgc_without_hops_is_logistic_regression(dense: Dense) -> None:
    logistic = copied(double("sgc", hops=0), double("mlp", layers=1))
    close(double("sgc", hops=0)(dense.data.full), logistic(dense.data.full))
