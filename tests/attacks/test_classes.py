"""Which classes a silo trains on."""

from __future__ import annotations

from graphsilo.attacks.classes import classes
from kit.attacks import SGD, cases, outcome, recorded


def found(run, attacker="coordinator"):
    return classes(cases(run, attacker), run.simulation.silos)


def test_counts_that_are_sent_say_it():
    run = recorded(train=1, method__name="fedridge", method__rounds=1)
    outcomes = found(run)
    one = outcome(outcomes, "classes: AUC")
    assert (one.value, one.low, one.uses) == (1.0, 1.0, "classes")
    assert outcome(outcomes, "classes: share").value == 1.0


def test_the_output_s_bias_says_it():
    # One node: p - y is below 0 for its class alone, so that only this entry of the bias rises.
    run = recorded(train=1, **SGD)
    one = outcome(found(run), "classes: AUC")
    assert one.value == 1.0
    assert one.uses == "change of the output's bias"
    assert outcome(found(run), "classes: share").value == 1.0


def test_confusion_counts_say_it():
    run = recorded()
    assert outcome(found(run), "from evaluation: share").value == 1.0


def test_sums_say_it_of_nobody():
    run = recorded(train=1, run__secure_sums=True, evaluation__report="federation", **SGD)
    outcomes = found(run)
    # Every silo gets the same guess: of three silos it is right about those that have the federation's class.
    one = outcome(outcomes, "classes: share")
    assert one.uses == "change of the output's bias, mean over silos"
    assert not one.succeeds
    assert outcome(found(run, "reader"), "classes: AUC").value is None
