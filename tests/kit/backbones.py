"""Every backbone, small, and graphs as dense matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.links import LinkTable, NodeTypes
from graphsilo.data.silos.silo import Schema
from graphsilo.models import GraphTensors, Model, build, names
from graphsilo.random import generator

DOUBLE = torch.float64

RELATIONS, COLUMNS, TYPES = ("pays", "knows", "owns"), ("pays.amount", "pays.card", "knows.years"), ("one", "two")
"""Of every graph that is ``typed``; no link is of the last relation."""
SCHEMA = Schema("node", 12, 3, types=TYPES, relations=RELATIONS, link_features=COLUMNS)

Item = TypeVar("Item", Graph, GraphCollection)


def typed(item: Item) -> Item:
    """The same with types of nodes and a table of its links: each once, a third of them twice, with columns."""
    if isinstance(item, GraphCollection):
        return replace(item, union=typed(item.union))
    ends = item.edges.astype(np.int64)
    ends = np.unique(np.sort(ends, axis=0), axis=1)
    ends = np.concatenate([ends, ends[::-1, ::3]], axis=1)
    draws = np.random.default_rng(0)
    of_link = (ends.sum(0) % 2).astype(np.int16)
    columns = draws.standard_normal((ends.shape[1], 3))
    columns[np.array([[False, False, True], [True, True, False]])[of_link]] = np.nan
    return replace(
        item,
        links=LinkTable(RELATIONS, of_link, ends, columns, COLUMNS),
        types=NodeTypes(
            TYPES,
            (np.arange(item.num_nodes) % 2).astype(np.int16),
            np.full(item.num_features, -1, dtype=np.int16),
            target=0,
        ),
    )


# Every backbone, and every option that changes the computation.
VARIANTS: list[tuple[str, dict]] = [
    *((name, {}) for name in names()),
    ("mlp", {"layers": 1}),
    ("gcn", {"layers": 1}),
    ("gcn", {"hidden": [9, 5]}),
    ("sage", {"layers": 3}),
    ("sage", {"layers": 3, "unit_rows": True}),
    ("gat", {"heads": 4, "output_heads": 2, "attention_dropout": 0.3, "activation": "elu"}),
    ("gat", {"layers": 3, "attention_dropout": 0.3}),
    ("rgcn", {"layers": 1}),
    ("rgcn", {"layers": 3, "bases": 2}),
    ("gin", {"train_eps": True, "eps": 0.5, "layers": 3}),
    ("gin", {"eps": 0.5, "mlp_layers": 1}),
    ("gin", {"eps": 0.5, "mlp_layers": 3}),
    ("gine", {"train_eps": True, "mlp_layers": 1}),
    ("gine", {"layers": 3, "eps": 0.5}),
    ("hgt", {"heads": 2, "layers": 3, "attention_dropout": 0.3}),
    ("sgc", {"hops": 0}),
    ("sgc", {"layers": 2}),
    ("ssgc", {"alpha": 1.0}),
    ("appnp", {"hops": 3, "layers": 1}),
    ("appnp", {"alpha": 1.0}),
    ("appnp_features", {"layers": 3}),
    ("gcnii", {"layers": 3}),
    ("gcnii", {"layers": 1, "dropout": 0.0}),
    ("classic", {"conv": "sage", "norm": "layer"}),
    ("classic", {"residual": False, "layers": 1}),
    ("sign", {"layers": 1}),
    ("sign", {"layers": 3, "hops": 1}),
    ("gamlp", {"attention": "recursive", "score_activation": "relu"}),
    ("gamlp", {"attention_dropout": 0.3, "score_activation": "leaky_relu", "layers": 2}),
    ("gamlp", {"hops": 0}),
]


IDS = [f"{name}-{'-'.join(f'{key}={value}' for key, value in options.items())}" for name, options in VARIANTS]


def made(name: str, options: dict, features: int = 12, classes: int = 3, seed: int = 0) -> Model:
    return build(name, num_features=features, num_classes=classes, seed=seed, schema=SCHEMA, **{"hidden": 8, **options})


def shaken(model: Model, seed: int = 0) -> Model:
    """Biases that are not zero, so that tests see them."""
    draws = generator(seed, "shake")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
    return model


class Dense:
    """A graph's matrices in full, for formulas as printed."""

    def __init__(self, graph: Graph):
        self.data = GraphTensors(graph, dtype=DOUBLE)
        self.x = torch.from_numpy(graph.features).double()
        self.step = torch.from_numpy(self.data.matrix("gcn").toarray()).double()


def close(left: Tensor, right: Tensor) -> None:
    # Propagated features are kept in single precision.
    torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)


def double(name: str, **options: object) -> Model:
    return shaken(made(name, options, features=6)).double()


def mlp(layers: list, x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = (x @ layer.weight + layer.bias).relu()
    return x @ layers[-1].weight + layers[-1].bias


def copied(source: Model, target: Model) -> Model:
    for left, right in zip(source.parameters(), target.parameters(), strict=True):
        right.data.copy_(left.data)
    return target
