"""What a client of FedRidge computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.errors import MessageError
from kit.fedridge import PLAIN, played, pooled, whole


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


def test_an_aggregate_of_other_features_is_refused(kit):
    _, federation = played(kit, [kit.tiny_silo(0), kit.tiny_silo(1)])
    with pytest.raises(MessageError, match=r"the aggregate has shape \(3, 2\)"):
        federation.client(0).install_aggregate({"mean": torch.zeros(3, 2)})
    with pytest.raises(MessageError, match="'gcn' is no kind of features"):
        federation.client(0).install_aggregate({"gcn": torch.zeros(4, 2)})
