"""HGT beside PyG's."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.models import GraphTensors
from kit.backbones import RELATIONS, TYPES
from kit.models import check, made, put, pyg


def test_layers_against_pyg(make_graph) -> None:
    """PyG's relations lead from a type to a type: here one for each pair, with the same weights."""
    data, model = GraphTensors(make_graph(nodes=25, features=6)), made("hgt", heads=2)
    links, types = data.graph.links, data.graph.types.of_node
    place = np.where(types == 0, np.cumsum(types == 0), np.cumsum(types == 1)) - 1
    names = [(name, turned) for name in RELATIONS for turned in ("along", "against")]
    metadata = [(TYPES[a], f"{name} {turned}", TYPES[b]) for name, turned in names for a in (0, 1) for b in (0, 1)]
    edges = {}
    for source, name, target in metadata:
        relation, turned = name.split()
        ends = np.unique(links.ends[:, links.of_link == RELATIONS.index(relation)], axis=1)
        ends = ends[::-1] if turned == "against" else ends
        between = ends[:, (types[ends[0]] == TYPES.index(source)) & (types[ends[1]] == TYPES.index(target))]
        edges[source, name, target] = torch.from_numpy(place[between])
    hidden = model.input(torch.from_numpy(data.graph.features)).relu()
    for layer in model.layers:
        conv = pyg.HGTConv(8, 8, (list(TYPES), metadata), heads=2)
        for number, kind in enumerate(TYPES):
            for theirs, mine in ((conv.kqv_lin, layer.inner), (conv.out_lin, layer.outer)):
                put(theirs.lins[kind].weight, mine[number].weight.t())
                put(theirs.lins[kind].bias, mine[number].bias)
            put(conv.skip[kind], layer.skip[[number]])
        for number, one in enumerate(metadata):
            put(conv.p_rel["__".join(one)], layer.prior[[number // 4]])
        for theirs, mine in ((conv.k_rel, layer.key), (conv.v_rel, layer.value)):
            put(theirs.weight, mine.repeat_interleave(4, 0).transpose(0, 1).flatten(0, 1))
        found = conv({kind: hidden[types == number] for number, kind in enumerate(TYPES)}, edges)
        hidden = torch.empty_like(hidden)
        for number, kind in enumerate(TYPES):
            hidden[types == number] = found[kind]
    torch.testing.assert_close(model.embed(data.full), hidden, atol=1e-6, rtol=1e-5)
    check(model, data, model.output(hidden))
