"""`graphsilo attack`."""

from __future__ import annotations

import shutil

import pytest

from graphsilo.attacks import record as records
from graphsilo.attacks.record import Outcome
from graphsilo.cli import attack


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def test_a_run_is_attacked(call, run):
    code, out, err = call("attack", run, "--only", "classes", "--as", "coordinator", "--seeds", "1", "--clients", "0-1")
    assert code == 0
    assert "Running seed 1 of FedAvg again" in err
    assert "clients 0, 1 attacked" in out
    assert "classes, from evaluation" in out
    found = records.read(run)
    assert found.targets == [0, 1]
    assert found.notes == []
    assert {one.attacker for one in found.outcomes[1]} == {"coordinator"}


def test_what_is_not_known_is_refused(call, run):
    assert call("attack", run, "--only", "clases")[2].startswith("graphsilo: there is no attack 'clases'")
    assert call("attack", run, "--as", "silos")[0] == 2
    assert call("attack", run, "--seeds", "7", "-q")[0] == 2
    assert "7 was asked for" in call("attack", run, "--clients", "7", "-q")[2]
    assert call("attack", run / "nothing")[0] == 2
    assert call("attack", run, "--shadows", "-1")[2] == "graphsilo: shadows must be at least 0; got -1.\n"  # as Python


def test_an_attack_with_one_figure_of_two_had_something_to_use():
    part = {"attack": "classes", "attacker": "silo", "uses": "counts"}
    found = [Outcome(**part, figure="AUC"), Outcome(**part, figure="share", value=0.5, low=0.1, high=0.9)]
    nothing = Outcome(attack="rows", attacker="reader", figure="share", uses="")
    assert attack._list_unused(found) == []
    assert attack._list_unused([*found, nothing]) == ["Nothing to use: rows (as reader)."]
