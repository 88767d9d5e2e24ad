"""Who was trained on."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.attacks.membership import candidates, likelihood_ratio, membership, shadow_runs, span
from graphsilo.attacks.views import views
from kit.attacks import cases, outcome, recorded


def test_candidates_are_members_and_as_many_others():
    for _, silo in cases(recorded()):
        known = candidates(silo)
        assert set(known.nodes[known.members]) <= set(silo.train)
        assert not set(known.nodes[~known.members]) & set(silo.train)
        assert known.members.sum() * 2 == len(known.nodes) > 0


def test_a_shadow_trains_on_half_of_the_candidates():
    run = recorded(method__rounds=1)
    (shadow,) = shadow_runs(run, (1,), 1, lambda text: None)
    before, after = ({silo.client: silo for silo in each.simulation.silos} for each in (run, shadow.run))
    known = candidates(before[1])
    assert list(shadow.chosen) == [1]
    assert shadow.chosen[1].sum() == len(known.nodes) // 2
    assert set(known.nodes[shadow.chosen[1]]) == set(after[1].train) & set(known.nodes)
    assert np.array_equal(after[0].train, before[0].train)
    assert shadow.run.seed != run.seed


def test_the_likelihood_ratio_by_hand():
    # Seen: 4 and 2, mean 3; not seen: 1 and -1, mean 0; the spread of both is 1. At 2: (2² - 1²) / 2.
    theirs = np.array([[4.0], [2.0], [1.0], [-1.0]])
    chosen = np.array([[True], [True], [False], [False]])
    assert likelihood_ratio(np.array([2.0]), theirs, chosen) == pytest.approx([1.5])


def test_an_overfitted_model_gives_its_nodes_away():
    run = recorded(method__name="local", method__rounds=30, model__hidden=32)
    seen = {"reader": views(run, "reader", (0, 1, 2))}
    outcomes = membership(run, seen, shadow_runs(run, (0, 1, 2), 6, lambda text: None))
    one = outcome(outcomes, "AUC")
    assert one.prior == 0.5
    assert one.verdict == "above the prior"


def test_the_span_of_few_rows_holds_them_alone(known_noise):
    run = recorded(method__name="fedridge", method__rounds=1, method__features="mean", train=5)
    one = outcome(span(cases(run)), "AUC")
    assert one.value > 0.95
    assert one.uses == "Σ φφᵀ"
    noisy = recorded(method__name="fedridge", method__rounds=1, train=5, method__epsilon=0.5)
    assert outcome(span(cases(noisy)), "AUC").verdict == "not above the prior"
    assert span(cases(recorded())) == []
    assert span(cases(run, "reader")) == []
