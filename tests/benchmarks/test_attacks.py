"""What the benchmark of attacks keeps, and how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import attacks
from graphsilo.attacks import findings
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.federation import registry


def outcome(**more: object) -> Outcome:
    kept = {"attack": "attribute", "attacker": "silo", "figure": "AUC of a class's features", "uses": "sums"}
    return Outcome(**{**kept, "value": 0.61, "low": 0.5, "high": 0.71234567, "prior": 0.55, "targets": 4, **more})


def test_what_is_kept_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(attacks, "FILE", tmp_path / "findings.yaml")
    outcomes = [
        outcome(),
        outcome(value=None, low=None, high=None),
        outcome(figure="share of rows recovered, cosine above 0.999"),
        outcome(attack="replay", prior=None),
    ]
    record = AttackRecord(fingerprint="f", method="scaffold", title="SCAFFOLD", data="Cora", secure_sums=False,
                          shadows=0, notes=[], outcomes={0: outcomes})  # fmt: skip
    kept = attacks.rows("scaffold", "secure sums", record)
    assert [each.attack for each in kept] == ["attribute", "replay"]
    assert kept[0].high == 0.7123
    attacks.write([*kept, *attacks.rows("fedavg", "", record)])
    read = findings.parse((tmp_path / "findings.yaml").read_text())
    assert [each.method for each in read] == ["fedavg", "fedavg", "scaffold", "scaffold"]
    assert read[2:] == tuple(kept)


def test_every_variant_names_a_method_and_is_named_once() -> None:
    assert {name for name, *_ in attacks.VARIANTS} <= set(registry.names())
    assert {name for name, _ in attacks.MEMBERSHIP} | set(attacks.LAST) <= set(registry.names())
    places = [(name, variant) for name, variant, _ in attacks.VARIANTS]
    assert len(set(places)) == len(places)
