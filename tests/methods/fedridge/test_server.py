"""What the server of FedRidge makes of the answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.errors import FederationError
from graphsilo.evaluate.scores import roc_auc
from graphsilo.federation import registry
from graphsilo.methods import fedridge
from graphsilo.methods.fedridge.messages import StatisticsRequest
from graphsilo.testing import conformance
from kit.fedridge import PLAIN, played, pooled

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


@pytest.mark.slow
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


def test_summed_rankings_choose(kit):
    """With a metric of scores: of each candidate the silos' values, weighted by the items that they rest on."""
    silos = [kit.tiny_silo(client, nodes=12 + 4 * client, train=range(6), seed=3) for client in range(3)]
    silos = [
        replace(silo, evaluations=(EvaluationSet("seen", silo.graph, {"val": np.arange(6, 12), "test": silo.train}),))
        for silo in silos
    ]
    penalties = (1e-3, 0.1, 1.0, 30.0)
    settings = {"features": "mean", "own": False, **PLAIN}
    server, _ = played(kit, silos, ridge=penalties, select_by="auc", **settings)
    values = []
    for penalty in penalties:
        _, clients = played(kit, silos, ridge=(penalty,), **settings)
        found = []
        for silo in silos:
            client, items = clients.client(silo.client), silo.seen.items["val"]
            found.append(roc_auc(silo.labels[items], client.predict(client.data)[items].numpy()))
        values.append(sum(each.value * each.weight for each in found) / sum(each.weight for each in found))
    assert len(set(values)) > 1
    assert server.log["ridge"] == penalties[int(np.argmax(values))]
    assert server.log["validation"] == pytest.approx(max(values), abs=1e-3)  # sums are rounded
    silos = [without_validation(silo) for silo in silos]
    server, _ = played(kit, silos, ridge=penalties, select_by="auc", **settings)
    assert server.log["ridge"] == 1.0


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


def test_silos_that_were_not_asked_have_the_model_too(kit):
    silos = [kit.tiny_silo(client) for client in range(4)]
    server, federation = played(kit, silos, participation=0.5)
    assert server.log["training_items"] == sum(len(silos[client].train) for client in server.select(federation, 1))
    for client in federation.clients:
        assert federation.client(client).study()


def test_when_no_class_has_enough_items_it_says_so(kit):
    with pytest.raises(FederationError, match=r"fewer than method\.min_count=1000 of them at every silo\. Lower it"):
        played(kit, [kit.tiny_silo(client) for client in range(2)], min_count=1000)


@pytest.mark.parametrize("name", ["fedridge", "auto"])
def test_silos_that_added_no_sums_have_the_features_of_the_others(name):
    """Sums of graphs are divided by the nodes of a usual one, which only who was asked for sums was told."""
    method = conformance.variants(registry.load(name))["graph"]
    server, federation, _ = conformance.assemble(method, {**method.quick, "participation": 0.5})
    conformance.play(server, federation, rounds=1)
    clients = [federation.client(client) for client in federation.clients]
    sizes = {getattr(client, "_parts", {"ridge": client})["ridge"]._size for client in clients}
    assert sizes == {getattr(server, "parts", {"ridge": server})["ridge"].size} != {1.0}
