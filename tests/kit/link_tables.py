"""Small graphs with dated nodes and a dated table of links."""

from __future__ import annotations

from dataclasses import replace

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


def change_after(graph: Graph, moment: float, generator: np.random.Generator) -> Graph:
    """The same graph with another future: other rows, features, nodes' times after a moment, and more of them."""
    links, when = graph.links, graph.time
    assert links is not None
    assert links.time is not None
    assert when is not None
    late = links.time > moment
    ends, features, time = links.ends.copy(), links.features.copy(), links.time.copy()
    ends[:, late] = generator.integers(0, graph.num_nodes, (2, late.sum()))
    features[late] = generator.random((int(late.sum()), 2))
    time[late] = moment + 1 + generator.random(int(late.sum()))
    more = int(generator.integers(1, 20))
    ends = np.concatenate([ends, generator.integers(0, graph.num_nodes, (2, more))], axis=1)
    changed = LinkTable(
        links.relations,
        np.concatenate([links.of_link, np.zeros(more, np.int16)]),
        ends,
        np.concatenate([features, generator.random((more, 2))]),
        links.feature_names,
        np.concatenate([time, np.full(more, moment + 2)]),
    )
    later = when > moment
    rows = np.asarray(graph.features).copy()
    rows[later] = generator.random((int(later.sum()), rows.shape[1]))
    when = np.where(later, moment + 3 * generator.random(graph.num_nodes) + 0.1, when)
    both = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    return replace(graph, features=rows, time=when, links=changed, edges=both)
