"""Classes of single training nodes, from bins that hold one."""

from __future__ import annotations

import pytest

from graphsilo.attacks.labels import labels
from kit.attacks import cases, outcome, recorded

TREES = {"method__name": "fedtrees", "method__rounds": 2}


def found(attacker="coordinator", **settings):
    run = recorded(**settings)
    return outcome(labels(cases(run, attacker), run.simulation.silos), "labels")


def test_a_node_that_is_alone_is_in_bins_of_its_own():
    one = found(train=1, **TREES)
    assert (one.value, one.low) == (1.0, pytest.approx(1 / (1 + 1.96**2 / 3), abs=0.01))  # Wilson's, of three silos
    assert one.uses == "bins of one node"


def test_bins_of_all_silos_say_less():
    secure = found(run__secure_sums=True, evaluation__report="federation", **TREES)
    assert secure.uses == "bins of one node, summed over silos"
    assert secure.value < found(**TREES).value


def test_bins_of_more_nodes_say_it_of_none():
    assert found(method__min_count=2, method__columns=4, **TREES).value == 0


def test_the_trees_of_auto_tell_the_same():
    both = found(method__name="auto", method__rounds=3)
    assert both.value == found(method__name="fedtrees", method__rounds=2).value > 0


@pytest.mark.parametrize(("attacker", "method"), [("silo", "fedtrees"), ("coordinator", "fedavg")])
def test_without_histograms_there_is_nothing_to_read(attacker, method):
    one = found(attacker, **{**TREES, "method__name": method})
    assert (one.value, one.uses) == (None, "no histogram of a training node was seen")
