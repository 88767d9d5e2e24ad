"""GraphSAGE against PyG."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kit.models import check, made, put, pyg


@pytest.mark.parametrize("unit_rows", [False, True])
def test_sage(setting, unit_rows: bool) -> None:
    data, x, edges = setting
    model = made("sage", layers=3, unit_rows=unit_rows)
    for index, layer in enumerate(model.layers):
        conv = pyg.SAGEConv(*layer.own.weight.shape, aggr="mean")
        put(conv.lin_l.weight, layer.neighbours.weight.t())
        put(conv.lin_l.bias, layer.neighbours.bias)
        put(conv.lin_r.weight, layer.own.weight.t())
        x = conv(x, edges)
        x = x.relu() if index < 2 else x
        x = nn.functional.normalize(x, dim=1) if index < 2 and unit_rows else x
    check(model, data, x)


def test_sage_takes_the_weighted_mean(weighted) -> None:
    """Σ w h / Σ w over the neighbours, which PyG's SAGEConv does not have, by a dense matrix."""
    data, x, edges, weights = weighted
    matrix = torch.zeros(25, 25).index_put_((edges[1], edges[0]), torch.ones(1) if weights is None else weights)
    matrix = matrix.fill_diagonal_(0)
    mean = matrix / matrix.sum(1, keepdim=True).clamp_min(1e-12)
    model = made("sage", layers=3)
    for index, layer in enumerate(model.layers):
        x = mean @ x @ layer.neighbours.weight + layer.neighbours.bias + x @ layer.own.weight
        x = x.relu() if index < 2 else x
    check(model, data, x)
