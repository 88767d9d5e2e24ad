"""FairFGL: the invariants of its specification, through the real machinery."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.testing import conformance
from kit.fairfgl import patch, rounds
from kit.messages import check_sent

PLAIN = {
    "alpha_start": 0.0, "distillation": 0.0, "alignment": 0.0, "correction": False, "clustering": False, "top_k": 1.0,
}  # fmt: skip
"""Every part off: FedAvg."""


# -- everything off ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("settings", [{}, {"participation": 0.67}, {"optimizer": "sgd", "lr": 0.1}], ids=str)
def test_with_every_part_off_it_is_fedavg(kit, settings, dropout):
    silos = [patch(client, nodes=20 + client, train=8 + client) for client in range(3)]
    mine = rounds(*kit.build("fairfgl", silos, dropout=dropout, eta=1.0, **PLAIN, **settings), 3)
    other = rounds(*kit.build("fedavg", silos, dropout=dropout, **settings), 3)
    for name in other:
        torch.testing.assert_close(mine[name], other[name], atol=2e-6, rtol=1e-5)


def test_by_hand(kit):
    # f(x) = (x - 0)²/2 from 1, rate 0.1, one step: 0.9. With half of W_hist = 1 mixed in, the gradient at
    # Ŵ = 1 is 1, of which W_local gets half: 0.95, and Ŵ = (1 + 0.95) / 2 = 0.975.
    parameter = torch.ones(())
    fused = 0.5 * 1.0 + 0.5 * parameter
    local = parameter - 0.1 * 0.5 * fused
    assert (local.item(), 0.5 + 0.5 * local.item()) == (pytest.approx(0.95), pytest.approx(0.975))
    silo = patch()
    settings = {**PLAIN, "alpha_start": 0.5, "alpha_learned": False, "optimizer": "sgd", "lr": 0.1}
    _, federation = kit.build("fairfgl", [silo], weight_decay=0.0, local_epochs=1, **settings)
    client = federation.client(0)
    start = torch.ones_like(client._fused)
    client._local.copy_(start)
    client._step(start.clone(), start, None)  # the gradient of f at Ŵ = 1 is 1
    client._fuse(start)
    assert client._local.unique().tolist() == [pytest.approx(0.95)]
    assert client._fused.unique().tolist() == [pytest.approx(0.975)]


# -- poor clients --------------------------------------------------------------------------------------------------


def poor(kind):
    silo = patch(0)
    graph = silo.graph
    if kind == "no training node":
        return replace(silo, train=silo.train[:0])
    if kind == "one class":
        return replace(silo, train=silo.train[silo.labels[silo.train] == 0])
    if kind == "one training node":
        return replace(silo, train=silo.train[:1])
    if kind == "no edges":
        bare = graph.with_edges(np.zeros((2, 0), dtype=np.int64))
        return replace(silo, graph=bare, evaluations=(replace(silo.seen, graph=bare),))
    return replace(silo, train=np.arange(graph.num_nodes))  # everything is labelled


@pytest.mark.parametrize("kind", ["no training node", "one class", "one training node", "no edges", "all labelled"])
@pytest.mark.parametrize("others", [0, 1, 3])
def test_poor_clients(kit, kind, others):
    silos = [poor(kind), *(patch(client) for client in range(1, others + 1))]
    server, federation = kit.build("fairfgl", silos, pseudo_labels=kind == "no edges")
    before = {name: value.clone() for name, value in server.weights.items()}
    rounds(server, federation, 3)
    assert all(torch.isfinite(value).all() for value in server.weights.values())
    assert torch.isfinite(federation.client(0).predict(federation.client(0).data)).all()
    if kind == "no training node" and not others:
        assert all(torch.equal(server.weights[name], before[name]) for name in before)


# -- real data -----------------------------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.slow
def test_fairer_than_fedavg_on_cora(data_root):
    """Mean macro-F1 over rounds 21 to 60: at least 5 points above FedAvg's client models, and some lost without
    distillation. One seed, on which processors differ by two points; over three splits the gaps are 9 and 6."""
    from graphsilo.experiments.config import load_config

    def mean_f1(**settings):
        overrides = {
            "data.name": "Cora", "data.root": str(data_root), "partition.rule": "metis", "partition.clients": 10,
            "partition.seed": 0, "method.rounds": 60, "evaluation.models": False,
            **{f"method.{name}": value for name, value in settings.items()},
        }  # fmt: skip
        tree = run(load_config(None, overrides=overrides)).tree["seeds"][0]
        return float(np.mean([row["test"]["macro_f1"] for row in tree["rounds"][20:]]))

    fair = mean_f1(name="fairfgl")
    assert fair >= mean_f1(name="fedavg") + 0.05
    assert fair >= mean_f1(name="fairfgl", distillation=0.0) + 0.01


def test_what_leaves_a_silo():
    check_sent(
        "fairfgl",
        """
        train values: model float32 relayed
        train positions: model int32 optional relayed
        train bitmap: model uint8 optional relayed
        train num_samples: counts
        """,
    )


def test_labels_stay_with_pseudo_labels():
    method = registry.load("fairfgl")
    conformance.check_labels_stay(method, {**method.quick, **{"pseudo_labels": True}})
