"""Small graphs with dated nodes and a dated table of links."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable


def dated_graph(seed: int, nodes: int = 40, rows: int = 300) -> Graph:
    """Transfers over 100 days, with amounts, some unknown, and channels; nodes are looked at within these days."""
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, nodes, (2, rows))
    amounts = np.where(generator.random(rows) < 0.1, np.nan, np.exp(generator.normal(4, 1.5, rows)))
    card = (generator.random(rows) < 0.4).astype(np.float64)
    dates = np.floor(generator.uniform(0, 100, rows))
    links = LinkTable(
        ("transfer",), np.zeros(rows, np.int16), ends, np.stack([amounts, card], axis=1),
        ("transfer.amount", "transfer.channel=card"), dates,
    )  # fmt: skip
    return Graph(
        features=generator.random((nodes, 2)),
        edges=np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1),
        labels=generator.integers(0, 2, nodes),
        num_classes=2,
        name="transfers",
        feature_names=("age", "fee"),
        links=links,
        time=np.floor(generator.uniform(0, 100, nodes)),
    )
