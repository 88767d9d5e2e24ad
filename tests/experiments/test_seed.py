"""What is said of a run before it begins."""

from __future__ import annotations

import time

import pytest

from graphsilo.experiments import seed as seeds
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.runner import run
from graphsilo.methods import fedavg


class Ears(Observer):
    """Keeps what was said of traffic, with the rounds in between."""

    def __init__(self):
        self.heard = []

    def on_warning(self, text):
        if "will send" in text:
            self.heard.append(text)

    def on_progress(self, progress):
        self.heard.append(progress.round)


def test_much_traffic_is_told_before_the_set_up(small, monkeypatch):
    """GCN: (40 + 1) · 8 + (8 + 1) · 3 = 355 weights of 4 bytes, to and from 3 clients in 3 rounds: 12,780 bytes."""
    monkeypatch.setattr(seeds, "MUCH_TRAFFIC", 12_779)
    ears = Ears()
    tree = run(small(run__seeds=[0, 1]), observer=ears).tree
    traffic = [text for text in ears.heard if isinstance(text, str)]
    assert ears.heard[0] in traffic
    assert len(traffic) == 1  # once for all seeds
    assert "FedAvg will send up to 12.8 kB of tensors from the clients in this run and 12.8 kB to them" in traffic[0]
    for entry in tree["seeds"]:
        for way in ("upload_bytes", "download_bytes"):
            assert 12_780 <= sum(row[way] for row in entry["rounds"]) < 2 * 12_780  # headers on top

    # Masked, eight bytes go up for four.
    ears = Ears()
    run(small(run__seeds=[0], run__secure_sums=True), observer=ears)
    said = [text for text in ears.heard if isinstance(text, str)]
    assert any("up to 25.6 kB of tensors from the clients in this run and 12.8 kB to them" in text for text in said)

    # What comes on top is seen after the first round.
    monkeypatch.setattr(seeds, "MUCH_TRAFFIC", 12_780)
    ears = Ears()
    run(small(), observer=ears)
    assert isinstance(ears.heard[0], str)
    assert ears.heard[1:] == [1, 2, 3]
    monkeypatch.setattr(seeds, "MUCH_TRAFFIC", 10**6)
    ears = Ears()
    run(small(), observer=ears)
    assert ears.heard == [1, 2, 3]


def test_a_method_that_cannot_say_is_judged_by_its_first_round(small, monkeypatch):
    monkeypatch.setattr(seeds, "MUCH_TRAFFIC", 1000)
    ears = Ears()
    run(small(method__name="fedpg"), observer=ears)
    assert "will send up to" in ears.heard[0]
    assert ears.heard[1:] == [1, 2, 3]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_server_has_processor_time_of_its_own(small, monkeypatch, workers):
    """A clock that moves by 5 for each round of the server and by 3 for each training at one of three clients."""
    now = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    fit, round_of = fedavg.Client.fit, fedavg.Server.round

    def slow_fit(self, request):
        now[0] += 3.0
        fit(self, request)

    def slow_round(self, federation, number):
        now[0] += 5.0
        round_of(self, federation, number)

    monkeypatch.setattr(fedavg.Client, "fit", slow_fit)
    monkeypatch.setattr(fedavg.Server, "round", slow_round)
    (entry,) = run(small(run__workers=workers)).tree["seeds"]
    assert [row["server_cpu_seconds"] for row in entry["rounds"]] == pytest.approx([5.0] * 3)
    assert entry["server_cpu_seconds"] == pytest.approx(15.0)
    assert entry["setup"]["server_cpu_seconds"] == pytest.approx(0.0)
    if workers == 1:  # clients in other processes read a clock of their own
        assert [row["cpu_seconds"] for row in entry["rounds"]] == [5.0 + 3 * 3.0] * 3
        assert entry["cpu_seconds"] == 3 * 14.0
    assert all("checkpoint_server_cpu_seconds" not in row for row in entry["rounds"])
