"""``attack.json``."""

from __future__ import annotations

import json

import pytest

from graphsilo.attacks import record as records
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.errors import RunError


def outcome(**more):
    return Outcome(**{"attack": "rows", "attacker": "silo", "figure": "share", "uses": "sums", **more})


def test_verdicts():
    assert outcome(value=0.6, low=0.55, high=0.7, prior=0.5).verdict == "above the prior"
    assert outcome(value=0.6, low=0.5, high=0.7, prior=0.5).verdict == "not above the prior"
    assert outcome().verdict == "nothing to use"


def test_what_is_written_is_read(tmp_path):
    one = outcome(value=0.6, low=0.55, high=0.7, prior=0.5, targets=9)
    record = AttackRecord(fingerprint="f", method="fedavg", title="FedAvg", data="Cora", secure_sums=False,
                          shadows=0, notes=[], outcomes={3: [one, outcome()]})  # fmt: skip
    path = records.write(tmp_path, record)
    assert records.read(tmp_path) == record
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, "more": 1}))
    with pytest.raises(RunError, match="does not have the form of what attacks found"):
        records.read(tmp_path)
    path.write_text(json.dumps({**tree, "format": 9}))
    with pytest.raises(RunError, match="its format is 9"):
        records.read(tmp_path)
