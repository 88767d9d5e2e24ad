"""Generated graphs: they are what was asked for, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.sources import generated
from graphsilo.data.sources.generated import citation_sbm
from graphsilo.data.sources.transforms import is_undirected
from graphsilo.errors import ConfigError
from kit.generated import edge_homophily


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
        generated.generate("citation-sbm", settings)


def test_unknown_setting_and_seed() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'data\.homophily'"):
        generated.generate("citation-sbm", {"homophilly": 0.5})
    small = {"nodes": 100, "features": 20, "feature_density": 0.1}
    by_argument = generated.generate("citation-sbm", small, seed=3)
    by_setting = generated.generate("citation-sbm", {**small, "seed": 3}, seed=9)
    assert np.array_equal(by_argument.edges, by_setting.edges)
