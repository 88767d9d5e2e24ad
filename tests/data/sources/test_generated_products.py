"""The large generated graph at small sizes: what was asked for, and the same whatever the blocks are."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.sources import catalog, generated, generated_products
from graphsilo.data.sources.generated import memory_needed
from graphsilo.data.sources.generated_products import product_sbm
from graphsilo.data.sources.transforms import is_undirected
from graphsilo.errors import ConfigError

SMALL = {"nodes": 3000, "classes": 5, "features": 8, "mean_degree": 10.0}


def test_is_what_was_asked_for() -> None:
    graph = product_sbm(**SMALL)
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (3000, 8, 5)
    # 3000 · 10 / 2 links, two columns each
    assert graph.num_edges == 30_000
    assert graph.edges.dtype == np.int32
    assert graph.features.dtype == np.float32
    assert is_undirected(graph.edges, graph.num_nodes)
    keys = graph.edges[0].astype(np.int64) * 3000 + graph.edges[1]
    assert (np.diff(keys) > 0).all()
    assert (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).mean() == pytest.approx(0.81, abs=1e-4)
    degree = np.bincount(graph.edges[0], minlength=3000)
    assert degree.max() > 5 * degree.mean()


def test_same_seed_same_graph() -> None:
    one, two, other = product_sbm(**SMALL), product_sbm(**SMALL), product_sbm(**SMALL, seed=1)
    for name in ("edges", "labels", "features"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))


def test_features_stand_around_one_centre_per_class() -> None:
    graph = product_sbm(**{**SMALL, "class_signal": 1.0, "ambiguity": 0.0})
    centres = np.stack([graph.features[graph.labels == label].mean(axis=0) for label in range(5)])
    nearest = ((graph.features[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == graph.labels).mean() > 0.8
    assert graph.features.std(axis=0).mean() > 1.0


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
def test_homophily_is_met(homophily: float) -> None:
    graph = product_sbm(**SMALL, homophily=homophily)
    same = graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]
    assert same.mean() == pytest.approx(homophily, abs=1e-4)


def test_more_links_than_pairs_are_refused() -> None:
    # one class of 20 nodes: 190 pairs; a quarter of the nodes is the largest mean degree, but all of it in one class
    with pytest.raises(ConfigError, match="links found no place without doubling another"):
        product_sbm(nodes=60, classes=20, features=2, homophily=1.0, mean_degree=15.0)


def test_settle_keeps_distinct_keys_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_products, "_BLOCK", 3)
    keys = np.array([5, 1, 5, -1, 2, 2, 2, 9, 1, -1])
    found = generated_products._settle(keys)
    assert keys[:found].tolist() == [1, 2, 5, 9]


def test_columns_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # links 0-1, 0-2, 1-3 of four nodes
    keys = np.array([1, 2, 7])
    wanted = [[0, 0, 1, 1, 2, 3], [1, 2, 0, 3, 0, 1]]
    for block in (1, 2, 100):
        monkeypatch.setattr(generated_products, "_BLOCK", block)
        assert generated_products._columns(keys, 4).tolist() == wanted


def test_catalog_and_defaults() -> None:
    entry = catalog.entry("product_sbm")
    assert (entry.nodes, entry.edges, entry.features, entry.classes) == (2_400_000, 60_000_000, 100, 47)
    assert entry.split_ratios == (0.1, 0.05, 0.85)
    loaded = catalog.load("product-sbm", options={**SMALL, "seed": 2})
    assert np.array_equal(loaded.edges, product_sbm(**SMALL, seed=2).edges)
    with pytest.raises(ConfigError, match="classes must be at least 1"):
        generated.generate("product-sbm", {"classes": 0})


def test_memory_is_known_beforehand() -> None:
    # 30 million links: 8 bytes each and 16 for both directions; 2.4 million rows of 100 float32
    assert memory_needed("product-sbm", {}) == 24 * 30_000_000 + 4 * 240_000_000
    assert catalog.memory_needed("product-sbm", {"nodes": 1000, "features": 10, "mean_degree": 4}) == 48_000 + 40_000
    assert catalog.memory_needed("Cora") == 0
    assert catalog.memory_needed("mine.npz") == 0
    with pytest.raises(ConfigError, match="nodes must be a whole number at least 2; got 'many'"):
        catalog.memory_needed("product-sbm", {"nodes": "many"})
