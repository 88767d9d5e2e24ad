"""RGCN beside PyG's, and graphs that it cannot be made for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.errors import UnsupportedError
from graphsilo.models import GraphTensors, build
from kit.backbones import RELATIONS
from kit.models import check, made, put, pyg


def rows_both_ways(links) -> tuple[torch.Tensor, torch.Tensor]:
    """Each link once in its direction and once against it, and its relation and direction."""
    once = np.unique(np.stack([links.of_link, *links.ends]), axis=1)
    ends = np.concatenate([once[1:], once[:0:-1]], axis=1)
    return torch.from_numpy(ends), torch.from_numpy(np.concatenate([2 * once[0], 2 * once[0] + 1]))


@pytest.mark.parametrize("bases", [0, 2])
def test_layers_against_pyg(make_graph, bases) -> None:
    data = GraphTensors(make_graph(nodes=25, features=6))
    model = made("rgcn", bases=bases)
    ends, kinds = rows_both_ways(data.graph.links)
    hidden = torch.from_numpy(data.graph.features)
    for position, layer in enumerate(model.layers):
        weights = torch.stack([each.weight for each in layer.neighbours])
        conv = pyg.RGCNConv(*weights.shape[1:], 2 * len(RELATIONS), num_bases=bases or None)
        put(conv.weight, weights)
        put(conv.root, layer.own.weight)
        put(conv.bias, layer.own.bias)
        if bases:
            put(conv.comp, layer.mix)
        hidden = conv(hidden if position == 0 else hidden.relu(), ends, kinds)
    torch.testing.assert_close(model(data.full), hidden, atol=1e-6, rtol=1e-5)
    check(model, data, hidden)


def test_what_it_cannot_be_made_for(make_graph) -> None:
    with pytest.raises(UnsupportedError, match=r"reads the tables of links.*Use --model gcn"):
        build("rgcn", num_features=6, num_classes=3, seed=0)
    bare = replace(make_graph(nodes=25, features=6), links=None)
    with pytest.raises(UnsupportedError, match=r"no tables of links.*Use --model gcn"):
        made("rgcn")(GraphTensors(bare).full)
