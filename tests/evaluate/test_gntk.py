"""The graph neural tangent kernel: by hand, against wide networks, and its symmetries."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.errors import DataError, UnsupportedError
from graphsilo.evaluate import gntk
from graphsilo.evaluate.gntk import bound_term, compare, kernel, twins

VARIANTS = [(1, 1, "mean"), (2, 1, "mean"), (2, 1, "root"), (1, 2, "root"), (3, 2, "mean")]


def small(nodes: int = 7, features: int = 3, seed: int = 0, *, sparse: bool = False) -> Graph:
    draw = np.random.default_rng(seed)
    pairs = draw.integers(0, nodes, (2, 2 * nodes))
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1).astype(np.int64)
    values = draw.standard_normal((nodes, features)).astype(np.float32)
    return Graph(sp.csr_matrix(values) if sparse else values, edges, draw.integers(0, 2, nodes), 2)


def pair(features: list[list[float]], *, linked: bool = True) -> Graph:
    edges = np.array([[0, 1], [1, 0]]) if linked else np.zeros((2, 0), dtype=np.int64)
    return Graph(np.array(features, dtype=np.float32), edges, np.array([0, 1]), 2)


def test_opposite_nodes_share_nothing_whatever_is_rounded():
    # -3 / (√3 · √3) is a little less than -1 in floating point, where arccos is not defined.
    found = kernel(pair([[1, 1, 1], [-1, -1, -1]], linked=False), blocks=1)
    assert found[0, 1] == found[1, 0] == 0.0
    assert found[0, 0] == found[1, 1] > 0.0


def test_two_linked_nodes_by_hand():
    # See the module: every entry is 1/2. With 1/√2 both see 1/√2, so Σ is 1/2 and Θ is 1.
    np.testing.assert_allclose(kernel(pair([[1], [0]]), blocks=1), 0.5, atol=1e-15)
    np.testing.assert_allclose(kernel(pair([[1], [0]]), blocks=1, scale="root"), 1.0, atol=1e-15)
    # Every further layer and block of equal nodes adds Σ once more.
    np.testing.assert_allclose(kernel(pair([[1], [0]]), blocks=1, layers=3), 1.0, atol=1e-14)
    np.testing.assert_allclose(kernel(pair([[1], [0]]), blocks=3), 1.0, atol=1e-14)


def test_two_strangers_by_hand():
    # Orthogonal unit features: ρ = 0, the ReLU layer makes Σ = 1/π, its derivative is 1/2, Θ = 0 · 1/2 + 1/π.
    found = kernel(pair([[1, 0], [0, 1]], linked=False), blocks=1)
    np.testing.assert_allclose(found, [[2, 1 / np.pi], [1 / np.pi, 2]], atol=1e-15)
    # A second layer: ρ = 1/π; Σ' = (ρ (π - acos ρ) + √(1 - ρ²)) / π, Θ' = (1/π) (π - acos ρ)/π + Σ'.
    rho = 1 / np.pi
    sigma = (rho * (np.pi - np.arccos(rho)) + np.sqrt(1 - rho**2)) / np.pi
    expected = rho * (np.pi - np.arccos(rho)) / np.pi + sigma
    found = kernel(pair([[1, 0], [0, 1]], linked=False), blocks=1, layers=2)
    np.testing.assert_allclose(found, [[3, expected], [expected, 3]], atol=1e-15)


def test_opposite_features():
    # ρ = -1: nothing passes both ReLUs.
    np.testing.assert_allclose(kernel(pair([[1], [-1]], linked=False), blocks=1), [[2, 0], [0, 2]], atol=1e-15)


@pytest.mark.parametrize(("blocks", "layers", "scale"), VARIANTS)
def test_symmetric_and_positive_semidefinite(blocks, layers, scale):
    theta = kernel(small(60, 5), blocks=blocks, layers=layers, scale=scale)
    np.testing.assert_allclose(theta, theta.T, rtol=1e-10, atol=1e-13)
    values = np.linalg.eigvalsh(theta)
    assert values[0] >= -1e-12 * values[-1]


@pytest.mark.parametrize(("blocks", "layers", "scale"), VARIANTS)
def test_relabelling_nodes_permutes_it(blocks, layers, scale):
    graph = small(40, 5)
    order = np.random.default_rng(1).permutation(40)
    there = kernel(graph.subgraph(order), blocks=blocks, layers=layers, scale=scale)
    here = kernel(graph, blocks=blocks, layers=layers, scale=scale)
    np.testing.assert_allclose(there, here[np.ix_(order, order)], rtol=1e-10)


def test_blocks_of_rows_change_no_number(monkeypatch):
    graph = small(40, 5)
    whole = kernel(graph, layers=2)
    monkeypatch.setattr(gntk, "_BLOCK", 7)
    np.testing.assert_allclose(kernel(graph, layers=2), whole, rtol=1e-12)


def test_two_matrices_are_enough_for_sparse_features(monkeypatch):
    n = 600
    values = sp.random(n, 100, 0.3, format="csr", dtype=np.float32, random_state=0)
    ring = np.stack([np.arange(n), np.roll(np.arange(n), 1)])
    graph = Graph(values, ring, np.zeros(n, dtype=np.int64), 1)
    wanted = kernel(replace(graph, features=values.toarray()), blocks=1)
    monkeypatch.setattr(gntk, "_BLOCK", 16)
    tracemalloc.start()
    found = kernel(graph, blocks=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    assert peak < 2.5 * 8 * n**2


def test_sparse_features_and_zeros():
    graph = small(20, 5)
    np.testing.assert_allclose(kernel(small(20, 5, sparse=True)), kernel(graph), rtol=1e-12)
    values = np.array(graph.features)
    values[:] = 0
    values[0] = 1
    found = kernel(Graph(values, np.zeros((2, 0), dtype=np.int64), graph.labels, 2))
    assert np.isfinite(found).all()
    assert np.count_nonzero(found) == 1


def empirical(graph: Graph, *, blocks: int, layers: int, scale: str, width: int, seed: int) -> np.ndarray:
    """Inner products of the output's gradients in a network of that width with unit Gaussian weights."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    closed = (graph.adjacency().toarray() > 0) | np.eye(graph.num_nodes, dtype=bool)
    degree = closed.sum(1, keepdims=True)
    gather = torch.from_numpy(closed / (degree if scale == "mean" else np.sqrt(degree))).float()
    hidden = torch.from_numpy(np.array(graph.features))
    parameters = []
    for _ in range(blocks):
        hidden = gather @ hidden
        for _ in range(layers):
            weight = torch.randn(hidden.shape[1], width, generator=draw).requires_grad_()
            parameters.append(weight)
            # √(c_σ / m) with c_σ = 2 behind each ReLU
            hidden = (hidden @ weight).relu() * (2 / width) ** 0.5
    head = torch.randn(width, generator=draw).requires_grad_()
    parameters.append(head)
    output = hidden @ head
    found = np.zeros((graph.num_nodes, graph.num_nodes))
    for parameter in parameters:
        rows = [torch.autograd.grad(one, parameter, retain_graph=True)[0].reshape(-1) for one in output]
        flat = torch.stack(rows)
        found += (flat @ flat.T).double().numpy()
    return found


@pytest.mark.parametrize(
    ("blocks", "layers", "scale", "networks", "tolerance"),
    [(1, 1, "mean", 4, 0.02), (2, 1, "root", 1, 0.06), (1, 2, "mean", 1, 0.06)],
)
def test_a_wide_networks_tangent_kernel(blocks, layers, scale, networks, tolerance):
    graph = small(5, 3)
    wanted = kernel(graph, blocks=blocks, layers=layers, scale=scale)
    seen = [
        empirical(graph, blocks=blocks, layers=layers, scale=scale, width=4096, seed=seed) for seed in range(networks)
    ]
    size = np.sqrt(np.outer(wanted.diagonal(), wanted.diagonal()))
    assert (np.abs(np.mean(seen, axis=0) - wanted) / size).max() < tolerance


def test_the_bound_by_hand():
    # Θ = diag(2, 2), y = (1, -1): yᵀ Θ⁻¹ y = 1, tr Θ = 4, √4 / 2 = 1. The jitter moves it by a millionth.
    assert bound_term(2 * np.eye(2), np.array([0, 1])) == pytest.approx(1.0, rel=1e-6)
    # Its units do not matter: Θ = diag(1/8, 1/8) has yᵀ Θ⁻¹ y = 16 and tr Θ = 1/4.
    assert bound_term(np.eye(2) / 8, np.array([0, 1])) == pytest.approx(1.0, rel=1e-6)
    # A kernel that knows the classes: Θ = [[2, -1], [-1, 2]] has 3 along (1, -1): 2/3 · 4, √(8/3) / 2.
    knows = np.array([[2.0, -1.0], [-1.0, 2.0]])
    assert bound_term(knows, np.array([0, 1]), jitter=0) == pytest.approx((8 / 3) ** 0.5 / 2)
    # and one that does not: 1 along (1, -1).
    assert bound_term(-knows + 4 * np.eye(2), np.array([0, 1]), jitter=0) == pytest.approx(8**0.5 / 2)
    # + √(log 10 / 2)
    assert bound_term(2 * np.eye(2), np.array([0, 1]), confidence=0.1, jitter=0) == pytest.approx(
        1 + (np.log(10) / 2) ** 0.5
    )


def test_the_bound_averages_one_class_against_the_rest():
    theta = kernel(small(30, 5))
    labels = np.random.default_rng(0).integers(0, 3, 30)
    each = [bound_term(theta, (labels == one).astype(np.int64)) for one in range(3)]
    assert bound_term(theta, labels) == pytest.approx(np.mean(each))


def test_the_bound_does_not_depend_on_units():
    graph = small(30, 5)
    scaled = Graph(np.array(graph.features) * 7, graph.edges, graph.labels, 2)
    assert bound_term(kernel(scaled), graph.labels) == pytest.approx(bound_term(kernel(graph), graph.labels), rel=1e-6)


def test_the_kernel_is_left_as_it_was():
    theta = kernel(small(30, 5))
    before = theta.copy()
    bound_term(theta, small(30, 5).labels)
    assert np.array_equal(theta, before)


@pytest.mark.parametrize(
    ("theta", "labels", "match"),
    [
        (np.eye(3), np.array([0, 1]), "n labels"),
        (np.eye(0), np.array([], dtype=np.int64), "n above 0"),
        (np.eye(2), np.array([0, -1]), "every node"),
        (np.zeros((2, 2)), np.array([0, 1]), "no inverse"),
    ],
)
def test_what_has_no_bound(theta, labels, match):
    with pytest.raises(DataError, match=match):
        bound_term(theta, labels)


def test_too_large_a_graph_says_what_it_would_need():
    n = 30_000
    graph = Graph(sp.csr_matrix((n, 1), dtype=np.float32), np.zeros((2, 0), dtype=np.int64), np.zeros(n, np.int64), 1)
    with pytest.raises(UnsupportedError, match=r"30000 nodes would need 14 GB .* 20000 nodes \(6.4 GB\)"):
        kernel(graph)


def test_depth_is_at_least_one():
    with pytest.raises(ValueError, match="at least one"):
        kernel(small(), blocks=0)


def test_who_cannot_be_told_apart(monkeypatch):
    # 0 and 1 see only each other, and so do 2 and 3; 4 is alone. 0 and 1 have different labels, 2 and 3 the same.
    edges = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
    features = np.eye(5, dtype=np.float32)
    labels = np.array([0, 1, 1, 1, 0])
    theta = kernel(Graph(features, edges, labels, 2))
    assert twins(theta, labels) == 2
    assert twins(theta, np.array([0, 0, 0, 1, 0])) == 2
    assert twins(theta, np.zeros(5, dtype=np.int64)) == 0
    monkeypatch.setattr(gntk, "_BLOCK", 2)
    assert twins(theta, np.array([0, 1, 0, 1, 0])) == 4
    assert bound_term(theta, labels) > 100 * bound_term(theta, np.array([0, 0, 1, 1, 0]))
    assert twins(np.zeros((0, 0)), labels[:0]) == 0


# -- comparison ----------------------------------------------------------------------------------------------------


def cut_in_two(graph: Graph) -> dict[int, Graph]:
    half = graph.num_nodes // 2
    return {0: graph.subgraph(np.arange(half)), 1: graph.subgraph(np.arange(half, graph.num_nodes))}


def healed(whole: Graph, silo: Graph, drop: int = 0) -> Graph:
    """The silo's nodes first, then the rest of the whole graph: perfect mending, less some neighbours."""
    rest = np.setdiff1d(np.arange(whole.num_nodes), silo.global_ids)
    return whole.subgraph(np.concatenate([silo.global_ids, rest[: len(rest) - drop]]))


def test_an_uncut_graph_has_one_bound():
    graph = small(30, 5)
    found = compare(graph, {0: graph.subgraph(np.arange(30))})
    row = found["silos"][0]
    assert row["cut"] == pytest.approx(row["global"], rel=1e-9)
    assert row["global"] == pytest.approx(found["global"]["bound"], rel=1e-9)
    assert row["mended"] is None
    assert (found["compared"], found["nearer"]) == (0, 0)


def test_perfect_mending_gives_the_whole_graphs_bound():
    graph = small(40, 5)
    silos = cut_in_two(graph)
    found = compare(graph, silos, {client: healed(graph, silo) for client, silo in silos.items()})
    for row in found["silos"]:
        assert row["mended"] == pytest.approx(row["global"], rel=1e-6)
        assert row["cut"] != pytest.approx(row["global"], rel=1e-3)
        assert row["generated"] == 20
    assert (found["compared"], found["nearer"]) == (2, 2)
    assert found["mean"]["mended"] == pytest.approx(found["mean"]["global"], rel=1e-6)
    assert found["mean"]["cut"] == pytest.approx(np.mean([row["cut"] for row in found["silos"]]))


def test_no_mending_regains_nothing():
    graph = small(40, 5)
    silos = cut_in_two(graph)
    found = compare(graph, silos, silos)
    assert (found["compared"], found["nearer"]) == (2, 0)
    assert found["mean"]["mended"] == found["mean"]["cut"]


def test_unlabelled_nodes_are_seen_and_not_scored():
    graph = small(40, 5)
    labels = graph.labels.copy()
    labels[3] = -1
    hidden = Graph(graph.features, graph.edges, labels, 2)
    found = compare(hidden, cut_in_two(hidden))
    assert [row["nodes"] for row in found["silos"]] == [19, 20]
    rest = np.setdiff1d(np.arange(40), [3])
    expected = bound_term(kernel(graph)[np.ix_(rest, rest)], labels[rest])
    assert found["global"] == {"nodes": 39, "bound": pytest.approx(expected), "twins": 0}


def test_a_silo_without_labels_has_no_bound():
    graph = small(40, 5)
    labels = graph.labels.copy()
    labels[:20] = -1
    hidden = Graph(graph.features, graph.edges, labels, 2)
    found = compare(hidden, cut_in_two(hidden))
    assert found["silos"][0] == {
        "client": 0, "nodes": 0, "generated": None, "global": None, "cut": None, "mended": None,
        "twins": {"global": 0, "cut": 0, "mended": None},
    }  # fmt: skip
    assert found["mean"]["cut"] == found["silos"][1]["cut"]


def test_a_silo_that_sees_zeros_only_has_no_bound():
    graph = small(40, 5)
    values = np.array(graph.features)
    values[:20] = 0
    blank = Graph(values, np.zeros((2, 0), dtype=np.int64), graph.labels, 2)
    found = compare(blank, cut_in_two(blank))
    assert [found["silos"][0][name] for name in ("nodes", "global", "cut")] == [20, None, None]
    assert found["silos"][1]["cut"] > 0


def test_what_does_not_belong_together():
    graph = small(40, 5)
    silos = cut_in_two(graph)
    with pytest.raises(DataError, match="not in the graph"):
        compare(silos[0], {1: silos[1]})
    with pytest.raises(DataError, match="no such client"):
        compare(graph, silos, {7: silos[0]})
    with pytest.raises(DataError, match="another cut"):
        compare(graph, silos, {0: silos[1]})
    with pytest.raises(DataError, match="and more"):
        compare(graph, silos, {0: silos[0].subgraph(np.arange(3))})


@pytest.mark.data
@pytest.mark.slow
def test_cora(data_root):
    """The cut costs, on five Louvain silos of Cora; the kernel of 2708 nodes stays within a few seconds."""
    from graphsilo.experiments.config import load_config
    from graphsilo.experiments.simulation import prepare

    overrides = {
        "data.name": "Cora", "data.root": str(data_root), "partition.rule": "louvain", "partition.clients": 5,
    }  # fmt: skip
    simulation = prepare(load_config(None, overrides=overrides))
    found = compare(simulation.graph, {silo.client: silo.graph for silo in simulation.silos})
    assert found["global"]["nodes"] == 2708
    assert found["mean"]["cut"] > found["mean"]["global"]
