"""``graphsilo plan``: tables, JSON, refusals."""

from __future__ import annotations

import json
import re

import pytest


@pytest.mark.slow
def test_tables(call, small):
    code, out, _ = call("plan", *small, "--rounds", "3", "--seconds", "1", "--bandwidth", "10", "--latency", "5")
    assert code == 0
    assert out.startswith("FedAvg on citation-sbm: 3 clients (random), 3 rounds, 1 seed.")
    assert "Known from: set-up and 3 of 3 rounds of one seed measured, all clients." in out
    for words in (
        "Each later round of 3",
        "Seed: set-up, rounds",
        "Memory of the run",
        "Disk: ",
        "every call waits for the slowest site",
    ):
        assert words in out
    assert "≈" not in out


@pytest.mark.slow
def test_bytes_of_several_seeds_are_exact_where_nothing_is_drawn(call, small):
    tried = ("--rounds", "4", "--seconds", "1", "--seeds", "0,1")
    code, out, _ = call("plan", *small, *tried)
    assert code == 0
    assert "The whole run" in out
    assert "≈" not in out
    _, out, _ = call("plan", *small, *tried, "--set", "method.participation=0.4")
    (run,) = [line for line in out.splitlines() if line.startswith("The whole run")]
    # Other seeds draw other clients, which send as much in all.
    assert re.findall(r"(≈?)[0-9.]+ [kM]?B", run) == ["", "", "≈", "≈"]


@pytest.mark.slow
def test_json(call, small):
    code, out, _ = call("plan", *small, "--rounds", "3", "--seconds", "1", "--workers", "2", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["about"]["rounds"] == 3
    assert found["is_steady"]
    assert found["about"]["workers"] == 2
    assert {process["name"] for process in found["processes"]} == {"coordinator", "worker"}


@pytest.mark.slow
def test_a_run_that_does_not_fit_is_planned_and_refused(call, small, monkeypatch):
    from graphsilo import planning
    from graphsilo.runtime.machine import Memory

    monkeypatch.setattr(planning, "memory", lambda: Memory(10**8, 10**10))
    code, out, err = call("plan", *small, "--rounds", "2", "--seconds", "1")
    assert code == 1
    assert "The whole run" in out
    assert "would be needed, and this machine has 0.1 GB" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--latency", "5"], "latency is given as 5 without a bandwidth"),
        (["--bandwidth", "0"], "bandwidth must be a finite number above 0, in Mbit/s; got 0."),
        (["--bandwidth", "1", "--latency", "-5"], "latency must be a finite number at least 0, in ms; got -5."),
        (["--bandwidth", "10mbit"], "--bandwidth must be a number; got '10mbit'."),
        (["--bandwidth", "inf"], "bandwidth must be a finite number above 0, in Mbit/s; got inf."),
        (["--bandwidth", "1", "--latency", "nan"], "latency must be a finite number at least 0, in ms; got nan."),
        (["--seconds", "0"], "seconds must be a finite number above 0; got 0."),
        (["--seconds", "nan"], "seconds must be a finite number above 0; got nan."),
        (["--clients", "three"], "--clients must be a whole number; got 'three'."),
        (["--method", "fedavgg"], "did you mean 'fedavg'?"),
    ],
)
def test_wrong_usage(call, arguments, words):
    code, out, err = call("plan", *arguments)
    assert (code, out) == (2, "")
    assert words in err
