"""`graphsilo doctor`."""

from __future__ import annotations

import pytest

from graphsilo.cli import doctor


@pytest.mark.slow
def test_doctor_runs_a_federation(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHSILO_DATA", raising=False)
    found = {finding.what: finding for finding in doctor.examine()}
    assert found["federation"].status == "ok", found["federation"].text
    assert set(found) == {"python", "packages", "torch", "data", "cache", "disk", "federation"}


def test_doctor_says_what_is_broken(call, tmp_path, monkeypatch):
    def fail():
        raise RuntimeError("no workers")
        yield

    monkeypatch.setattr(doctor, "_federation", fail)
    monkeypatch.setenv("GRAPHSILO_DATA", str(tmp_path / "none"))
    code, out, _ = call("doctor")
    assert code == 1
    assert "RuntimeError: no workers" in out
    assert "GRAPHSILO_DATA names" in out
    assert out.splitlines()[-1].startswith("Broken: ")
    assert "federation" in out.splitlines()[-1]


def test_doctor_and_packages(monkeypatch):
    monkeypatch.setattr(doctor, "requirements", lambda: {"numpy": "1.26", "no-such-package": "", "scipy": "99.0"})
    ((status, text),) = doctor._packages()
    assert status == "broken"
    assert "missing: no-such-package" in text
    assert "(at least 99.0)" in text
    monkeypatch.setattr(doctor, "requirements", lambda: {"numpy": "1.26"})
    monkeypatch.setattr(doctor, "TESTED", {"numpy": "0.1"})
    ((status, _),) = doctor._packages()
    assert status == "note"


def test_tested_versions_are_those_of_the_constraints():
    from pathlib import Path

    path = Path(__file__).resolve().parents[2] / "constraints.txt"
    if not path.exists():
        pytest.skip("no constraints.txt")
    pinned = dict(line.split("==") for line in path.read_text().split() if "==" in line)
    pinned = {name.lower(): version.partition("+")[0] for name, version in pinned.items()}
    assert {name: pinned.get(name) for name in doctor.TESTED} == doctor.TESTED
