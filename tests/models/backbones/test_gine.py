"""GINE beside PyG's."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.models import GraphTensors
from kit.models import check, made, put, pyg


def test_layers_against_pyg(make_graph) -> None:
    data = GraphTensors(make_graph(nodes=25, features=6))
    links, model = data.graph.links, made("gine", train_eps=True)
    ends = torch.from_numpy(np.concatenate([links.ends, links.ends[::-1]], axis=1))
    kinds = np.eye(6, dtype=np.float32)[np.concatenate([2 * links.of_link, 2 * links.of_link + 1])]
    columns = np.concatenate([np.tile(np.nan_to_num(links.features), (2, 1)).astype(np.float32), kinds], axis=1)
    hidden = model.input(torch.from_numpy(data.graph.features))
    for layer in model.layers:
        inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        conv = pyg.GINEConv(inner, train_eps=True, edge_dim=columns.shape[1])
        put(conv.lin.weight, layer.links.weight.t())
        put(conv.lin.bias, torch.zeros(8))
        put(conv.eps, layer.eps.value.reshape(conv.eps.shape))
        for linear, mine in zip(inner[::2], layer.linears, strict=True):
            put(linear.weight, mine.weight.t())
            put(linear.bias, mine.bias)
        hidden = conv(hidden, ends, torch.from_numpy(columns)).relu()
    torch.testing.assert_close(model.embed(data.full), hidden, atol=1e-6, rtol=1e-5)
    check(model, data, model.output(hidden))
