from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition import partition
from graphsilo.data.partition.graphs import partition_graphs
from graphsilo.data.silos.graph_task import build_graph_silos
from graphsilo.data.silos.link_task import build_link_silos
from graphsilo.data.silos.perturb import PerturbOptions, flip_labels, hide_features, perturb, thin_edges, thin_labels
from graphsilo.data.silos.scenarios import build_silos
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError, UnsupportedError


def make_ring(nodes: int = 60) -> Graph:
    """A ring with a second neighbour; classes 0, 1, 2 in turn; features are never 0."""
    index = np.arange(nodes)
    pairs = np.concatenate([[index, (index + 1) % nodes], [index, (index + 2) % nodes]], axis=1)
    edges = np.concatenate([pairs, pairs[::-1]], axis=1)
    features = 1.0 + np.random.default_rng(0).random((nodes, 4), dtype=np.float32)
    return Graph(features, edges, index % 3, 3, name="ring")


@pytest.fixture
def silo() -> Silo:
    graph = make_ring()
    return build_silos(graph, partition(graph, "random", clients=1, seed=0))[0]


def links_of(graph: Graph) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in graph.edges.T if a < b}


def test_nothing_asked_nothing_done(silo: Silo) -> None:
    assert perturb(silo, None, seed=0) is silo
    assert perturb(silo, {"keep_classes": False}, seed=0) is silo


@pytest.mark.parametrize(
    "options",
    [
        {"feature_sparsity": 0.5},
        {"feature_noise": 1.0},
        {"edge_sparsity": 0.5},
        {"edge_noise": 0.5},
        {"label_sparsity": 0.5},
        {"label_noise": 0.5},
    ],
)
def test_evaluation_stays_clean_and_draws_are_named(silo: Silo, options: dict[str, float]) -> None:
    features, edges, labels = silo.graph.features.copy(), silo.graph.edges.copy(), silo.graph.labels.copy()
    first, again, other = perturb(silo, options, seed=1), perturb(silo, options, seed=1), perturb(silo, options, seed=2)
    assert first.evaluations is silo.evaluations
    np.testing.assert_array_equal(silo.graph.features, features)
    np.testing.assert_array_equal(silo.graph.edges, edges)
    np.testing.assert_array_equal(silo.graph.labels, labels)
    elsewhere = perturb(replace(silo, client=1), options, seed=1)

    def content(item: Silo) -> bytes:
        parts = (item.graph.features, item.graph.edges, item.train, item.labels)
        return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)

    assert content(first) == content(again)
    assert len({content(first), content(other), content(elsewhere), content(silo)}) == 4


def test_feature_sparsity_hides_half_of_the_unlabelled_nodes(silo: Silo) -> None:
    # 60 nodes, 12 of them trained on (4 of 20 per class): 24 of 48 lose their features.
    found = perturb(silo, {"feature_sparsity": 0.5}, seed=0)
    hidden = np.flatnonzero((found.graph.features == 0).all(axis=1))
    assert len(silo.train) == 12
    assert len(hidden) == 24
    assert not np.isin(hidden, silo.train).any()
    sparse = replace(silo, graph=silo.graph.with_features(sp.csr_matrix(silo.graph.features)))
    same = perturb(sparse, {"feature_sparsity": 0.5}, seed=0)
    assert same.graph.is_sparse
    assert same.graph.features.dtype == np.float32
    np.testing.assert_array_equal(same.graph.features.toarray(), found.graph.features)


def test_feature_noise_has_the_spread_asked_for(silo: Silo) -> None:
    found = perturb(silo, {"feature_noise": 2.0}, seed=0)
    difference = found.graph.features - silo.graph.features
    assert found.graph.features.dtype == np.float32
    assert np.std(difference) == pytest.approx(2.0 * np.std(silo.graph.features), rel=0.15)
    dense = np.where(np.arange(240).reshape(60, 4) % 3 == 0, silo.graph.features, 0)
    sparse = replace(silo, graph=silo.graph.with_features(sp.csr_matrix(dense.astype(np.float32))))
    changed = perturb(sparse, {"feature_noise": 1.0}, seed=0).graph.features
    assert changed.nnz == 80
    assert np.std(changed.data - sparse.graph.features.data) == pytest.approx(np.std(dense), rel=0.3)


def test_edge_sparsity_removes_links_in_both_directions(silo: Silo) -> None:
    found = perturb(silo, {"edge_sparsity": 0.25}, seed=0)
    assert found.graph.num_edges == 180
    assert links_of(found.graph) < links_of(silo.graph)
    assert {(b, a) for a, b in found.graph.edges.T.tolist()} == set(map(tuple, found.graph.edges.T.tolist()))
    assert perturb(silo, {"edge_sparsity": 1.0}, seed=0).graph.edges.shape == (2, 0)


def test_thin_edges_leaves_self_loops() -> None:
    edges = np.array([[0, 1, 2], [1, 0, 2]])
    assert thin_edges(edges, 1.0, np.random.default_rng(0)).tolist() == [False, False, True]
    assert thin_edges(np.zeros((2, 0), dtype=np.int64), 1.0, np.random.default_rng(0)).shape == (0,)


def test_edge_noise_adds_new_links(silo: Silo) -> None:
    weighted = replace(silo.graph, edge_weights=np.full(silo.graph.num_edges, 3.0, dtype=np.float32))
    found = perturb(replace(silo, graph=weighted), {"edge_noise": 0.5}, seed=0)
    assert found.graph.num_edges == 240 + 120
    assert links_of(silo.graph) < links_of(found.graph)
    assert len(links_of(found.graph)) == 180
    assert found.graph.edge_weights is not None
    assert (found.graph.edge_weights == 1).sum() == 120


def test_removed_links_do_not_come_back_as_noise(silo: Silo) -> None:
    thinned = perturb(silo, {"edge_sparsity": 0.5}, seed=0)
    both = perturb(silo, {"edge_sparsity": 0.5, "edge_noise": 5.0}, seed=0)
    assert links_of(both.graph) & links_of(silo.graph) == links_of(thinned.graph)


def test_label_sparsity_keeps_every_class_and_the_order(silo: Silo) -> None:
    found = perturb(silo, {"label_sparsity": 0.5}, seed=0)
    assert len(found.train) == 6
    assert (np.diff(found.train) > 0).all()
    assert np.isin(found.train, silo.train).all()
    strict = perturb(silo, {"label_sparsity": 1.0}, seed=0)
    assert strict.class_counts().tolist() == [1, 1, 1]
    loose = perturb(silo, {"label_sparsity": 1.0, "keep_classes": False}, seed=0)
    assert len(loose.train) == 1
    assert thin_labels(silo.train, silo.labels, 0.0, np.random.default_rng(0), keep_classes=True).tolist() == (
        silo.train.tolist()
    )


def test_label_noise_changes_training_labels_only_and_always(silo: Silo) -> None:
    found = perturb(silo, {"label_noise": 0.5}, seed=0)
    assert found.noisy_labels is not None
    changed = np.flatnonzero(found.noisy_labels != silo.graph.labels)
    assert len(changed) == 6
    assert np.isin(changed, silo.train).all()
    assert ((found.noisy_labels >= 0) & (found.noisy_labels < 3)).all()
    np.testing.assert_array_equal(found.graph.labels, silo.graph.labels)
    with pytest.raises(UnsupportedError, match="two classes"):
        flip_labels(np.array([0]), np.array([0]), 1.0, 1, np.random.default_rng(0))


def test_label_noise_comes_after_label_sparsity(silo: Silo) -> None:
    found = perturb(silo, {"label_sparsity": 0.5, "label_noise": 1.0}, seed=0)
    changed = np.flatnonzero(found.labels != silo.labels)
    assert changed.tolist() == found.train.tolist()


def test_graph_classification() -> None:
    pointer = np.arange(0, 101, 5)
    index = np.setdiff1d(np.arange(100), pointer[1:] - 1)
    edges = np.concatenate([[index, index + 1], [index + 1, index]], axis=1)
    union = Graph(np.ones((100, 2), dtype=np.float32), edges, np.full(100, -1), 2)
    many = GraphCollection(union, pointer, np.arange(20) % 2, 2)
    (silo,) = build_graph_silos(many, partition_graphs(many, "random", clients=1, ratios=(0.5, 0.2, 0.3)))
    found = perturb(silo, {"feature_sparsity": 0.5, "edge_noise": 0.5, "edge_sparsity": 0.25}, seed=3)
    assert isinstance(found.graph, GraphCollection)
    # 80 links: 60 stay and 40 come, none between two graphs of five nodes.
    inner = found.graph.union
    assert len(links_of(inner)) == 100
    assert (inner.edges[0] // 5 == inner.edges[1] // 5).all()
    hidden = (inner.features == 0).all(axis=1).reshape(20, 5)
    assert (hidden.all(axis=1) | ~hidden.any(axis=1)).all()
    assert hidden.any(axis=1).sum() == 5
    assert not hidden[silo.train].any()
    assert silo.seen.graph is silo.graph


def test_link_prediction_loses_links_to_learn_from_and_leaks_none() -> None:
    graph = make_ring()
    (silo,) = build_link_silos(graph, partition(graph, "random", clients=1))
    assert silo.links is not None
    found = perturb(silo, {"edge_sparsity": 0.5, "edge_noise": 1.0}, seed=0)
    assert found.links is not None
    assert found.links.train.shape[1] == 48
    shown = links_of(found.graph)
    for hidden in (silo.links.val, silo.links.test):
        assert not shown & set(map(tuple, hidden.T.tolist()))
    np.testing.assert_array_equal(found.links.test, silo.links.test)
    with pytest.raises(UnsupportedError, match="no labels to spoil"):
        perturb(silo, {"label_noise": 0.5}, seed=0)


def test_out_of_range_and_unknown_settings_are_refused(silo: Silo) -> None:
    with pytest.raises(ConfigError, match=r"^perturb\.edge_sparsity must be at least 0 and at most 1; got 1\.5\.$"):
        PerturbOptions(edge_sparsity=1.5)
    with pytest.raises(ConfigError, match="label_noise"):
        perturb(silo, {"label_noise": -0.1}, seed=0)
    with pytest.raises(ConfigError, match=r"did you mean 'perturb\.label_noise'"):
        perturb(silo, {"labl_noise": 0.1}, seed=0)
    assert PerturbOptions(feature_noise=3.0).feature_noise == 3.0


def test_hiding_nothing_and_everything() -> None:
    features = np.ones((4, 1), dtype=np.float32)
    pointer = np.arange(5)
    rng = np.random.default_rng(0)
    assert hide_features(features, pointer, np.array([1]), 0.0, rng).sum() == 4
    assert hide_features(features, pointer, np.array([1]), 1.0, rng)[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]
