"""Runs without a silo, and of one alone, are made once and compared in words."""

from __future__ import annotations

from graphsilo.cli import main
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip


def test_what_a_silo_contributed(tmp_path, capsys):
    place = tmp_path / "run"
    run(load_config(overrides={**BASE, "method": {"name": "fedridge"}}), out=place)
    assert main(["contribution", "--run", str(place), "--clients", "2"]) == 0
    assert "client-2 ..." in capsys.readouterr().out
    assert main(["contribution", "--run", str(place), "--clients", "2"]) == 0
    said = capsys.readouterr().out
    assert "..." not in said
    assert "Silo 2: " in said
