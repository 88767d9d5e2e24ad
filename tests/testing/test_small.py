"""The small data that conformance plays on."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import GraphCollection
from graphsilo.data.sources import catalog
from graphsilo.testing.small import rings


def test_rings_have_one_link_more_than_paths():
    graphs = catalog.load(rings())
    assert isinstance(graphs, GraphCollection)
    owner = graphs.union.edges[0] // 6
    assert (owner == graphs.union.edges[1] // 6).all()
    assert np.bincount(owner).tolist() == [12, 10] * 20  # both directions
    assert graphs.labels.tolist() == [0, 1] * 20
