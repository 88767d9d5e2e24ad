"""GCN against PyG."""

from __future__ import annotations

import torch

from kit.backbones import Dense, double
from kit.models import check, made, put, pyg


def test_gcn_against_pyg(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("gcn", layers=3)
    for index, layer in enumerate(model.layers):
        conv = pyg.GCNConv(*layer.weight.shape)
        put(conv.lin.weight, layer.weight.t())
        put(conv.bias, layer.bias)
        x = conv(x, edges, weights)
        x = x.relu() if index < 2 else x
    check(model, data, x)


def test_stacked_sgc_is_a_gcn(dense: Dense) -> None:
    assert torch.equal(double("sgc_stacked")(dense.data.full), double("gcn")(dense.data.full))
