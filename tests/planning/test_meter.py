"""What is measured of one call: the fullest process, the slowest site, bytes."""

from __future__ import annotations

import itertools
import math

import pytest

from graphsilo.federation import registry
from graphsilo.planning import Connection, meter
from graphsilo.testing import conformance


def test_a_call_waits_for_the_fullest_process_and_the_slowest_site(monkeypatch):
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    found = []
    clock = itertools.count()  # every look at the clock is a second later
    monkeypatch.setattr(meter.time, "process_time", lambda: float(next(clock)))
    places = {client: min(number, 1) for number, client in enumerate(federation.clients)}
    watch = meter.Meter(found.append, math.inf, places, Connection(8e3, 500))
    watch.watch(federation)
    federation.at("round", 1)
    server.round(federation, 1)
    watch.close()
    (step,) = [event for event in found if event["event"] == "step"]
    clients = len(federation.clients)
    assert clients > 2
    cost = step["cost"]
    assert (step["phase"], step["round"]) == ("round", 1)
    each = (cost["cpu"] - cost["server"]) / clients  # all took as long by this clock
    assert cost["wall"] == pytest.approx(cost["server"] + each * (clients - 1))  # all but one share a process
    assert cost["sites"] == pytest.approx(cost["server"] + each + 1.0, abs=0.01)  # twice the latency; hardly any bytes
    assert cost["up"] == federation.ledger.total("round", 1)["up"]
    assert cost["down"] == federation.ledger.total("round", 1)["down"]
    assert cost["up"] / clients <= cost["max_up"] < cost["up"]
    moved = step["moved"]
    assert list(moved) == list(federation.clients)
    assert (cost["up"], cost["down"]) == tuple(map(sum, zip(*moved.values(), strict=True)))
    assert cost["max_up"] == max(up for up, _ in moved.values())


def test_a_trial_that_takes_too_long_ends_between_two_answers(monkeypatch):
    server, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    found = []
    clock = itertools.count()
    monkeypatch.setattr(meter.time, "process_time", lambda: float(next(clock)))
    watch = meter.Meter(found.append, 8.0, dict.fromkeys(federation.clients, 0))
    watch.watch(federation)
    federation.at("round", 1)
    with pytest.raises(meter.TooLong):
        server.round(federation, 1)
    assert found[-1]["event"] == "partial"
    assert found[-1]["cost"]["up"] > 0
