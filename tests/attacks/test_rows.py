"""Rows recovered from what was sent."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.attacks.rows import reach, rows
from kit.attacks import SGD, cases, outcome, recorded


def found(run, attacker="coordinator"):
    return outcome(rows(cases(run, attacker), run.simulation.silos), "above 0.999")


def test_one_training_node_s_row_is_its_update():
    # Without links the gradient of the first layer is δ xᵀ, and that of its bias δ: the ratio is x.
    run = recorded(train=1, links=False, **SGD)
    one = found(run)
    assert one.value == 1.0
    assert one.targets == 3
    assert one.prior == 0.0
    assert one.uses == "change of the first layer"


def test_adam_s_first_step_gives_most_away_too():
    run = recorded(train=1, links=False, method__local_epochs=1)
    assert outcome(rows(cases(run), run.simulation.silos), "above 0.95").value >= 2 / 3
    three = recorded(train=1, links=False, method__local_epochs=3)
    assert outcome(rows(cases(three), three.simulation.silos), "above 0.999").value == 0.0


def test_not_with_secure_sums():
    run = recorded(train=1, links=False, run__secure_sums=True, evaluation__report="federation", **SGD)
    # A unit that fires for one of the three nodes alone still gives that node's row, but not whose it is.
    one = found(run)
    assert one.uses == "change of the first layer, mean over silos"
    many = recorded(run__secure_sums=True, evaluation__report="federation", **SGD)
    assert found(many).value == 0.0


def test_a_reader_has_nothing_to_use():
    one = found(recorded(train=1, links=False, **SGD), "reader")
    assert one.value is None
    assert one.verdict == "nothing to use"


def test_sums_of_one_row_are_the_row():
    run = recorded(train=1, method__name="fedridge", method__rounds=1)
    one = found(run)
    assert one.value == 1.0
    assert one.targets == 3
    noisy = recorded(train=1, method__name="fedridge", method__rounds=1, method__epsilon=1.0)
    assert found(noisy).value == 0.0


def test_a_class_of_two_nodes_gives_their_mean():
    # O-pFGL leaves classes of one node out; two equal rows are their mean.
    run = recorded(method__name="opfgl", method__rounds=1, method__expand=False, method__stage1_epochs=1,
                   method__stage2_epochs=1, model__hidden=8)  # fmt: skip
    view, _ = cases(run)[0]
    shapes = {spec.name: tensor.shape for _, spec, tensor in view.fields("statistic")}
    assert shapes["totals"][0] == 3
    one = found(run)
    assert one.value is not None
    assert one.value < 0.2


def test_reach_is_a_node_and_its_neighbours():
    _, silo = cases(recorded(train=1))[0]
    (node,) = silo.train
    near = silo.graph.edges[1][silo.graph.edges[0] == node]
    assert set(reach(silo)) == {int(node), *near.tolist()}


@pytest.mark.parametrize("attacker", ["coordinator", "silo", "reader"])
def test_what_is_not_there_is_no_success(attacker):
    run = recorded(method__name="majority", method__rounds=1)
    one = found(run, attacker)
    assert one.value is None or not one.succeeds
    assert not np.isnan(one.prior or 0.0)
