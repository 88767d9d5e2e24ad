"""Which features a class's nodes have."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.attacks.attribute import attribute, evidence, measure_change
from kit.attacks import cases, recorded


def test_class_sums_say_which_features_are_there():
    run = recorded(method__name="fedridge", method__rounds=1, method__features="mean", method__hops=0)
    # Without neighbours Σ yφᵀ is above 0 exactly where a training node of the class has the feature.
    one, whole = attribute(cases(run), run.simulation.silos)
    assert (one.value, one.low, one.high) == (1.0, 1.0, 1.0)
    assert (one.uses, whole.uses) == ("Σ yφᵀ", "Σ φφᵀ")
    assert one.verdict == "above the prior"
    view, silo = cases(run)[0]
    rows = silo.graph.union.features[silo.train]  # of length 1 there
    wanted = (np.asarray(rows) ** 2 / (np.asarray(rows) ** 2).sum(1, keepdims=True)).sum(0)
    np.testing.assert_allclose(measure_change(view)[0][0], wanted, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weights_of_features_that_nobody_has_only_decay(optimizer):
    run = recorded(train=2, links=False, method__optimizer=optimizer)
    _, one = attribute(cases(run), run.simulation.silos)
    assert one.uses == "change of the first layer"
    assert one.value > 0.99
    assert one.verdict == "above the prior"
    still = recorded(train=2, links=False, method__optimizer=optimizer, method__weight_decay=0.0)
    assert attribute(cases(still), still.simulation.silos)[1].value > 0.99


@pytest.mark.parametrize("method", ["fedprox", "scaffold", "feddc", "fednh", "moon"])
def test_what_a_method_does_to_all_weights_is_worked_out(method):
    run = recorded(train=2, links=False, method__name=method, method__rounds=2)
    assert attribute(cases(run), run.simulation.silos)[1].value > 0.99


@pytest.mark.parametrize("random", [0, 30])
def test_projected_sums_are_projected_back(random):
    more = {"method__features": "mean", "method__hops": 0, "method__dim": 16, "method__random_features": random}
    run = recorded(method__name="fedridge", method__rounds=1, **more)
    one, whole = attribute(cases(run), run.simulation.silos)
    assert whole.value is None  # no column is a feature, however many there are
    assert one.uses == "Σ yφᵀ, projected back"
    assert 0.6 < one.value < 1.0


def test_of_secure_sums_the_sum_is_used():
    run = recorded(method__name="fedridge", method__rounds=1, run__secure_sums=True, evaluation__report="federation")
    one, _ = attribute(cases(run), run.simulation.silos)
    assert one.uses == "Σ yφᵀ, summed over silos"


@pytest.mark.parametrize(
    ("method", "attacker", "uses"),
    [
        ("fedavg", "coordinator", "change of the model"),
        ("fedavg", "silo", "change of the model, mean over silos"),
        ("fedavg", "reader", "the common model"),
        ("local", "reader", "the silo's own saved model"),
        ("fedlog", "coordinator", "synthetic"),
        ("fedproto", "coordinator", "sums, read with another silo's nodes"),
        ("fedproto", "silo", "prototypes, of all silos, read with another silo's nodes"),
    ],
)
def test_what_is_used(method, attacker, uses):
    more = {"model__hidden": [8]} if method == "fedlog" else {}
    run = recorded(method__name=method, method__rounds=2, **more)
    view, silo = cases(run, attacker)[0]
    scores, found = evidence(view)
    assert found == uses
    assert scores.shape == (3, silo.graph.num_features)
    assert np.isfinite(scores.numpy()).all()


def test_noise_covers_what_few_nodes_have(known_noise):
    quick = {"method__rounds": 1, "method__stage1_epochs": 1, "method__stage2_epochs": 1, "train": 3}
    run = recorded(method__name="opfgl", method__epsilon=0.1, **quick)
    one, _ = attribute(cases(run), run.simulation.silos)
    assert one.uses == "totals"
    assert one.value < 0.7
    plain = recorded(method__name="opfgl", **quick)
    assert attribute(cases(plain), plain.simulation.silos)[0].value > 0.7


def test_local_training_leaves_a_coordinator_nothing():
    run = recorded(method__name="local")
    one, _ = attribute(cases(run), run.simulation.silos)
    assert one.value is None
