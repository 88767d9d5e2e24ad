"""GAT against PyG."""

from __future__ import annotations

import pytest

from kit.models import check, made, put, pyg


@pytest.mark.parametrize(("heads", "output_heads"), [(1, 1), (4, 2)])
def test_gat(setting, heads: int, output_heads: int) -> None:
    data, x, edges = setting
    model = made("gat", layers=3, heads=heads, output_heads=output_heads)
    for index, layer in enumerate(model.layers):
        count, width = layer.source.shape
        conv = pyg.GATConv(layer.linear.weight.shape[0], width, heads=count, concat=index < 2)
        put(conv.lin.weight, layer.linear.weight.t())
        put(conv.att_src, layer.source[None])
        put(conv.att_dst, layer.target[None])
        put(conv.bias, layer.bias)
        x = conv(x, edges)
        x = x.relu() if index < 2 else x
    check(model, data, x)
