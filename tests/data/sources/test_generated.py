"""Generated graphs: they are what was asked for, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.sources import catalog, generated
from graphsilo.data.sources.directions import is_undirected
from graphsilo.data.sources.generated import generate
from graphsilo.errors import ConfigError
from kit.generated import edge_homophily


def citation_sbm(**settings: object) -> Graph:
    return generate("citation-sbm", settings)


def heterophily_sbm(**settings: object) -> Graph:
    return generate("heterophily-sbm", settings)


def product_sbm(**settings: object) -> Graph:
    return generate("product-sbm", settings)


def test_default_is_like_cora() -> None:
    graph = citation_sbm()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (2708, 1433, 7)
    assert is_undirected(graph.edges, graph.num_nodes)
    # round(2708 · 3.9 / 2) = 5281 links
    assert graph.num_edges == 2 * 5281
    assert edge_homophily(graph) == pytest.approx(0.81, abs=1e-3)
    assert graph.is_sparse
    assert graph.features.nnz / (2708 * 1433) == pytest.approx(0.0127, rel=0.05)
    assert set(graph.features.data.tolist()) == {1.0}
    sizes = np.bincount(graph.labels)
    # class sizes ∝ 1/rank^0.75: the largest is 7^0.75 = 4.3 times the smallest
    assert sizes.max() / sizes.min() == pytest.approx(7**0.75, rel=0.05)


def test_words_tell_the_class_where_the_signal_is_strong() -> None:
    def spread(graph: Graph) -> float:
        share = np.stack([np.asarray(graph.features[graph.labels == c].mean(axis=0)).ravel() for c in range(3)])
        return float(np.abs(share - share.mean(axis=0)).sum())

    settings = {"nodes": 3000, "classes": 3, "features": 100, "feature_density": 0.1, "ambiguity": 0.0}
    assert spread(citation_sbm(**settings, class_signal=0.8)) > 5 * spread(citation_sbm(**settings, class_signal=0.0))


def test_same_seed_same_graph_and_no_global_state() -> None:
    first = citation_sbm(nodes=300, seed=1)
    np.random.seed(7)  # noqa: NPY002
    again, other = citation_sbm(nodes=300, seed=1), citation_sbm(nodes=300, seed=2)
    assert np.array_equal(first.edges, again.edges)
    assert np.array_equal(first.labels, again.labels)
    assert (first.features != again.features).nnz == 0
    assert not np.array_equal(first.labels, other.labels)


def test_small_and_dense_settings() -> None:
    assert citation_sbm(nodes=20, classes=1, features=5, homophily=1.0, feature_density=0.2).num_classes == 1
    assert citation_sbm(nodes=50, classes=2, features=10, mean_degree=0.0, feature_density=0.2).num_edges == 0
    crowded = citation_sbm(nodes=100, classes=4, features=20, mean_degree=20.0, communities=10, feature_density=0.1)
    assert crowded.num_edges == 2000
    with pytest.raises(ConfigError, match="no place"):
        citation_sbm(nodes=40, classes=20, features=20, homophily=1.0, mean_degree=10.0, feature_density=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": 2.5}, "nodes must be a whole number"),
        ({"nodes": True}, "nodes must be a whole number"),
        ({"homophily": 1.2}, "homophily must be at least 0 and at most 1; got 1.2"),
        ({"homophily": "high"}, "homophily must be a number"),
        ({"degree_exponent": 2.0}, "degree_exponent must be above 2"),
        ({"nodes": 10}, "nodes must be at least 2 per class, 14"),
        ({"features": 3}, "features must be at least one word per class"),
        ({"classes": 1, "features": 5}, "homophily must be 1"),
        ({"mean_degree": float("nan")}, "mean_degree must be a finite number"),
        ({"communities": 0}, "communities must be"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate("citation-sbm", settings)


def test_unknown_setting_and_seed() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'data\.homophily'"):
        generate("citation-sbm", {"homophilly": 0.5})
    small = {"nodes": 100, "features": 20, "feature_density": 0.1}
    by_argument = generate("citation-sbm", small, seed=3)
    by_setting = generate("citation-sbm", {**small, "seed": 3}, seed=9)
    assert np.array_equal(by_argument.edges, by_setting.edges)


def degrees(graph: Graph) -> np.ndarray:
    return np.bincount(graph.edges[0], minlength=graph.num_nodes)


def test_degrees_have_a_heavy_tail_and_no_node_is_alone() -> None:
    degree = degrees(citation_sbm())
    assert degree.min() >= 1
    assert degree.max() > 15 * degree.mean()
    assert np.median(degree) < degree.mean()
    # A larger exponent has a lighter tail.
    assert degrees(citation_sbm(degree_exponent=6.0)).max() < degree.max() / 2


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.65, 1.0])
def test_homophily_is_met(homophily: float) -> None:
    graph = citation_sbm(nodes=800, classes=4, features=50, homophily=homophily, mean_degree=5)
    assert edge_homophily(graph) == pytest.approx(homophily, abs=1e-3)


def test_communities_hold_most_links() -> None:
    from sknetwork.clustering import Louvain, get_modularity

    def modularity(graph: Graph) -> float:
        adjacency = graph.adjacency()
        return float(get_modularity(adjacency, Louvain(random_state=0).fit_predict(adjacency)))

    assert modularity(citation_sbm()) > max(0.72, modularity(citation_sbm(locality=0.0)) + 0.04)


def test_heterophily_joins_neighbours_on_the_ring() -> None:
    graph = heterophily_sbm()
    assert edge_homophily(graph) == pytest.approx(0.2, abs=1e-3)
    ends = graph.labels[graph.edges]
    distance = (ends[0] - ends[1]) % 5
    ring = ((distance == 1) | (distance == 4)).mean()
    # Ambiguous nodes (12 %) link as another class does; the others stay on the ring.
    assert ring > 0.6
    assert heterophily_sbm(classes=2, nodes=200, features=10, mean_degree=4, feature_density=0.1).num_classes == 2


SMALL = {"nodes": 3000, "classes": 5, "features": 8, "mean_degree": 10.0}


def test_a_large_graph_is_what_was_asked_for() -> None:
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


def test_a_large_graph_is_the_same_every_time() -> None:
    one, two, other = (
        product_sbm(**SMALL),
        product_sbm(**SMALL),
        product_sbm(**SMALL, seed=1),
    )
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
def test_homophily_of_a_large_graph_is_met(homophily: float) -> None:
    graph = product_sbm(**SMALL, homophily=homophily)
    same = graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]
    assert same.mean() == pytest.approx(homophily, abs=1e-4)


def test_more_links_than_pairs_are_refused() -> None:
    # one class of 20 nodes: 190 pairs; a quarter of the nodes is the largest mean degree, but all of it in one class
    with pytest.raises(ConfigError, match="links found no place without doubling another"):
        product_sbm(nodes=60, classes=20, features=2, homophily=1.0, mean_degree=15.0)


def test_settle_keeps_distinct_keys_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_BLOCK", 3)
    keys = np.array([5, 1, 5, -1, 2, 2, 2, 9, 1, -1])
    found = generated._settle(keys)
    assert keys[:found].tolist() == [1, 2, 5, 9]


def test_columns_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # links 0-1, 0-2, 1-3 of four nodes
    keys = np.array([1, 2, 7])
    wanted = [[0, 0, 1, 1, 2, 3], [1, 2, 0, 3, 0, 1]]
    for block in (1, 2, 100):
        monkeypatch.setattr(generated, "_BLOCK", block)
        assert generated._columns(keys, 4).tolist() == wanted


def test_catalog_and_defaults() -> None:
    entry = catalog.entry("product_sbm")
    assert (entry.nodes, entry.edges, entry.features, entry.classes) == (2_400_000, 60_000_000, 100, 47)
    assert entry.split_ratios == (0.1, 0.05, 0.85)
    loaded = catalog.load("product-sbm", options={**SMALL, "seed": 2})
    assert np.array_equal(loaded.edges, product_sbm(**SMALL, seed=2).edges)
    with pytest.raises(ConfigError, match="classes must be at least 1"):
        generate("product-sbm", {"classes": 0})


def test_memory_is_known_beforehand() -> None:
    # 30 million links: 8 bytes each and 16 for both directions; 2.4 million rows of 100 float32
    assert catalog.memory_needed("product-sbm") == 24 * 30_000_000 + 4 * 240_000_000
    assert catalog.memory_needed("product-sbm", {"nodes": 1000, "features": 10, "mean_degree": 4}) == 48_000 + 40_000
    assert catalog.memory_needed("Cora") == 0
    assert catalog.memory_needed("mine.npz") == 0
    with pytest.raises(ConfigError, match="nodes must be a whole number at least 2; got 'many'"):
        catalog.memory_needed("product-sbm", {"nodes": "many"})
