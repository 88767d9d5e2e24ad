"""Generated banks."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import content_hash
from graphsilo.data.sources.bank import Bank

SMALL = {"transfers": 10_000, "banks": 5, "positives": 0.05}


def test_tables_are_what_was_asked_for() -> None:
    graph = Bank.of({**SMALL, "shared_customers": 0.2}).generate()
    assert graph.types is not None
    assert graph.links is not None
    assert graph.owners is not None
    assert graph.time is not None
    assert graph.types.names == ("account", "merchant", "customer")
    assert graph.links.relations == ("transfer", "payment", "holds")
    assert np.bincount(graph.links.of_link)[0] == 10_000
    accounts = graph.types.targets
    assert accounts.sum() == 1000
    assert (graph.labels[~accounts] == -1).all()
    assert (graph.owners.of_node[~accounts] == -1).all()
    assert set(graph.owners.of_node[accounts]) == set(range(5))
    assert 0.03 < (graph.labels == 1).sum() / (graph.labels >= 0).sum() < 0.08
    # A customer is one of two banks.
    ends = graph.links.ends[:, graph.links.of_link == 2]
    banks = graph.owners.of_node[ends[1]].reshape(-1, 2)
    assert (banks[:, 0] != banks[:, 1]).all()


def test_the_seed_decides() -> None:
    one, again, other = (Bank.of({**SMALL, "seed": seed}).generate() for seed in (1, 1, 2))
    assert content_hash([one]) == content_hash([again]) != content_hash([other])
