"""Same weights, same output as PyTorch Geometric's layers."""

from __future__ import annotations

import pytest
import torch

from graphsilo.models import GraphTensors
from kit.models import made, put, pyg


@pytest.mark.parametrize("name", ["sign", "gamlp", "ssgc_mlp", "appnp_features"])
def test_propagated_features(weighted, name: str) -> None:
    """These four are layers on Â^l X; PyG's SGConv with the identity as its weight gives Â^l X."""
    data, x, edges, weights = weighted
    for level in (1, 3):
        conv = pyg.SGConv(6, 6, K=level, bias=False)
        put(conv.lin.weight, torch.eye(6))
        wanted = conv(x, edges, weights)
        torch.testing.assert_close(data.full.hop(level).dense(), wanted, atol=1e-5, rtol=1e-4)
    model = made(name)
    assert not torch.equal(model(data.full), model(GraphTensors(data.graph.with_edges(data.graph.edges[:, :0])).full))
