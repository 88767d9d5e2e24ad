"""Who was trained on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphsilo.attacks.labels import labels
from graphsilo.attacks.membership import (
    _columns,
    candidates,
    count_outside,
    likelihood_ratio,
    membership,
    of_sums,
    shadow_runs,
)
from graphsilo.attacks.recorder import Call
from graphsilo.attacks.rows import rows
from graphsilo.attacks.views import views
from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.catalog import apply_options
from graphsilo.methods.fedtrees import bins
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.messages import Cells, CellsRequest
from kit.attacks import cases, outcome, recorded
from kit.link_tables import dated_graph

TREES = {"method__name": "fedtrees", "method__rounds": 1}
SECURE = {"run__secure_sums": True, "evaluation__report": "federation"}


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
    one = outcome(of_sums(cases(run)), "AUC")
    assert one.value > 0.95
    assert one.uses == "Σ φφᵀ"
    noisy = recorded(method__name="fedridge", method__rounds=1, train=5, method__epsilon=0.5)
    assert outcome(of_sums(cases(noisy)), "AUC").verdict == "not above the prior"
    assert of_sums(cases(recorded())) == []
    assert of_sums(cases(run, "reader")) == []


def test_numbers_in_cells_of_nobody_by_hand():
    trained = np.array([[1.0, 5.0], [2.0, 5.0]], dtype=np.float32)
    asked_about = np.array([[1.0, 5.0], [1.05, 5.0], [2.0, 7.0], [3.0, 7.0]], dtype=np.float32)
    first = bins.coarse_counts(trained)
    cells = bins.cells_to_refine(first, 3)  # 1 and 2, and 5; a cell reaches from 1 to 1.125, a part of it to 1.002
    fine = bins.fine_counts(trained, cells).reshape(2, -1)
    of = {"phase": "setup", "round": 0, "step": "cells", "client": 0}
    calls = [
        Call(request=CellsRequest(cells=torch.from_numpy(asked)), answer=Cells(counts=torch.from_numpy(seen)), **of)
        for asked, seen in ((np.zeros((2, 0), dtype=np.int64), first), (cells, fine))
    ]
    assert count_outside(calls[:1], asked_about).tolist() == [0, 0, 1, 2]
    assert count_outside(calls, asked_about).tolist() == [0, 1, 1, 2]
    assert count_outside(calls, asked_about[:, :1]).tolist() == [0, 1, 0, 1]
    assert count_outside(calls, asked_about[:0]).tolist() == []


@pytest.mark.parametrize("secure", [{}, SECURE])
@pytest.mark.parametrize("method", [{}, {"method__dim": 4}, {"method__name": "auto", "method__rounds": 2}])
def test_counts_of_cells_tell_who_is_in_them(method, secure):
    run = recorded(**{**TREES, **method, **secure})
    one = outcome(of_sums(cases(run)), "AUC")
    assert one.verdict == "above the prior"
    assert one.uses.startswith("Σ φφᵀ and counts of cells" if method.get("method__name") else "counts of cells")
    assert one.uses.endswith(", summed over silos") == bool(secure)
    assert of_sums(cases(run, "silo")) == of_sums(cases(run, "reader")) == []


@pytest.mark.parametrize("secure", [{}, SECURE])
@pytest.mark.parametrize("name", ["fedtrees", "auto"])
def test_a_common_forest_is_read_as_silos_read_it(name, secure):
    run = recorded(method__name=name, method__rounds=3, **secure)
    (shadow,) = shadow_runs(run, (1,), 1, lambda text: None)
    for each in (run, shadow.run):
        member = each.recorder.federation.client(1)
        for role in ("coordinator", "silo", "reader"):
            (view,) = views(each, role, (1,))
            assert view.saved[0] == "common"
            member.install_aggregate(view.saved[1])
            # On another graph than its own a silo knows of no labels either.
            elsewhere = replace(member.silo.graph)
            says = member.predict(member.tensors(elsewhere), "aggregate")
            assert torch.equal(view.public.logits(view.saved, 1, elsewhere), torch.log_softmax(says.double(), dim=1))


@pytest.mark.parametrize("name", ["fedtrees", "auto"])
def test_a_silo_without_rows_has_nobody_to_tell(name):
    run = recorded(method__name=name, method__rounds=2)
    (view, silo), other, *_ = cases(run)
    bare = replace(silo, train=silo.train[:0])
    assert of_sums([(view, bare)]) == []
    assert of_sums([(view, bare), other]) == of_sums([other])
    assert outcome(labels([(view, bare)], run.simulation.silos), "labels").value is None
    assert outcome(rows([(view, bare)], run.simulation.silos), "0.95").value is None
    simulation = replace(run.simulation, silos=(bare, *run.simulation.silos[1:]))
    without = replace(run, simulation=simulation)
    seen = {"reader": views(without, "reader", (0,))}
    assert outcome(membership(without, seen, shadow_runs(without, (0,), 2, lambda text: None)), "AUC").value is None


def test_columns_of_relations_are_among_those_that_were_counted():
    graph = apply_options(dated_graph(0), {"sums": True})
    schema, config = Schema.of(graph, "node"), FedTreesConfig()
    public = SimpleNamespace(settings=lambda kind: config, set_up=(), schema=schema, seed=0)
    found = _columns(SimpleNamespace(public=public), SimpleNamespace(graph=graph), np.array([0, 5]))
    assert found.shape == (2, config.width(schema))
