"""FedRidge: exact whatever the cut, features and solutions by hand, choices by sums, and data that spoils a solver."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphsilo
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema
from graphsilo.errors import ConfigError, FederationError, MessageError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.methods import fedridge
from graphsilo.methods.fedridge import features as fedridge_features
from graphsilo.methods.fedridge.client import criterion_of
from graphsilo.methods.fedridge.config import FedRidgeConfig
from graphsilo.methods.fedridge.features import BLOCK, SMALL, Features, Recipe, projection, unit_rows
from graphsilo.methods.fedridge.messages import StatisticsRequest
from graphsilo.methods.fedridge.solve import Spectrum, corrections, pack, unpack, upper_product
from graphsilo.models.view import GraphTensors
from graphsilo.testing import conformance

METHOD = fedridge.METHOD
PLAIN = {"label_features": "never", "prior": (0.0,)}
"""The ridge alone."""


def graph_of(features, pairs, labels=None, classes=2):
    features = features if sp.issparse(features) else np.array(features, dtype=np.float32)
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    labels = np.zeros(features.shape[0], dtype=np.int64) if labels is None else np.array(labels, dtype=np.int64)
    return Graph(features, np.concatenate([ends, ends[::-1]], axis=1), labels, classes)


def phi(graph, kind="mean", hops=1, dim=0, random=0, seed=0):
    made = Features(GraphTensors(graph), Recipe(kind, hops, dim, random, seed))
    items = np.arange(graph.num_nodes)
    return torch.cat([rows for _, rows in made.blocks(items)])


def whole(packed, size):
    """The symmetric matrix of a packed triangle."""
    upper = unpack(packed, size).triu()
    return upper + upper.triu(1).t()


def played(kit, silos, *, rounds=True, **settings):
    server, federation = kit.build("fedridge", silos, **settings)
    server.set_up(federation)
    if rounds:
        server.round(federation, 1)
    return server, federation


def pooled(silos, kind, settings, class_weights=None):
    """M and B of all silos' training rows in one place, in float64 numpy."""
    config = METHOD.config(**settings)
    recipe = config.recipe(kind, 0, config.dim)
    rows = [torch.cat([part for _, part in Features(GraphTensors(silo.graph), recipe).blocks(silo.train)])
            for silo in silos if len(silo.train)]  # fmt: skip
    labels = np.concatenate([silo.labels[silo.train] for silo in silos])
    rows, truth = torch.cat(rows).numpy(), np.eye(silos[0].schema.num_classes)[labels]
    weights = np.ones(len(labels)) if class_weights is None else np.asarray(class_weights)[labels]
    return rows.T @ (weights[:, None] * rows), rows.T @ (weights[:, None] * truth)


# -- features --------------------------------------------------------------------------------------------------------


def test_features_by_hand():
    # Two linked nodes with rows e1 and e2 once they have length 1; Â = ½ everywhere, N swaps the two.
    graph = graph_of([[2, 0], [0, 3]], [(0, 1)])
    root = np.sqrt(0.5)
    assert phi(graph, "mean")[0].tolist() == pytest.approx([1.5 / np.sqrt(2.5), 0.5 / np.sqrt(2.5), 0.1])
    assert phi(graph, "sgc")[0].tolist() == pytest.approx([root, root, 0.1])
    assert phi(graph, "separate")[0].tolist() == pytest.approx([root, 0, 0, root, 0.1])
    assert phi(graph, "separate", hops=0)[1].tolist() == pytest.approx([0, 1, 0.1])


def test_a_node_without_neighbours_or_features_has_zeros_and_the_constant():
    graph = graph_of([[1, 0], [0, 1], [0, 0]], [(0, 1)])
    assert phi(graph, "separate")[2].tolist() == pytest.approx([0, 0, 0, 0, 0.1])
    assert phi(graph, "mean")[2].tolist() == pytest.approx([0, 0, 0.1])


@pytest.mark.parametrize("kind", ["mean", "sgc", "separate"])
@pytest.mark.parametrize("dim", [0, 6])
def test_sparse_and_dense_features_are_the_same_and_times_is_the_rows_product(kind, dim):
    draw = np.random.default_rng(0)
    dense = (draw.random((40, 12)) < 0.2).astype(np.float32)
    pairs = draw.integers(0, 40, (60, 2))
    one, two = graph_of(dense, pairs), graph_of(sp.csr_matrix(dense), pairs)
    rows = phi(one, kind, hops=2, dim=dim)
    assert torch.allclose(rows, phi(two, kind, hops=2, dim=dim), atol=1e-6)
    assert rows.shape[1] == (7 if dim else 37 if kind == "separate" else 13)
    lengths = rows[:, :-1].norm(dim=1)
    assert torch.all((lengths < 1e-6) | ((lengths - 1).abs() < 1e-6))
    for random in (0, 5):
        made = Features(GraphTensors(two), Recipe(kind, 2, dim, random, 3))
        whole = torch.cat([part for _, part in made.blocks(np.arange(40))])
        weights = torch.from_numpy(draw.standard_normal((made.width, 3)).astype(np.float32))
        assert whole.shape == (40, made.width)
        assert torch.allclose(made.times(weights), (whole @ weights.double()).float(), atol=1e-5)


def test_random_features_are_rectified_projections():
    graph = graph_of([[1, 0], [0, 1]], [])
    rows = phi(graph, "sgc", hops=0, random=50, seed=4)
    assert (rows[:, 3:] >= 0).all()
    assert 0 < (rows[:, 3:] == 0).double().mean() < 1
    assert torch.equal(rows, phi(graph, "sgc", hops=0, random=50, seed=4))
    assert not torch.equal(rows, phi(graph, "sgc", hops=0, random=50, seed=5))


def test_a_projection_keeps_angles():
    draw = np.random.default_rng(1)
    wide = sp.random(200, 50_000, density=0.001, random_state=draw, format="csr", dtype=np.float32)
    narrow = unit_rows(wide @ projection(50_000, 1024, seed=0))
    whole = unit_rows(wide)
    gram, exact = (narrow @ narrow.T).toarray(), (whole @ whole.T).toarray()
    assert np.abs(gram - exact).max() < 0.25
    assert np.sqrt(((gram - exact) ** 2).mean()) < 0.04  # 1 / sqrt(1024) is 0.031


def test_wide_sparse_features_stay_sparse_unless_they_are_few():
    draw = np.random.default_rng(1)
    for count, dim, sparse in ((200, 1024, False), (200, 0, True), (5000, 1024, True)):
        # 50 words spread over four columns each fill a fifth of 1024; 200 rows of these are fewer numbers than SMALL.
        wide = sp.random(count, 50_000, density=0.001, random_state=draw, format="csr", dtype=np.float32)
        made = Features(GraphTensors(graph_of(wide, [])), Recipe("mean", 1, dim, 0, 0))
        assert made.base.shape == (count, dim or 50_000)
        assert (count * (dim or 50_000) > SMALL) == sp.issparse(made.base) == sparse


@pytest.mark.parametrize("kind", ["mean", "sgc", "separate"])
@pytest.mark.parametrize("dim", [0, 20])
def test_what_is_sparse_until_a_hop_fills_it_is_what_is_dense_at_once(kind, dim, monkeypatch):
    draw = np.random.default_rng(2)
    words = sp.random(90, 60, density=0.02, random_state=draw, format="csr", dtype=np.float32)
    graph = graph_of(words, draw.integers(0, 90, (200, 2)))
    dense = phi(graph, kind, hops=3, dim=dim)
    for name, value in (("SMALL", 0), ("_AT_ONCE", 300), ("_FEWEST", 1), ("_DENSE_PROJECTION", 0)):
        monkeypatch.setattr(fedridge_features, name, value)
        assert torch.allclose(phi(graph, kind, hops=3, dim=dim), dense, atol=1e-6)


def test_features_that_are_not_projected_are_made_once_for_all_widths_and_seeds():
    data = GraphTensors(graph_of([[1, 0], [0, 1]], [(0, 1)]))
    one, two = (Features(data, Recipe("mean", 1, dim, 0, seed)).base for dim, seed in ((0, 0), (9, 4)))
    assert one is two
    assert Features(data, Recipe("mean", 1, 1, 0, 4)).base is not one
    Features.forget_others(data, [Recipe("mean", 1, 7, 0, 0)])
    assert Features(data, Recipe("mean", 1, 0, 0, 0)).base is one
    Features.forget_others(data, [Recipe("mean", 1, 1, 0, 0)])
    assert Features(data, Recipe("mean", 1, 0, 0, 0)).base is not one


def test_only_features_of_the_chosen_kind_and_width_stay_in_memory(kit):
    silos = [kit.tiny_silo(client, nodes=12, train=range(6), seed=3) for client in range(2)]
    for pilot in (0, 2):
        _, federation = played(kit, silos, pilot=pilot)
        for silo in silos:
            cache = federation.client(silo.client).data._cache
            assert sum(key[0] == "ridge features" for key in cache) == 1


def test_words_that_stand_twice_in_a_row_count_as_their_sum():
    twice = sp.csr_matrix((np.array([1.0, 2, 4], np.float32), [0, 0, 1], [0, 3]), shape=(1, 2))
    assert not twice.has_canonical_format
    assert unit_rows(twice).toarray()[0].tolist() == pytest.approx([0.6, 0.8])
    assert twice.nnz == 3


def test_graphs_have_the_mean_and_the_sum_of_their_nodes():
    # Without edges; the second graph has two nodes e1, e2; a usual graph has 1.5 nodes.
    union = graph_of([[1, 0], [2, 0], [0, 5]], [], labels=[-1, -1, -1])
    graphs = GraphCollection(union, np.array([0, 1, 3]), np.array([0, 1]), 2)
    made = Features(GraphTensors(graphs), Recipe("sgc", 1, 0, 0, 0), size=1.5)
    ((_, rows),) = made.blocks(np.arange(2))
    assert rows[0].tolist() == pytest.approx([1, 0, 1 / 1.5, 0, 0.1])
    assert rows[1].tolist() == pytest.approx([0.5, 0.5, 1 / 1.5, 1 / 1.5, 0.1])
    assert made.width == 5


# -- solutions -------------------------------------------------------------------------------------------------------


def test_packing_is_the_upper_triangle_row_by_row():
    matrix = torch.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]], dtype=torch.float64)
    packed = pack(matrix).float()
    assert packed.tolist() == [1, 2, 3, 4, 5, 6]
    assert torch.equal(whole(packed, 3), matrix)


@pytest.mark.parametrize("width", [1, 255, 256, 257, 600])
def test_triangles_of_products_are_added_up_in_float64(width):
    draw = torch.Generator().manual_seed(width)
    rows = torch.randn(40, width, generator=draw)
    scaled = 2 * rows
    total = upper_product(rows[20:], scaled[20:], upper_product(rows[:20], scaled[:20]))
    assert total.dtype is torch.float64
    found = whole(pack(total), width)
    assert torch.allclose(found, (rows.t().double() @ scaled.double()), atol=1e-4)
    assert torch.equal(whole(pack(found.float()), width), found.float().double())


def test_a_ridge_by_hand():
    # (M + I)⁻¹ (1, 0) with M = [[2, 1], [1, 2]]: the inverse of [[3, 1], [1, 3]] is [[3, -1], [-1, 3]] / 8.
    spectrum = Spectrum(torch.tensor([[2.0, 1], [1, 2]]).double())
    (found,) = spectrum.solve(torch.tensor([[1.0], [0]]).double(), [1.0])
    assert found.flatten().tolist() == pytest.approx([3 / 8, -1 / 8])


@pytest.mark.parametrize("rows", [0, 1, 7, 30, 200])
def test_all_penalties_from_one_decomposition(rows):
    draw = torch.Generator().manual_seed(rows)
    matrix = torch.randn(rows, 30, generator=draw, dtype=torch.float64)
    right = matrix.t() @ torch.randn(rows, 3, generator=draw, dtype=torch.float64)
    gram = matrix.t() @ matrix
    spectrum = Spectrum(gram)
    assert spectrum.rank == min(rows, 30)
    penalties = (1e-3, 1.0, 100.0)
    for penalty, solved in zip(penalties, spectrum.solve(right, penalties), strict=True):
        exact = torch.linalg.solve(gram + penalty * torch.eye(30, dtype=torch.float64), right)
        assert torch.allclose(solved, exact, rtol=1e-9, atol=1e-11)


def test_a_correction_by_hand_and_both_forms_agree():
    # One row e1 with residual 1: d = 1 / (1 + μ) along e1.
    (found,) = corrections(torch.tensor([[1.0, 0, 0]]).double(), torch.tensor([[1.0]]).double(), [3.0])
    assert found.flatten().tolist() == pytest.approx([0.25, 0, 0])
    draw = torch.Generator().manual_seed(0)
    wide = torch.randn(5, 9, generator=draw, dtype=torch.float64)
    residual = torch.randn(5, 2, generator=draw, dtype=torch.float64)
    twice = torch.cat([wide, wide]) * 0.5**0.5  # ten rows for nine columns, the same sums
    for one, two in zip(
        corrections(wide, residual, [0.1, 10.0]),
        corrections(twice, torch.cat([residual, residual]) * 0.5**0.5, [0.1, 10.0]),
        strict=True,
    ):
        assert torch.allclose(one, two, atol=1e-12)


# -- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2, 10])
def test_the_common_model_is_the_ridge_of_all_rows_in_one_place(kit, clients):
    silos = [kit.tiny_silo(client, nodes=5 + client % 3, train=range(1 + client % 3)) for client in range(clients)]
    settings = {"features": "separate", "ridge": (0.3,), "wire": "float64"}
    server, _ = played(kit, silos, rounds=False, **settings)
    square, cross = pooled(silos, "separate", settings)
    ((_, found),) = server.solutions()["separate"].items()
    exact = np.linalg.solve(square + 0.3 * np.eye(len(square)), cross)
    assert np.abs(found[0].numpy() - exact).max() < 1e-9 * np.abs(exact).max()


def test_thousand_clients_in_any_order_give_the_same_model(kit):
    silos = [kit.tiny_silo(client, nodes=3, train=(0, 1)) for client in range(1000)]
    settings = {"features": "mean", "ridge": (1.0,), "wire": "float64"}
    one, _ = played(kit, silos, rounds=False, **settings)
    other, _ = played(kit, [replace(silo, client=999 - silo.client) for silo in silos][::-1], rounds=False, **settings)
    square, cross = pooled(silos, "mean", settings)
    exact = np.linalg.solve(square + np.eye(len(square)), cross)
    for server in (one, other):
        ((_, found),) = server.solutions()["mean"].items()
        assert np.abs(found[0].numpy() - exact).max() < 1e-9 * np.abs(exact).max()


def test_in_float32_on_the_wire_it_is_exact_to_its_precision(kit):
    silos = [kit.tiny_silo(client) for client in range(4)]
    settings = {"features": "mean", "ridge": (0.1,), "wire": "float32", **PLAIN}
    server, _ = played(kit, silos, **settings)
    square, cross = pooled(silos, "mean", settings)
    exact = np.linalg.solve(square + 0.1 * np.eye(len(square)), cross)
    assert np.abs(server.weights["mean"].numpy() - exact).max() < 1e-5 * np.abs(exact).max()


def test_without_a_silo_it_is_as_if_that_silo_had_never_been(kit):
    """Sums of the others are the same bits; taking its sums off again agrees to rounding; so does adding them later."""
    silos = [kit.tiny_silo(client) for client in range(4)]
    settings = {"features": "mean", "wire": "float64", **PLAIN}
    every, _ = played(kit, silos, rounds=False, **settings)
    never, _ = played(kit, [*silos[:3]], rounds=False, **settings)
    gone, federation = played(kit, silos, rounds=False, **settings)
    request = StatisticsRequest(
        kinds=["mean"], dim=2048, class_weights=gone.class_weights, size=6.0, blocks={}, constants={}
    )
    again, own = (
        {name: value + total.moments_rest[name] for name, value in total.moments.items()}
        for total in (
            federation.sum(fedridge.Client.statistics, request, to=chosen).require(None) for chosen in ((0, 1, 2), (3,))
        )
    )
    for name, square in never.moments.items():
        assert torch.equal(again[name], square)
        assert torch.allclose(every.moments[name] - own[name], square, atol=1e-12)
        assert torch.allclose(again[name] + own[name], every.moments[name], atol=1e-12)


def test_class_balance_weighs_rows_by_hand(kit):
    # 4 rows of class 0 and 2 of class 1: n / (C n_c) is 6/8 and 6/4.
    silos = [kit.tiny_silo(0, train=(0, 1, 2)), kit.tiny_silo(1, train=(0, 2, 3))]
    settings = {"features": "mean", "balance": (0.0, 1.0), "ridge": (1.0,), "wire": "float64", **PLAIN}
    server, _ = played(kit, silos, rounds=False, **settings)
    assert server.class_weights.tolist() == [[1, 1], [0.75, 1.5]]
    square, cross = pooled(silos, "mean", settings, [0.75, 1.5])
    assert np.abs(whole(server.moments["mean/1"], len(square)).numpy() - square).max() < 1e-12
    assert np.abs(server.products["mean/1"].numpy().T - cross).max() < 1e-12


def test_classes_with_few_rows_are_left_out_of_a_silos_sums(kit):
    silos = [kit.tiny_silo(0, train=(0, 1, 2))]  # two of class 0, one of class 1
    settings = {"features": "mean", "wire": "float64", **PLAIN}
    server, _ = played(kit, silos, rounds=False, min_count=2, **settings)
    alone, _ = played(kit, [kit.tiny_silo(0, train=(0, 2))], rounds=False, **settings)
    assert torch.equal(server.moments["mean/0"], alone.moments["mean/0"])
    assert server.products["mean/0"][1].abs().max() == 0


# -- choices ---------------------------------------------------------------------------------------------------------


def test_summed_validation_counts_choose(kit):
    """Of the candidates the one that most validation nodes of all silos together are right with."""
    silos = [kit.tiny_silo(client, nodes=12, train=range(6), seed=3) for client in range(5)]
    penalties = (1e-3, 0.1, 1.0, 30.0)
    server, _ = played(kit, silos, ridge=penalties, own=False, **PLAIN)
    right = {}
    for kind in ("mean", "separate"):
        for place, penalty in enumerate(penalties):
            one, clients = played(kit, silos, features=kind, ridge=(penalty,), own=False, **PLAIN)
            hits = 0
            for silo in silos:
                client = clients.client(silo.client)
                guesses = client.predict(client.data).argmax(1).numpy()
                hits += int((guesses == silo.labels)[silo.seen.items["val"]].sum())
            right[kind, place] = hits
            assert set(one.weights) == {kind}
    assert len(set(right.values())) > 1
    best = max(right, key=right.get)  # the first of equals
    assert (next(iter(server.weights)), server.log["ridge"]) == (best[0], penalties[best[1]])
    assert server.log["validation"] == pytest.approx(right[best] / sum(len(s.seen.items["val"]) for s in silos))


def test_the_criterion_is_accuracy_or_macro_f1():
    # 8 of 10 right either way; by class F1 is 2·8 / 18 and 0, or 2·6 / 14 and 2·2 / 6.
    constant = np.array([[8, 0], [2, 0]])
    spread = np.array([[6, 2], [0, 2]])
    assert criterion_of(constant, "accuracy") == criterion_of(spread, "accuracy") == 0.8
    assert criterion_of(constant, "macro_f1") == pytest.approx((16 / 18) / 2)
    assert criterion_of(spread, "macro_f1") == pytest.approx((12 / 14 + 4 / 6) / 2)
    assert criterion_of(np.zeros((2, 2), dtype=int), "macro_f1") == 0.0


def test_scores_of_rare_classes_are_raised_by_hand(kit):
    # 6 rows of class 0 and 2 of class 1: −log(n_c / n) is log(4/3) and log(4).
    silos = [kit.tiny_silo(0, train=(0, 1, 2, 4)), kit.tiny_silo(1, train=(0, 2, 3, 4))]
    fixed = {"features": "mean", "label_features": "never", "ridge": (0.1,), "own": False}
    server, federation = played(kit, silos, prior=(0.5,), **fixed)
    plain, others = played(kit, silos, prior=(0.0,), **fixed)
    shift = torch.tensor([0.5 * np.log(4 / 3), 0.5 * np.log(4)])
    assert torch.allclose(server.shifts, shift[None])
    change = server.weights["mean"] - plain.weights["mean"]
    assert change[:3].abs().max() == 0
    assert torch.allclose(change[3], (shift / 0.1).float(), atol=1e-5)  # the constant column is 0.1
    with_it, without = (each.client(0)._models["common"]["mean"] for each in (federation, others))
    assert torch.equal(with_it, server.weights["mean"])
    assert torch.equal(without, plain.weights["mean"])


def test_a_correction_does_not_undo_the_raised_scores(kit):
    silos = [kit.tiny_silo(client, nodes=12, train=range(6), seed=3) for client in range(3)]
    fixed = {"features": "mean", "label_features": "never", "ridge": (0.1,), "own_ridge": (0.01,)}
    raised, with_it = played(kit, silos, prior=(0.3,), **fixed)
    plain, without = played(kit, silos, prior=(0.0,), **fixed)
    shift = raised.weights["mean"] - plain.weights["mean"]
    corrected = 0
    for client in range(3):
        one, other = (each.client(client)._models["own"]["mean"] for each in (with_it, without))
        if not torch.equal(one, raised.weights["mean"]) and not torch.equal(other, plain.weights["mean"]):
            corrected += 1
            assert torch.allclose(one - other, shift, atol=1e-5)
    assert corrected


FIXED = {"features": "mean", "label_features": "never", "ridge": (1.0,), "prior": (0.0,), "own": False}
"""Nothing to choose: the settings of a run without validation."""


def without_validation(silo):
    items = {"val": np.zeros(0, np.int64), "test": silo.seen.items["test"]}
    return replace(silo, evaluations=(EvaluationSet("seen", silo.graph, items),))


def test_with_nothing_to_choose_validation_is_not_asked(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    server, federation = played(kit, silos, **FIXED)
    asked = {row[4] for row in federation.ledger.rows()}
    assert asked == {"count", "statistics", "adopt"}
    other, _ = played(kit, [without_validation(silo) for silo in silos], **FIXED)
    assert torch.equal(server.weights["mean"], other.weights["mean"])
    _, choosing = played(kit, silos, **{**FIXED, "ridge": (1.0, 2.0)})
    assert "score" in {row[4] for row in choosing.ledger.rows()}


def test_without_validation_nodes_usual_values_are_taken_and_said(kit):
    """Of several penalties the one next to 1, of the other lists the first; nobody corrects the common model."""
    silos = [without_validation(kit.tiny_silo(client)) for client in range(3)]
    server, federation = played(kit, silos)
    fixed, _ = played(kit, silos, **FIXED)
    assert torch.equal(server.weights["mean"], fixed.weights["mean"])
    assert server.log["ridge"] == 1.0
    assert "validation" not in server.log
    assert torch.equal(federation.client(0)._models["own"]["mean"], server.weights["mean"])


def test_a_silo_keeps_the_common_model_where_its_own_is_no_better(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    no_validation = replace(
        silos[0],
        evaluations=(EvaluationSet("seen", silos[0].graph, {"val": np.zeros(0, np.int64), "test": np.array([4, 5])}),),
    )
    server, federation = played(kit, [no_validation, *silos[1:]], own_ridge=(0.01,))
    client = federation.client(0)
    assert torch.equal(client.predict(client.data), client.predict(client.data, "own"))
    models = client.final_models()
    ((name, common),) = server.weights.items()
    assert torch.equal(models["own"][name], common)
    assert torch.equal(models["common"][name], common)


def test_before_the_round_all_classes_are_alike(kit):
    _, federation = played(kit, [kit.tiny_silo(0), kit.tiny_silo(1)], rounds=False)
    client = federation.client(0)
    assert client.predict(client.data).exp().tolist() == [[pytest.approx(0.5)] * 2] * 6


# -- data that spoils a solver ---------------------------------------------------------------------------------------


def spoilt(kit, what):
    silos = [kit.tiny_silo(client, nodes=8, train=(0, 1, 2, 3)) for client in range(3)]
    if what == "constant and duplicate columns":
        wide = [np.repeat(silo.graph.features[:, :1], 6, axis=1) for silo in silos]
        for columns in wide:
            columns[:, 3:] = 1.0
        return [
            replace(silo, graph=(new := replace(silo.graph, features=columns)), schema=Schema("node", 6, 2),
                    evaluations=(replace(silo.seen, graph=new),))
            for silo, columns in zip(silos, wide, strict=True)
        ]  # fmt: skip
    if what == "one class only":
        return [replace(silo, train=np.array([0, 2])) for silo in silos]
    if what == "a client without training nodes":
        return [replace(silos[0], train=np.zeros(0, np.int64)), *silos[1:]]
    if what == "nobody trains":
        return [replace(silo, train=np.zeros(0, np.int64)) for silo in silos]
    if what == "features of zeros":
        return [
            replace(silo, graph=(new := replace(silo.graph, features=np.zeros_like(silo.graph.features))),
                    evaluations=(replace(silo.seen, graph=new),))
            for silo in silos
        ]  # fmt: skip
    assert what == "a class nobody has"
    return [
        replace(silo, schema=Schema("node", 3, 5), graph=(new := replace(silo.graph, num_classes=5)),
                evaluations=(replace(silo.seen, graph=new),))
        for silo in silos
    ]  # fmt: skip


@pytest.mark.parametrize(
    "what",
    ["constant and duplicate columns", "one class only", "a client without training nodes", "nobody trains",
     "features of zeros", "a class nobody has"],
)  # fmt: skip
def test_no_data_makes_it_warn_or_lose_a_number(kit, what):
    silos = spoilt(kit, what)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        server, federation = played(
            kit, silos, ridge=(1e-6, 1.0), own_ridge=(1e-6, 1.0), balance=(0.0, 1.0), random_features=4
        )
        for silo in silos:
            client = federation.client(silo.client)
            client.install_aggregate(server.aggregate())
            for view in ("own", "aggregate"):
                output = client.predict(client.data, view)
                assert torch.isfinite(output).all()
                assert torch.allclose(output.exp().sum(1), torch.ones(len(output)), atol=1e-5)
    if what == "one class only":
        assert client.predict(client.data).argmax(1).tolist() == [0] * 8
    if what == "a class nobody has":
        assert client.predict(client.data).argmax(1).max() < 2


def test_settings_out_of_bounds_are_refused():
    for settings, text in (
        ({"balance": (0.5, 1.5)}, r"method\.balance lists numbers between 0 and 1; got \[0\.5, 1\.5\]"),
        ({"ridge": (0.0,)}, r"method\.ridge lists penalties above 0"),
        ({"prior": (0.1, -0.1)}, r"method\.prior lists numbers of at least 0; got \[0\.1, -0\.1\]"),
        ({"own_ridge": (-1.0,)}, r"method\.own_ridge lists penalties above 0"),
    ):
        with pytest.raises(ConfigError, match=text):
            METHOD.config(**settings)


def test_an_aggregate_of_other_features_is_refused(kit):
    _, federation = played(kit, [kit.tiny_silo(0), kit.tiny_silo(1)])
    with pytest.raises(MessageError, match=r"the aggregate has shape \(3, 2\)"):
        federation.client(0).install_aggregate({"mean": torch.zeros(3, 2)})
    with pytest.raises(MessageError, match="'gcn' is no kind of features"):
        federation.client(0).install_aggregate({"gcn": torch.zeros(4, 2)})


def test_bytes_are_those_foreseen_but_for_headers(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    for settings in ({}, PLAIN, {"wire": "float64", "balance": (0.0, 0.5), "random_features": 40}):
        server, federation = played(kit, silos, **settings)
        up, down = server.expected_bytes()
        sent = {way: sum(federation.ledger.total(phase)[way] for phase in ("setup", "round")) for way in ("up", "down")}
        assert up <= sent["up"] < 1.2 * up + 6000
        assert down <= sent["down"] < 1.2 * down + 9000


def test_blocks_are_those_of_the_whole(kit):
    count = BLOCK + 10
    features = np.random.default_rng(0).standard_normal((count, 3)).astype(np.float32)
    graph = graph_of(features, list(pairwise(range(count))))
    made = Features(GraphTensors(graph), Recipe("mean", 1, 0, 2, 0))
    parts = list(made.blocks(np.arange(count)))
    assert [len(items) for items, _ in parts] == [BLOCK, 10]
    assert torch.equal(parts[1][1], next(made.blocks(np.arange(BLOCK, count)))[1])


# -- the suite -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_conforms(check):
    check(registry.load("fedridge"), {})


@pytest.mark.slow
def test_worker_processes_give_the_same_numbers():
    conformance.check_workers(METHOD, {})


@pytest.mark.data
def test_cora_in_one_round(data_root):
    """Beside FedAvg of a hundred rounds: 79 to 80 % on this cut."""
    config = load_config(
        overrides={"data.name": "Cora", "data.root": str(data_root), "partition.rule": "louvain",
                   "method.name": "fedridge", "evaluation.models": False}
    )  # fmt: skip
    tree = run(config).tree
    assert tree["summary"]["test"]["accuracy"]["mean"] > 0.835
    assert tree["seeds"][0]["modes"]["aggregate_local"]["test"]["macro_f1"] > 0.65
    assert len(tree["seeds"][0]["rounds"]) == 1


def test_a_column_a_thousandth_of_the_others_still_tells_classes_apart():
    """Sums of few columns cross in float64: in float32 such a direction drowns in the rounding of the constant's."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 600)
    small = 0.001 * (2 * labels - 1) * (1 + 0.1 * random.standard_normal(600))
    graph = Graph(
        features=np.stack([np.ones(600), small], axis=1).astype(np.float32),
        edges=np.zeros((2, 0), dtype=np.int64), labels=labels, num_classes=2, name="small",
    )  # fmt: skip
    result = graphsilo.run(data=graph, partition="random", clients=3, method={"name": "fedridge"})
    assert result.accuracy() == 1.0


@pytest.mark.parametrize(("wire", "width", "expected"), [
    ("auto", 256, True), ("auto", 257, False), ("float64", 5000, True), ("float32", 3, False),
])  # fmt: skip
def test_which_sums_cross_in_float64(wire, width, expected):
    assert FedRidgeConfig(wire=wire).precise([2, width]) is expected


def test_silos_that_were_not_asked_have_the_model_too(kit):
    silos = [kit.tiny_silo(client) for client in range(4)]
    server, federation = played(kit, silos, participation=0.5)
    assert server.log["training_items"] == sum(len(silos[client].train) for client in server.select(federation, 1))
    for client in federation.clients:
        assert federation.client(client).study()


def test_when_no_class_has_enough_items_it_says_so(kit):
    with pytest.raises(FederationError, match=r"fewer than method\.min_count=1000 of them at every silo\. Lower it"):
        played(kit, [kit.tiny_silo(client) for client in range(2)], min_count=1000)
