"""Edges of 32 bits give what edges of 64 bits give, also where products of node numbers need more than 32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import audit, partition
from graphsilo.data.partition.adjacency import undirected_adjacency, undirected_links
from graphsilo.data.partition.pairs import pair_keys
from graphsilo.data.silos.perturb import PerturbOptions, perturb
from graphsilo.data.silos.pooling import pooled_silo
from graphsilo.data.silos.scenarios import build_silos, partition_for_scenario
from graphsilo.data.silos.silo import Silo
from graphsilo.data.sources.generated import ProductSBM

# 50,000² is past 2³¹: a key of a pair in 32 bits would wrap.
NARROW = ProductSBM(nodes=50_000, classes=4, features=2, mean_degree=4.0).generate()
WIDE = replace(NARROW, edges=NARROW.edges.astype(np.int64))


def assert_same_silo(narrow: Silo, wide: Silo) -> None:
    assert isinstance(narrow.graph, Graph)
    assert isinstance(wide.graph, Graph)
    for one, two in zip(narrow.evaluations, wide.evaluations, strict=True):
        assert isinstance(one.graph, Graph)
        assert np.array_equal(one.graph.edges, two.graph.edges)  # type: ignore[union-attr]
        assert all(np.array_equal(one.items[kind], two.items[kind]) for kind in wide.seen.items if kind in one.items)
    assert np.array_equal(narrow.graph.edges, wide.graph.edges)
    assert np.array_equal(narrow.graph.features, wide.graph.features)
    assert np.array_equal(narrow.train, wide.train)
    assert narrow.facts == wide.facts


def test_types() -> None:
    assert NARROW.edges.dtype == np.int32
    pairs = np.array([[40_000], [49_999]], dtype=np.int32)
    assert pair_keys(pairs, 50_000).tolist() == [40_000 * 50_000 + 49_999]
    assert undirected_links(pairs).tolist() == [[40_000], [49_999]]
    assert np.array_equal(undirected_links(NARROW.edges), undirected_links(WIDE.edges))
    assert (undirected_adjacency(NARROW) != undirected_adjacency(WIDE)).nnz == 0


@pytest.mark.parametrize("rule", ["random", "metis", "overlap"])
def test_cuts_and_audits(rule: str) -> None:
    cuts = [partition(graph, rule, clients=5, seed=1) for graph in (NARROW, WIDE)]
    assert cuts[0].content_hash == cuts[1].content_hash
    assert audit(cuts[0], NARROW).to_dict() == audit(cuts[1], WIDE).to_dict()


@pytest.mark.parametrize(("scenario", "task"), [("unseen", "node"), ("inductive", "node"), ("seen", "link")])
def test_silos(scenario: str, task: str) -> None:
    cut = partition_for_scenario(NARROW, "random", clients=3, scenario=scenario)
    built = [build_silos(graph, cut, scenario=scenario, task=task) for graph in (NARROW, WIDE)]  # type: ignore[arg-type]
    for narrow, wide in zip(*built, strict=True):
        assert_same_silo(narrow, wide)


def test_silos_stay_narrow() -> None:
    cut = partition(NARROW, "random", clients=3)
    silo = build_silos(NARROW, cut)[1]
    assert isinstance(silo.graph, Graph)
    assert silo.graph.edges.dtype == np.int32


def test_noise_and_pooling() -> None:
    cut = partition(NARROW, "random", clients=3)
    options = PerturbOptions(edge_sparsity=0.2, edge_noise=0.1)
    asked = {"scenario": "seen", "options": {}, "task": "node"}
    pooled = [
        pooled_silo(graph, cut, cross_edges=True, spoil=lambda silo: perturb(silo, options, seed=3), **asked)
        for graph in (NARROW, WIDE)
    ]
    assert_same_silo(*pooled)
