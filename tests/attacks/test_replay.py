"""Asking for a sum again without one silo."""

from __future__ import annotations

import pytest

from graphsilo.attacks import replay as attack
from graphsilo.attacks.replay import replay
from graphsilo.federation.secure.opened import OpenedSums
from kit.attacks import recorded

SECURE = {"run__secure_sums": True, "evaluation__report": "federation", "partition__clients": 4}


def test_silos_refuse_what_they_opened_before():
    run = recorded(**SECURE)
    (one,) = replay(run.recorder, run.seed, (0, 1, 2, 3))
    assert (one.value, one.targets) == (0.0, 4)
    assert one.verdict == "not above the prior"
    assert attack._can_open(run.recorder, run.seed, -1)  # the same silos once more: that tells nothing new


def test_without_their_record_they_would_not(monkeypatch):
    # That the attack fails for no other reason.
    monkeypatch.setattr(OpenedSums, "check", lambda *arguments: None)
    run = recorded(**SECURE)
    (one,) = replay(run.recorder, run.seed, (0,))
    assert one.value == 1.0


@pytest.mark.parametrize("settings", [{}, {"method__name": "local"}])
def test_in_plain_there_is_nothing_to_replay(settings):
    run = recorded(**settings)
    (one,) = replay(run.recorder, run.seed, (0,))
    assert one.value is None
    assert one.uses.startswith("not needed")
